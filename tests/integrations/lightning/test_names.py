import subprocess
import sys

import pytest

from brim.integrations import lightning


@pytest.mark.parametrize("name", lightning.__all__)
def test_every_name_can_be_imported(name):
    assert getattr(lightning, name).__name__ == name


def test_an_unknown_name_is_answered_with_those_there_are():
    with pytest.raises(AttributeError, match=r"has no attribute 'Trainer'; its names are .*train"):
        _ = lightning.Trainer


@pytest.mark.slow
def test_importing_brim_imports_no_integration():
    program = (
        "import sys, brim\n"
        "brim.Trainer, brim.Loader, brim.Step\n"
        "roots = ('brim.integrations', 'lightning', 'pytorch_lightning')\n"
        "found = [name for name in sys.modules if name.startswith(roots)]\n"
        "assert not found, found\n"
        "from brim.integrations.lightning import train\n"
        "assert 'lightning.pytorch' not in sys.modules, 'train needs none of it'\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
