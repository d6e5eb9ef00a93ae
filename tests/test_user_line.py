"""Whose a line of source is, and errors told with the user's line."""

from pathlib import Path

import numpy as np
import pytest
import torch

import brim
from brim.errors import ConfigError, ModelError
from brim.user_line import is_foreign, is_of_job, is_users_own, line_at_fault, line_of_job, users_errors

LIBRARIES, BRIM = Path(torch.__file__).parent.parent, Path(brim.__file__).parent


@pytest.mark.parametrize("package", ["torchvision", "torchmetrics", "torch_geometric", "transformers"])
def test_libraries_beside_torch_are_foreign_and_not_the_users_own(package: str) -> None:
    file = str(LIBRARIES / package / "models" / "resnet.py")
    assert is_foreign(file) and is_of_job(file)
    assert not is_users_own(file)


@pytest.mark.parametrize("file", [torch.__file__, str(LIBRARIES / "torch" / "nn" / "linear.py")])
def test_torch_is_nobody_elses(file: str) -> None:
    assert not (is_foreign(file) or is_of_job(file) or is_users_own(file))


@pytest.mark.parametrize("file", ["/home/anna/brim/train.py", "/srv/brim/src/brim/memory/net.py"])
def test_a_users_folder_may_have_any_name(file: str) -> None:
    assert is_foreign(file) and is_of_job(file) and is_users_own(file)


def test_what_the_forecast_computes_is_not_the_forecast() -> None:
    assert not is_of_job(str(BRIM / "memory" / "trace" / "trace.py"))
    assert not is_of_job(str(BRIM / "speed_up" / "work.py"))
    assert is_of_job(str(BRIM / "workloads" / "recommender" / "bpr.py"))
    assert is_of_job(str(BRIM / "engine" / "components" / "loss.py"))
    assert not is_foreign(str(BRIM / "workloads" / "recommender" / "bpr.py"))


def test_code_that_was_typed_in_has_no_line_to_show() -> None:
    assert is_foreign("<stdin>")
    assert not (is_of_job("<stdin>") or is_users_own("<stdin>"))


def test_the_line_that_runs_is_found() -> None:
    assert line_of_job().startswith(f"{__file__}:")


def test_an_error_of_the_user_is_told_with_line_and_module() -> None:
    def fail() -> None:
        raise ValueError("no such label\nat all")

    line = f"{__file__}:{fail.__code__.co_firstlineno + 1}"
    with (
        pytest.raises(ModelError, match=f"^the loss failed at {line} in head: ValueError: no such label$"),
        users_errors("the loss", lambda: "head"),
    ):
        fail()


def test_errors_of_brims_and_what_is_no_error_go_through() -> None:
    for error in (ConfigError("no"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as raised, users_errors("the loss"):
            raise error
        assert raised.value is error


def test_a_library_that_the_users_code_calls_is_not_the_line_to_show() -> None:
    def build() -> None:
        np.load("nowhere.npz")

    line = f"{__file__}:{build.__code__.co_firstlineno + 1}"
    with pytest.raises(ModelError, match=f"^building failed at {line}: FileNotFoundError"), users_errors("building"):
        build()


def test_an_error_within_brim_is_not_the_users_though_the_user_called_it() -> None:
    with pytest.raises(ConfigError) as caught:
        brim.move_data_to_device(torch.ones(1), "nowhere")
    assert line_at_fault(caught.value.__traceback__) == ""
    with pytest.raises(ZeroDivisionError) as own:
        brim.move_data_to_device(Divides(), "cpu")
    assert line_at_fault(own.value.__traceback__).startswith(f"{__file__}:")


class Divides:
    def to(self, device: object) -> None:
        raise ZeroDivisionError
