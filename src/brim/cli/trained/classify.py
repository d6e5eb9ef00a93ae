"""``brim classify``: what a trained classifier says of pictures or sounds, in shards or as files."""

import csv
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from brim.errors import ConfigError


def classify(
    run: Annotated[Path, typer.Argument(help="A run of the classifier, or its name in runs.", metavar="RUN")],
    source: Annotated[
        list[str], typer.Argument(help="Shards, or files and folders of pictures or sounds.", metavar="SOURCE...")
    ],
    k: Annotated[int, typer.Option(help="Number of classes per sample, the most probable first.", min=1)] = 1,
    to: Annotated[Path | None, typer.Option(help="CSV file to write; default: the terminal.")] = None,
) -> None:
    """Print a CSV line for each sample: its name, the most probable classes and their probabilities."""
    # Imported here, so that --help does not wait for torch.
    from brim.observe.run_search import find_run
    from brim.workloads import load
    from brim.workloads.classifier import ConvClassifier
    from brim.workloads.classifier.classification import classify as classify_samples

    model = load(find_run(run))
    if not isinstance(model, ConvClassifier):
        raise ConfigError(
            f"{run} is a run of {type(model).__name__}, which classifies nothing; name one of a classifier"
        )
    k = min(k, len(model.classes))
    header = ["sample", *(f"{what}_{place}" for place in range(1, k + 1) for what in ("class", "probability"))]
    try:
        opened = nullcontext(sys.stdout) if to is None else to.open("w", newline="", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {to}: {error.strerror}; name another file with --to") from error
    with opened as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(header)
        for found in classify_samples(model, source[0] if len(source) == 1 else source, k):
            pairs = zip(found.classes, (f"{value:.4f}" for value in found.probabilities), strict=True)
            lines.writerow([found.name, *(part for pair in pairs for part in pair)])
