from pathlib import Path

import pytest
import torch
from torch import nn

from brim.errors import ConfigError
from brim.hardware.cards import H200, find_card
from brim.memory import forecast
from brim.memory.calibration import Calibration, calibrate, calibration_file, calibration_of, remember
from brim.memory.context import context_of

MIB = 1 << 20
RUNTIME = (2, 11)
MEASURED = Calibration(context=700 * MIB, extra_reserved=6 * MIB)


def forecast_a_layer():
    return forecast(
        lambda: nn.Linear(64, 64), lambda n: ((torch.randn(n, 64),), {}), batch_size=4, card=H200, runtime="2.11"
    )


def test_what_was_remembered_is_found_again() -> None:
    file = remember(MEASURED, H200, RUNTIME)
    assert file == calibration_file(H200, RUNTIME)
    assert calibration_of(H200, RUNTIME) == MEASURED


def test_it_is_for_that_card_and_that_torch_alone() -> None:
    remember(MEASURED, H200, RUNTIME)
    assert calibration_of(H200, (2, 12)) == calibration_of(find_card("RTX 4090"), RUNTIME) == Calibration()


def test_files_lie_in_the_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRIM_CACHE", str(tmp_path / "here"))
    assert remember(MEASURED, H200, RUNTIME) == tmp_path / "here" / "brim" / "calibration-nvidia-h200-torch2.11.json"
    monkeypatch.delenv("BRIM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "there"))
    assert calibration_file(H200, RUNTIME).parent == tmp_path / "there" / "brim"


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b"null", b"3", b'{"unknown": 1}', b"\xff\xfe\x00", b'{"context": 1'], ids=repr
)
def test_a_corrupt_file_is_ignored(content: bytes) -> None:
    remember(MEASURED, H200, RUNTIME).write_bytes(content)
    assert calibration_of(H200, RUNTIME) == Calibration()


@pytest.mark.parametrize("content", ['{"context": "much"}', '{"extra_reserved": null}', '{"context": [1]}'])
def test_a_file_with_values_of_the_wrong_type_is_ignored(content: str) -> None:
    remember(MEASURED, H200, RUNTIME).write_text(content)
    assert forecast_a_layer().reserved > 0


def test_a_folder_in_the_way_is_ignored() -> None:
    calibration_file(H200, RUNTIME).mkdir(parents=True)
    assert calibration_of(H200, RUNTIME) == Calibration()


def test_without_a_measurement_the_rules_say_the_context() -> None:
    assert Calibration().context_of(H200, True, False) == context_of(H200, True, False)


def test_a_measurement_replaces_the_rules() -> None:
    context = MEASURED.context_of(find_card("RTX 4090"), True, True)
    assert context.size == context.low == context.high == 700 * MIB


def test_a_forecast_uses_it() -> None:
    before = forecast_a_layer()
    remember(MEASURED, H200, RUNTIME)
    after = forecast_a_layer()
    assert after.allocated == before.allocated
    assert after.reserved == before.reserved + 6 * MIB
    assert after.parts["context"] == 700 * MIB + H200.driver_reserve
    assert sum(after.parts.values()) == after.device


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to calibrate with")
def test_without_a_gpu_there_is_nothing_to_calibrate_with() -> None:
    with pytest.raises(ConfigError, match=r"^there is no GPU in this machine to calibrate with$"):
        calibrate()
