"""Which weights a run leaves, in the model and in its folder."""

import pytest
import torch
from torch import nn

import brim
from brim.engine.trainer import run_now

X, Y = torch.randn(12, 2), torch.randn(12, 1)


class Scores:
    """Judges by a list: the step with the highest score is the best."""

    monitor, higher_is_better = "score", True

    def __init__(self, *scores):
        self.scores, self.weights = list(scores), []

    def evaluate(self, model):
        self.weights.append(model.weight.detach().clone())
        return {"score": self.scores[len(self.weights) - 1]}


def fit(tmp_path, scores, **settings):
    torch.manual_seed(0)
    trainer = brim.Trainer(
        nn.Linear(2, 1), [(X, Y)], scores, loss_fn=nn.MSELoss(), device="cpu", threads=1, lr=0.1, optimizer="SGD",
        epochs=len(scores.scores), run_dir=tmp_path / "run", **settings,
    )  # fmt: skip
    return trainer, trainer.fit()


@pytest.mark.parametrize("best", [0, 1, 2])
def test_the_model_has_the_best_weights_and_the_result_their_metrics(tmp_path, best):
    scores = Scores(*(float(number == best) for number in range(3)))
    trainer, result = fit(tmp_path, scores)
    assert result.metrics == {"score": 1.0}
    assert torch.equal(trainer.model.weight, scores.weights[best])


def test_the_last_weights_where_they_were_asked_for(tmp_path):
    scores = Scores(1.0, 0.0, 0.0)
    trainer, result = fit(tmp_path, scores, restore_best=False)
    assert torch.equal(trainer.model.weight, scores.weights[-1]) and result.metrics == {"score": 0.0}


def test_best_weights_that_were_lost_are_said(tmp_path, capsys):
    class Loses(brim.Callback):
        def on_evaluate(self, trainer, metrics):
            if len(scores.weights) == 3:
                run_now(trainer).saver.wait()
                for file in (tmp_path / "run" / "checkpoints").glob("best*"):
                    for one in [file] if file.is_file() else file.iterdir():
                        one.write_bytes(b"")

    scores = Scores(1.0, 0.0, 0.0)
    trainer, _ = fit(tmp_path, scores, callbacks=[Loses()])
    assert torch.equal(trainer.model.weight, scores.weights[-1])
    assert "are damaged or could not be written" in capsys.readouterr().err


@pytest.mark.parametrize("hook", ["on_evaluate", "on_epoch_end", "on_save", "on_epoch_start"])
def test_weights_that_a_callback_changed_after_the_best_evaluation_are_not_left(tmp_path, hook):
    class Changes(brim.Callback):
        pass

    def change(self, trainer, *_):
        if len(scores.weights) == 2:
            with torch.no_grad():
                trainer.model.weight.add_(100)
            if hook == "on_epoch_start":
                trainer.stop("enough")

    setattr(Changes, hook, change)
    scores = Scores(0.0, 1.0, 0.0) if hook == "on_epoch_start" else Scores(0.0, 1.0)
    trainer, result = fit(tmp_path, scores, callbacks=[Changes()])
    assert result.metrics == {"score": 1.0}
    assert torch.equal(trainer.model.weight, scores.weights[1])
