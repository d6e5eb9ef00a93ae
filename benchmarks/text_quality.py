"""How well a recommender ranks: beside popularity and EASE, with text, without, with random vectors.

All have the same loss; the settings of each are chosen on the validation split, from the same few (``--kind history``:
temperatures; ``--kind linear``: ``--trials`` settings of the closed form), and the test split is ranked with training
and validation items left out. Slices: all items; the less-rated half of the items, to be found among all; and a tenth
of the items held out of training, ranked among themselves for the people who watched them, beside popularity
within their genres. Intervals are of resampled users. A file named with ``--json`` is written anew after each row, so
that a run that is ended early leaves what it had.

    python benchmarks/text_quality.py --encoder FOLDER [--data ml-1m] [--split FOLDER] [--device cuda] [--json out.json]

``--encoder`` is a folder or a hub name of a pretrained model that transformers can load, such as all-MiniLM-L6-v2.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

from about import about

from brim.workloads.recommender.comparison import Comparison, ComparisonSettings, Row, compare
from brim.workloads.recommender.comparison.settings import KINDS, MODELS, PARTS
from brim.workloads.recommender.files.opening import open_dataset
from brim.workloads.recommender.history.item_encodings import item_encodings

USUAL = ComparisonSettings()


def parse_arguments() -> argparse.Namespace:
    test_data = os.environ.get("BRIM_TEST_DATA")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", required=True, help="a folder or hub name of a pretrained text encoder")
    parser.add_argument("--data", type=Path, default=Path(test_data) / "ml-1m" if test_data else None,
                        help="the folder of MovieLens-1M (default: ml-1m in $BRIM_TEST_DATA)")  # fmt: skip
    parser.add_argument("--split", type=Path, help="train.tsv, valid.tsv, test.tsv (default: DATA/recbole_split_ge3)")
    parser.add_argument("--split-seed", type=int, help="instead of --split: a random split of ratings of 3 and more")
    parser.add_argument("--kind", choices=KINDS, default=USUAL.kind)
    parser.add_argument("--trials", type=int, default=USUAL.trials, help="of linear: settings to choose from")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--temperatures", type=float, nargs="+", default=USUAL.temperatures, help="to choose from")
    parser.add_argument("--encoder-name", help="what the JSON calls the encoder (default: the end of --encoder)")
    parser.add_argument("--models", nargs="+", choices=tuple(MODELS), default=tuple(MODELS))
    parser.add_argument("--epochs", type=int, default=USUAL.epochs, help="at most")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("say where MovieLens-1M is: --data, or BRIM_TEST_DATA")
    return arguments


def show(part: str, row: Row) -> None:
    cells = "".join(f"  {one.mean:.4f} [{one.low:.4f}, {one.high:.4f}]" for one in row.metrics.values())
    print(f"{part:6}{row.name:36}{cells}  {row.note}", flush=True)


def main() -> None:
    arguments = parse_arguments()
    split = None if arguments.split_seed is not None else arguments.split or arguments.data / "recbole_split_ge3"
    dataset = open_dataset(arguments.data, split, 3 if split is None else None, arguments.split_seed or 0)
    settings = ComparisonSettings(
        models=tuple(arguments.models), parts=tuple(arguments.parts), seeds=arguments.seeds, epochs=arguments.epochs,
        temperatures=tuple(arguments.temperatures), device=arguments.device, kind=arguments.kind,
        trials=arguments.trials,
    )  # fmt: skip
    facts: dict[str, Any] = {
        **about("transformers"), "encoder": arguments.encoder_name or Path(arguments.encoder).name,
        "train": len(dataset.get_split_data("train")), **settings.as_json(),
    }  # fmt: skip

    def write(comparison: Comparison) -> None:
        if arguments.json:
            arguments.json.write_text(json.dumps({**facts, **comparison.as_json()}, indent=2) + "\n")

    def on_row(part: str, row: Row, comparison: Comparison) -> None:
        show(part, row)
        write(comparison)

    encodings = item_encodings(dataset.get_item_num(), dataset, arguments.encoder)
    found = compare(dataset, encodings, settings, on_row=on_row)
    write(found)
    print(json.dumps(found.bars, indent=2))
    for name, above in found.above.items():
        print(f"text + ids is {above.mean:+.4f} [{above.low:+.4f}, {above.high:+.4f}] above {name}")


if __name__ == "__main__":
    main()
