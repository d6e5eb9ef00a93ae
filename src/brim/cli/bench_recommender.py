"""``brim bench recommender``: what text is worth on a data set, beside popularity, EASE, ids and random vectors."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from brim.cli.progress import telling

if TYPE_CHECKING:
    from brim.workloads.recommender.comparison import Comparison, Interval, Row
    from brim.workloads.recommender.dataset import RecommenderDataset

STOPPED = "stopped by Ctrl-C before everything was ranked; nothing is kept"
QUICK = "--quick: one seed, one setting and few epochs; a first look, nothing to be quoted"
WARM = {"": "test split", "ndcg@10": "NDCG@10", "recall@20": "Recall@20", "rare": "Recall@20, less-rated half"}
COLD = {"": "held-out items", "ndcg@10": "NDCG@10", "recall@20": "Recall@20"}
READING = "reading the data and its texts"


def recommender(
    data: Annotated[
        Path | None, typer.Option(help="A folder of MovieLens-1M or of RecBole's atomic files. Default: built-in data.")
    ] = None,
    split: Annotated[
        Path | None,
        typer.Option(help="A folder with train.tsv, valid.tsv, test.tsv, or BARS' lists. Default: random 8:1:1."),
    ] = None,
    split_seed: Annotated[int | None, typer.Option(help="Seed of the random split.")] = None,
    min_rating: Annotated[int | None, typer.Option(help="Minimum number of stars for a rating to count.")] = None,
    encoder: Annotated[
        str, typer.Option(help="Text encoder: a folder, a hub name, or tiny (random weights).")
    ] = "tiny",
    kind: Annotated[
        str, typer.Option(help="linear: solved in closed form; history: trained on what users watched.")
    ] = "linear",
    seeds: Annotated[int, typer.Option(help="Number of trainings per model.")] = 3,
    epochs: Annotated[int | None, typer.Option(help="Maximum epochs per training, of history. Default: 100.")] = None,
    device: Annotated[str, typer.Option(help="Device: auto, cpu, cuda.")] = "auto",
    quick: Annotated[bool, typer.Option("--quick", help="One seed, one setting, few epochs.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Rank with popularity, EASE, ids, text + ids and random + ids: all items, the less-rated half, held-out ones."""
    from brim.errors import ConfigError
    from brim.hardware import choose_device, inventory
    from brim.workloads.recommender.comparison import ComparisonSettings, compare
    from brim.workloads.recommender.history.item_encodings import item_encodings

    if kind == "linear" and epochs is not None:
        raise ConfigError("--epochs is of --kind history: linear is solved, not trained; leave it out")
    place = choose_device(device, inventory()).device
    settings = ComparisonSettings(kind=kind, seeds=seeds, epochs=100 if epochs is None else epochs, device=str(place))
    settings = settings.quick() if quick else settings
    with telling(STOPPED, unsaid=READING) as say:
        say(READING)
        dataset = _read(data, split, min_rating, split_seed)
        for sentence in dataset.notes:
            say(sentence)
        encodings = item_encodings(dataset.get_item_num(), dataset, encoder)
        found = compare(dataset, encodings, settings, say)
    if as_json:
        facts = {"encoder": encoder, "train": len(dataset.get_split_data("train")), **settings.as_json()}
        typer.echo(json.dumps({**facts, **found.as_json()}))
        return
    lines = table_lines(found)
    lines += ["texts were read by a small GPT-2 with random weights: name a real one with --encoder"] * (
        encoder == "tiny"
    )
    lines += [QUICK] * quick
    typer.echo("\n".join(lines))


def _read(
    data: Path | None, split: Path | None, min_rating: int | None, split_seed: int | None
) -> "RecommenderDataset":
    from brim.errors import ConfigError
    from brim.workloads.recommender import EmbeddedDataset
    from brim.workloads.recommender.files.opening import open_dataset

    if data is None and (split is not None or min_rating is not None):
        raise ConfigError("--split and --min-rating are of a data set that --data names; the embedded one has its own")
    if split is not None and split_seed is not None:
        raise ConfigError("--split-seed is of the random split, and --split gives one: leave one of both out")
    seed = split_seed or 0
    return EmbeddedDataset(seed=seed) if data is None else open_dataset(data, split, min_rating, seed)


def table_lines(found: "Comparison") -> list[str]:
    """A line for each model, with 95 % intervals of resampled users, then what text is worth."""
    lines = _part(WARM, found.warm) if found.warm else []
    lines += _bar_lines(found)
    if found.cold:
        lines += ["", *_part(COLD, found.cold), *_above_lines(found)]
    return lines


def _part(names: dict[str, str], rows: "list[Row]") -> list[str]:
    """Columns as wide as their widest cell: a table that a terminal of 80 columns wraps, and a file keeps whole."""
    cells = [list(names.values()), *([row.name, *(_cell(row.metrics.get(m)) for m in [*names][1:])] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    notes = ["", *(row.note for row in rows)]
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=True)), note]).rstrip()
        for line, note in zip(cells, notes, strict=True)
    ]


def _cell(interval: "Interval | None") -> str:
    if interval is None:
        return ""
    if interval.low == interval.high:  # published, or the same for everybody
        return f"{interval.mean:.4f}"
    return f"{interval.mean:.4f} [{interval.low:.4f}, {interval.high:.4f}]"


def _bar_lines(found: "Comparison") -> list[str]:
    said = [f"text + ids {name}: {'yes' if met else 'no'}" for name, met in found.bars.items() if isinstance(met, bool)]
    ratio = found.bars.get("rare, text to ids")
    return said if ratio is None else [*said, f"Recall@20 on the less-rated half, text + ids to ids: {ratio:.2f}x"]


def _above_lines(found: "Comparison") -> list[str]:
    return [
        f"text + ids is {one.mean:+.4f} ({one.low:+.4f} to {one.high:+.4f}) of NDCG@10 above {name}"
        for name, one in found.above.items()
    ]
