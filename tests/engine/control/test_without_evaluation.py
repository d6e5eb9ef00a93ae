import pytest
import torch
from torch import nn

import brim
from brim.errors import ConfigError

pytestmark = pytest.mark.usefixtures("own_folder")

X = torch.randn(8, 2)


def fit(**settings):
    fixed = {"loss_fn": nn.MSELoss(), "device": "cpu", "threads": 1}
    return brim.Trainer(nn.Linear(2, 1), (X, X[:, :1]), **{**fixed, **settings}).fit()


PLATEAU = {"scheduler": torch.optim.lr_scheduler.ReduceLROnPlateau}
WAITS = {"patience": {"patience": 2}, "monitor": {"monitor": "loss"}, "keep_best": {"keep_best": 3}, "rate": PLATEAU}
NO_EFFECT = {
    "metrics=": {"metrics": "mse"}, "limit_eval_batches=2": {"limit_eval_batches": 2},
    "eval_every=3": {"eval_every": 3}, "eval_every=5 steps": {"eval_every": "5 steps"},
}  # fmt: skip


@pytest.mark.parametrize("case", WAITS)
def test_what_waits_for_evaluations_is_refused_without_any(case, tmp_path):
    with pytest.raises(ConfigError, match="there is no eval_data"):
        fit(**WAITS[case], test_data=(X, X[:, :1]))
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("said", NO_EFFECT)
def test_what_has_no_effect_is_told(said, capsys):
    assert fit(**NO_EFFECT[said]).steps == 1
    told = " ".join(capsys.readouterr().err.split())
    assert f"warning: {said}" in told
    assert "there is no eval_data" in told


@pytest.mark.parametrize("settings", [{}, {"fast_dev_run": True}, {"metrics": "mse", "limit_eval_batches": 1}])
def test_what_has_an_effect_is_not(settings, capsys):
    fit(**settings, **({"test_data": (X, X[:, :1])} if "metrics" in settings else {}))
    assert "warning" not in capsys.readouterr().err
