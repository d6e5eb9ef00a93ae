from dataclasses import replace
from pathlib import Path

import pytest
from helpers.observations import finding, loader, observed

from brim.doctor.edits.suggestion import suggestions
from brim.doctor.observation import read_observation
from brim.doctor.order import Cures
from brim.doctor.rules.examine import examine
from brim.doctor.shares import shares

PLANTED = Path(__file__).parents[1] / "planted"
RECORDED = Path(__file__).parents[1] / "recorded"


def test_files_of_the_same_name_are_not_mixed_up(tmp_path):
    files = [tmp_path / "train.py", tmp_path / "other" / "train.py"]
    files[1].parent.mkdir()
    for file in files:
        file.write_text("loader = DataLoader(data)\n")
    seen = replace(observed(loaders=(loader(line="train.py:1"),)), files=tuple(map(str, files)))
    assert suggestions(seen, [finding("no-workers", cures=Cures(num_workers=2))], tmp_path) == []


@pytest.mark.parametrize("file", sorted(RECORDED.glob("*.json")), ids=lambda file: file.stem)
def test_diffs_of_planted_scripts_are_python(file, tmp_path):
    seen = replace(read_observation(file.read_text()), files=(str(PLANTED / f"{file.stem}.py"),))
    for made in suggestions(seen, examine(seen, shares(seen)), PLANTED):
        compile(made.text, made.path, "exec")
        assert made.diff.startswith(f"--- a/{file.stem}.py\n")
