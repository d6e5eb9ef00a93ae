from pathlib import Path

import pytest

from brim.doctor.diagnosis import diagnose

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.usefixtures("gpu_to_itself")]

PLANTED = Path(__file__).parent / "planted"


@pytest.mark.parametrize("script", sorted(PLANTED.glob("cuda_*.py")), ids=lambda script: script.stem)
def test_a_planted_cause_on_a_gpu_comes_first(script):
    expected = script.read_text().splitlines()[0].partition("cause:")[2].strip()
    found = diagnose(script, patience=600.0)
    assert sum(found.shares.as_dict().values()) == pytest.approx(1, abs=0.02)
    causes = [finding.cause for finding in found.findings]
    assert causes[:1] == ([] if expected == "none" else [expected]), found
    assert found.seen.host.device == "cuda" and found.seen.profile.kernels > 0
