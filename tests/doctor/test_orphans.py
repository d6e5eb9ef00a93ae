import subprocess
import sys
from pathlib import Path

import pytest

from brim.doctor.orphans import adopted, ending_orphans

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="orphans are adopted on Linux only")
LEAVES_ONE = ["sh", "-c", "sleep 3600 > /dev/null 2>&1 & echo $!"]


def test_what_lost_its_parent_is_ended_and_own_children_are_not():
    before = adopted()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as own:
        with ending_orphans():
            left = subprocess.run(LEAVES_ONE, start_new_session=True, check=True, capture_output=True, text=True)
            assert adopted() == [*before, int(left.stdout)]
        assert own.poll() is None and adopted() == before
        own.stdin.close()
    assert not Path(f"/proc/{int(left.stdout)}").exists()
