"""``brim data pack``: a folder of files becomes tar shards with an index."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import MofNCompleteColumn

from brim.cli.progress import progress_bar


def pack(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="A folder of files; a.jpg and a.cls form one sample.")
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder for the shards.")],
    samples_per_shard: Annotated[
        int | None,
        typer.Option(metavar="N", help="Maximum number of samples per shard.", show_default="as many as fit"),
    ] = None,
    shard_size: Annotated[str, typer.Option(metavar="SIZE", help="Maximum size of a shard.")] = "256MiB",
    labels: Annotated[
        str | None, typer.Option(metavar="folder", help="Number the subfolders, and add the number as the field cls.")
    ] = None,
    shuffle: Annotated[
        int | None, typer.Option(metavar="SEED", help="Pack in a random order.", show_default="by name")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace existing shards in OUT.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Pack a folder of files into tar shards, which brim and webdataset read."""
    # Imported here, so that --help and --version do not wait for torch.
    from brim.data.tar.packing import pack as pack_samples
    from brim.engine.components.settings import check_choice
    from brim.sizes import show_bytes

    if labels is not None:
        check_choice("labels", labels, ["folder"])
    try:
        with progress_bar("packing", MofNCompleteColumn()) as on_sample:
            summary = pack_samples(
                source,
                out,
                samples_per_shard=samples_per_shard,
                shard_bytes=shard_size,
                shuffle_seed=shuffle,
                labels="folder" if labels else None,
                force=force,
                on_sample=on_sample,
            )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped by Ctrl-C; {out} is as it was") from None
    if as_json:
        typer.echo(json.dumps({**asdict(summary), "folder": str(summary.folder)}))
        return
    shards = f"{summary.shards:,} shard{'s' if summary.shards > 1 else ''}"
    what = f"{summary.samples:,} samples ({', '.join(summary.fields)})"
    typer.echo(f"Packed {what} into {shards} of {show_bytes(summary.bytes)} in all.")
    if summary.left_out:
        typer.echo(f"Left out {summary.left_out:,} files without an extension, which belong to no sample.")
    typer.echo(f"Now in {out}; read it: brim.Shards({str(out)!r})")
