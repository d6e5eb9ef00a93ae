"""Trainer(logits="chunked") beside the plain loop, on the paths that split a batch."""

from functools import partial

import pytest
import torch

from brim import Callback, Trainer
from brim.errors import ConfigError, ModelError
from brim.logits.pending_logits import PendingLogits
from tests.helpers.language_models import language_batch, language_model


def data(samples=12):
    batch = language_batch(samples)
    return [{name: tensor[start : start + 4] for name, tensor in batch.items()} for start in range(0, samples, 4)]


def trained(tmp_path, name="gpt2", logits="chunked", batches=None, **more):
    model = language_model(name)
    settings = {"device": "cpu", "optimizer": lambda p: torch.optim.SGD(p, 0.5), "threads": 1, **more}
    batches = batches if batches is not None else data()
    Trainer(model, batches, run_dir=tmp_path / logits, logits=logits, **settings).fit()
    return {key: value.detach().clone() for key, value in model.state_dict().items()}


def assert_same(own, other):
    for key, value in own.items():
        torch.testing.assert_close(value, other[key], rtol=1e-4, atol=1e-5, msg=key)


@pytest.mark.matrix(2)
@pytest.mark.parametrize("name", ["gpt2", "t5"])
@pytest.mark.parametrize("more", [{}, {"micro_batch": 1}, {"gradient_accumulation_steps": 3}, {"checkpointing": True}])
def test_weights_are_those_of_whole_logits(tmp_path, name, more):
    assert_same(trained(tmp_path, name, **more), trained(tmp_path, name, "whole", **more))


@pytest.mark.matrix(2)
@pytest.mark.parametrize(("name", "block"), [("gpt2", "transformer.h.0"), ("t5", "encoder.block.0")])
@pytest.mark.parametrize("more", [{}, {"micro_batch": 1}], ids=["pair", "with micro-batches"])
def test_with_a_block_recomputed_weights_are_those_of_a_plain_model(tmp_path, name, block, more):
    assert_same(trained(tmp_path, name, checkpointing=[block], **more), trained(tmp_path, name, "whole"))


def test_micro_batches_add_up_to_the_mean_over_tokens_of_the_whole_batch(tmp_path):
    whole = [language_batch(12)]
    own = trained(tmp_path, batches=whole, micro_batch=2)
    model = language_model("gpt2")
    model(**whole[0]).loss.backward()
    torch.optim.SGD(model.parameters(), 0.5).step()
    assert_same(own, model.state_dict())


def test_the_model_really_waits_and_is_left_as_it_was(tmp_path):
    model, seen = language_model("gpt2"), []

    def loss_fn(model, batch):
        output = model(**batch)
        seen.append((torch.is_grad_enabled(), type(output.logits)))
        return output.loss

    trainer = Trainer(
        model, data(), eval_data=data(), loss_fn=loss_fn, device="cpu", run_dir=tmp_path / "run", logits="chunked"
    )
    trainer.fit()
    assert (True, PendingLogits) in seen
    assert (False, PendingLogits) not in seen
    assert "forward" not in vars(model.lm_head)
    assert type(trainer.predict(data())) is torch.Tensor


def test_an_error_in_the_loss_leaves_the_model_as_it_was(tmp_path):
    model = language_model("gpt2")

    def loss_fn(model, batch):
        raise ZeroDivisionError("no loss")

    with pytest.raises(Exception, match="no loss"):
        Trainer(model, data(), loss_fn=loss_fn, device="cpu", run_dir=tmp_path / "run", logits="chunked").fit()
    assert "forward" not in vars(model.lm_head)


def test_logits_that_a_callback_reads_after_the_step_are_refused_unless_they_were_kept(tmp_path):
    kept = {}

    def loss_fn(model, batch):
        output = model(**batch)
        kept["logits"] = output.logits.detach() if kept["keeps"] else output.logits
        return output.loss

    class Reads(Callback):
        def on_step_end(self, trainer, step, loss):
            kept["sum"] = kept["logits"].sum()

    def train():
        optimizer = partial(torch.optim.SGD, lr=0.5, fused=True)  # whose writing torch does not count
        more = {"optimizer": optimizer, "loss_fn": loss_fn, "callbacks": [Reads()], "max_steps": 1}
        trained(tmp_path / str(kept["keeps"]), **more)

    kept["keeps"] = True
    train()
    torch.testing.assert_close(kept["sum"], language_model("gpt2")(**data()[0]).logits.sum().detach())
    kept["keeps"] = False
    with pytest.raises(ModelError, match="after the last layer's weights or inputs were changed"):
        train()


def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(ConfigError, match=r"use brim\.linear_cross_entropy"):
        Trainer(torch.nn.Linear(1, 1), data(), loss_fn=torch.nn.MSELoss(), logits="chunked", run_dir=folder)
    with pytest.raises(ConfigError, match="leave out compile="):
        Trainer(language_model("gpt2"), data(), logits="chunked", compile=True, run_dir=folder)
    with pytest.raises(ConfigError, match="chunked"):
        Trainer(language_model("gpt2"), data(), logits="chunkd", run_dir=folder)
    assert not folder.exists()


@pytest.mark.gpu
def test_a_captured_step_with_chunked_logits_trains_the_same(tmp_path):
    own = trained(tmp_path, device="cuda", epochs=8)
    assert_same(own, trained(tmp_path, logits="whole", device="cuda", epochs=8, capture="off"))
