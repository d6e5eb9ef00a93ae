"""In the real transformers.Trainer, on a CPU."""

import pytest
import torch
from helpers.small_bert import arguments, bert, samples
from torch.utils.data import DataLoader, IterableDataset

from brim.errors import ConfigError

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed")

from brim.integrations.transformers import BrimCallback, attach  # noqa: E402


def trained(folder, callbacks=(), data=None, model=None, **more):
    made = model or bert()
    trainer = transformers.Trainer(
        made, arguments(folder, **more), train_dataset=samples() if data is None else data, callbacks=list(callbacks)
    )
    trainer.train()
    return trainer


def losses(trainer):
    return [(line["loss"], line["grad_norm"]) for line in trainer.state.log_history if "loss" in line]


def assert_same(one, other):
    assert losses(one) == losses(other) and len(losses(one)) >= 2
    for weight, other_weight in zip(one.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(weight, other_weight)


@pytest.mark.parametrize(
    "more", [{}, {"gradient_accumulation_steps": 3}, {"dataloader_drop_last": True, "max_grad_norm": 0.0}]
)
def test_a_training_is_the_same_with_and_without_it(tmp_path, more):
    callback = BrimCallback(card="NVIDIA H200", prefetch=True)
    plain, watched = trained(tmp_path, **more), trained(tmp_path, [callback], **more)
    assert_same(plain, watched)
    assert callback.forecast.card.name == "NVIDIA H200" and callback.forecast.batch_size == 4
    assert callback.forecast.parts["parameters"] >= sum(p.numel() * 4 for p in plain.model.parameters())


class Drawing(torch.utils.data.Dataset):
    """Samples that draw from the generator that dropout draws from as well."""

    def __init__(self):
        self.samples = samples()

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, place):
        return {**self.samples[place], "input_ids": torch.randint(0, 64, (8,))}


class Stream(IterableDataset):
    def __iter__(self):
        return iter(samples())


@pytest.mark.parametrize(
    ("data", "dispatches"), [(Drawing, None), (Stream, False), (Stream, None)], ids=["drawing", "stream", "dispatched"]
)
def test_it_reads_no_sample_that_the_training_does_not(tmp_path, data, dispatches):
    more = {"max_steps": 7, "accelerator_config": {"dispatch_batches": dispatches}}
    may_prefetch = data is Drawing or dispatches is False
    callback = BrimCallback(card="NVIDIA H200", prefetch=may_prefetch)
    plain = trained(tmp_path, data=data(), **more)
    watched = trained(tmp_path, [callback], data=data(), **more)
    assert_same(plain, watched)
    assert callback.forecast is not None and "share/data_wait" in watched.state.log_history[0]
    assert type(watched.callback_handler.train_dataloader.base_dataloader) is DataLoader


def test_a_stream_that_the_first_process_hands_out_is_not_prefetched(tmp_path):
    with pytest.raises(ConfigError, match="streams become one with dispatch_batches=False"):
        trained(tmp_path, [BrimCallback(prefetch=True)], data=Stream(), max_steps=1)


def test_shares_and_memory_are_beside_the_loss_and_evaluations_are_left_alone(tmp_path):
    trainer = transformers.Trainer(
        bert(), arguments(tmp_path, eval_strategy="epoch"), train_dataset=samples(), eval_dataset=samples(8),
        callbacks=[BrimCallback()],
    )  # fmt: skip
    trainer.train()
    lines = [line for line in trainer.state.log_history if "loss" in line]
    assert len(lines) == 5 and all(line["memory_process"] > 0 for line in lines)
    for line in lines:
        shares = {name: value for name, value in line.items() if name.startswith("share/")}
        assert set(shares) == {"share/data_wait", "share/compute", "share/rest"}
        assert sum(shares.values()) == pytest.approx(1, abs=1e-3)
    others = [line for line in trainer.state.log_history if "loss" not in line]
    assert others and not [name for line in others for name in line if name.startswith(("share/", "memory"))]


def test_a_run_that_is_resumed_in_mid_epoch_is_the_same(tmp_path):
    def resumed(folder, callbacks):
        more = {"save_strategy": "steps", "save_steps": 2, "num_train_epochs": 2}
        trained(folder, callbacks, max_steps=2, **more)
        trainer = transformers.Trainer(
            bert(), arguments(folder, max_steps=8, **more), train_dataset=samples(), callbacks=callbacks
        )
        trainer.train(resume_from_checkpoint=str(folder / "checkpoint-2"))
        return trainer

    callback = BrimCallback(card="NVIDIA H200", prefetch=True)
    plain, watched = resumed(tmp_path / "plain", []), resumed(tmp_path / "watched", [callback])
    assert_same(plain, watched)
    assert len(losses(watched)) == 8


class Reporter(transformers.TrainerCallback):
    def __init__(self):
        self.lines = []

    def on_log(self, args, state, control, logs=None, **parts):
        self.lines.append(dict(logs))


def test_attached_it_is_heard_by_the_callbacks_that_report(tmp_path):
    reporter = Reporter()
    trainer = transformers.Trainer(
        bert(), arguments(tmp_path, max_steps=2), train_dataset=samples(), callbacks=[reporter, BrimCallback()]
    )
    callback = attach(trainer)
    trainer.train()
    assert trainer.callback_handler.callbacks[0] is callback
    assert sum(isinstance(one, BrimCallback) for one in trainer.callback_handler.callbacks) == 1
    assert "share/data_wait" in reporter.lines[0]


class Fails(transformers.TrainerCallback):
    def on_step_end(self, args, state, control, **parts):
        if state.global_step == 2:
            raise RuntimeError("in the middle")


def test_an_error_in_the_middle_leaves_nothing_behind(tmp_path):
    callback, model = BrimCallback(card="NVIDIA H200", prefetch=True), bert()
    before = set(vars(model))
    with pytest.raises(RuntimeError, match="in the middle"):
        trained(tmp_path, [callback, Fails()], model=model)
    assert set(vars(model)) - before <= set(vars(trained(tmp_path, model=bert()).model))  # transformers' own alone
    assert not model._forward_pre_hooks and not model._forward_hooks
    assert_same(trained(tmp_path), trained(tmp_path, [callback]))  # the same object once more


def test_after_a_training_the_loader_is_what_it_was(tmp_path):
    trainer = trained(tmp_path, [BrimCallback(prefetch=True)], max_steps=3)
    assert type(trainer.callback_handler.train_dataloader.base_dataloader) is DataLoader


def test_a_forecast_that_fails_is_said_and_the_training_goes_on(tmp_path, capsys, monkeypatch):
    def fail(*arguments):
        torch.rand(3)
        raise KeyError("aten::unheard_of")

    plain = trained(tmp_path, max_steps=3, seed=7)
    monkeypatch.setattr("brim.integrations.transformers.step_forecast.trace_on", fail)
    callback = BrimCallback(card="NVIDIA H200")
    assert_same(plain, trained(tmp_path, [callback], max_steps=3, seed=7))
    assert callback.forecast is None
    assert "warning: memory forecast failed: KeyError: 'aten::unheard_of'; continuing" in capsys.readouterr().err


def test_without_a_gpu_or_a_card_there_is_no_forecast_and_no_word_of_it(tmp_path, capsys):
    callback = BrimCallback()
    trained(tmp_path, [callback], max_steps=1)
    assert callback.forecast is None and "forecast" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"card": "NVIDIA H2000"}, "H2000"),
        ({"forecast": "yes"}, "is True or False"),
        ({"prefetch": 1}, "is True or False"),
        ({"prefetching": True}, "did you mean prefetch=?"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_in_a_sentence(settings, part):
    with pytest.raises(ConfigError, match=part):
        BrimCallback(**settings)


def test_attach_takes_a_trainer_and_nothing_else():
    with pytest.raises(ConfigError, match=r"takes a transformers\.Trainer, and this is a Linear"):
        attach(torch.nn.Linear(2, 2))
