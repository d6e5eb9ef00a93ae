import subprocess
from dataclasses import replace

import pytest
from helpers.observations import observed

from brim.doctor.edits.suggestion import suggestions


@pytest.fixture
def suggested(tmp_path):
    """The text of train.py with the diff for a finding applied by git, or None where no diff is made."""

    def make(text, found, **seen):
        script = tmp_path / "train.py"
        script.write_bytes(text.encode())
        made = suggestions(replace(observed(**seen), files=(str(script),)), [found], tmp_path)
        if not made:
            return None
        (only,) = made
        applied = subprocess.run(["git", "apply", "-p1"], cwd=tmp_path, input=only.diff.encode(), capture_output=True)
        assert applied.returncode == 0, applied.stderr
        assert script.read_bytes().decode() == only.text
        script.write_bytes(text.encode())
        return only.text

    return make
