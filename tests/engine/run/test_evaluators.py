import pytest
import torch
from helpers.running import assembly_of
from torch import nn

import brim
from brim.engine.distributed.ranks import Ranks
from brim.engine.evaluation.evaluation_sets import EvaluationSets
from brim.errors import ConfigError

X, Y = torch.randn(9, 2), torch.randn(9, 1)


class Own:
    monitor, higher_is_better = "score", True

    def evaluate(self, model):
        return {"score": 1.0, "other": 2.0}


def made(eval_data, **settings):
    run = brim.Trainer(nn.Linear(2, 1), (X, Y), eval_data, loss_fn=nn.MSELoss(), device="cpu", **settings)
    evaluators = assembly_of(run).evaluators
    evaluator = evaluators.evaluator(eval_data)
    return evaluator, evaluators.monitor(evaluator)


def test_data_by_itself_is_monitored_by_its_loss_and_an_evaluator_by_its_own():
    assert made((X, Y))[1].name == "loss"
    evaluator, monitor = made(own := Own())
    assert evaluator is own and (monitor.name, monitor.higher_is_better) == ("score", True)


def test_another_metric_of_an_evaluator_can_be_monitored():
    monitor = made(Own(), monitor="other", mode="min")[1]
    assert (monitor.name, monitor.higher_is_better) == ("other", False)


def test_sets_may_be_of_both_kinds():
    evaluator, monitor = made({"clean": Own(), "noisy": (X, Y)}, metrics="mae")
    assert isinstance(evaluator, EvaluationSets) and monitor.name == "clean/score"
    assert list(evaluator.evaluate(nn.Linear(2, 1))) == ["clean/score", "clean/other", "noisy/loss", "noisy/mae"]


def test_a_monitored_metric_that_never_comes_is_named_with_those_that_do(tmp_path):
    with pytest.raises(ConfigError, match="monitor='auc' is not among the metrics of the evaluation data: loss, mae"):
        brim.Trainer(
            nn.Linear(2, 1), (X, Y), (X, Y), loss_fn=nn.MSELoss(), device="cpu", metrics="mae", monitor="auc",
            run_dir=tmp_path / "run",
        ).fit()  # fmt: skip


@pytest.mark.parametrize(("mode", "said"), [("min", "mode='max'"), ("max", "")])
def test_what_a_plateau_follows_is_said(tmp_path, mode, said):
    def plateau(optimizer):
        return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode=mode)

    run = brim.Trainer(
        nn.Linear(2, 1), (X, Y), Own(), loss_fn=nn.MSELoss(), device="cpu", scheduler=plateau, run_dir=tmp_path / "run"
    )
    run.fit()
    assert run.scheduler.mode == "max"
    assert ("ReduceLROnPlateau follows 'score'" in (tmp_path / "run" / "log.txt").read_text()) == bool(said)


def test_an_evaluator_takes_no_share_any_more_once_the_trainer_has_evaluated_it():
    data = Own()
    data.ranks = Ranks()
    trainer = brim.Trainer(nn.Linear(1, 1), [(torch.ones(2, 1), torch.ones(2, 1))], loss_fn=nn.MSELoss(), device="cpu")
    seen = []
    data.evaluate = lambda model: seen.append(data.ranks) or {"score": 1.0}
    trainer.evaluate(data)
    assert seen == [trainer.ranks] and data.ranks is not trainer.ranks
