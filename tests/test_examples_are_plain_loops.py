"""The examples train what the loop that one would write by hand trains, on the CPU to the bit."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

EXAMPLES = Path(__file__).parents[1] / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def weights(model):
    return torch.cat([value.detach().cpu().double().flatten() for value in model.state_dict().values()])


def plain_loop(model, loader, compute, lr, epochs, decay=None):
    """The same batches in the same order, and nothing of brim's."""
    torch.manual_seed(0)
    model.train()
    averaged = None if decay is None else AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr, fused=True)
    for epoch in range(epochs):
        for batch in loader.batches(0, epoch):
            optimizer.zero_grad()
            compute(model, batch).backward()
            optimizer.step()
            if averaged is not None:
                averaged.update_parameters(model)
    return weights(model if averaged is None else averaged.module)


HUGGING_FACE = {"bert_classifier": {"sentences": 200}, "lora_language_model": {"bytes_read": 20_000}}


@pytest.mark.matrix(1)
@pytest.mark.parametrize("name", HUGGING_FACE)
def test_a_hugging_face_model_is_trained_as_by_hand(name, tmp_path):
    module = example(name)
    trainer = module.make_trainer(
        **HUGGING_FACE[name], epochs=2, device="cpu", threads=1, run_dir=tmp_path / "run", log_every=1
    )
    trainer.eval_data = None
    trainer.fit()
    by_hand = plain_loop(
        module.make_model(), trainer.train_data, lambda model, batch: model(**batch).loss, trainer.settings.lr, epochs=2
    )
    assert torch.equal(weights(trainer.model), by_hand)


def test_the_contrastive_model_is_trained_as_by_hand(tmp_path):
    module = example("contrastive")
    trainer = module.make_trainer(1_024, epochs=2, device="cpu", threads=1, run_dir=tmp_path / "run")
    torch.manual_seed(0)
    model = module.Pairs()
    trainer.fit()
    by_hand = plain_loop(
        model, trainer.train_data, lambda model, batch: module.contrast(*module.encode(model, batch), model), 3e-3, 2
    )
    assert torch.equal(weights(trainer.model), by_hand)


def test_a_regression_from_a_data_frame_is_trained_as_by_hand(tmp_path):
    module = example("tabular")
    trainer = module.make_trainer(400, epochs=2, device="cpu", threads=1, run_dir=tmp_path / "run")
    trainer.eval_data = None
    torch.manual_seed(0)
    model = module.Prices()
    trainer.fit()
    by_hand = plain_loop(
        model,
        trainer.train_data,
        lambda model, batch: nn.functional.mse_loss(model(batch[0]), batch[1]),
        3e-3,
        epochs=2,
    )
    assert torch.equal(weights(trainer.model), by_hand)


def test_pictures_with_random_shifts_mixup_and_averaged_weights_are_trained_as_by_hand(tmp_path):
    module = example("image_classifier")
    trainer = module.make_trainer(300, epochs=2, device="cpu", threads=1, run_dir=tmp_path / "run")
    trainer.eval_data = None
    trainer.fit()
    by_hand = plain_loop(module.make_model(), trainer.train_data, module.mixed_up, 3e-3, epochs=2, decay=0.99)
    assert torch.equal(weights(trainer.model), by_hand)


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short(script):
    assert len(script.read_text().splitlines()) <= 60


def test_the_contrastive_model_is_the_same_where_its_batch_is_split(tmp_path):
    settings = {"epochs": 1, "device": "cpu", "threads": 1}
    whole, split = (
        example("contrastive").make_trainer(512, run_dir=tmp_path / f"run-{size}", micro_batch=size, **settings)
        for size in ("auto", 64)
    )
    whole.fit(), split.fit()
    off = weights(split.model) - weights(whole.model)
    assert off.norm() <= 1e-4 * weights(whole.model).norm()
    assert "another training" not in (tmp_path / "run-64" / "log.txt").read_text()


def test_two_steps_in_turns_are_the_loop_by_hand():
    module = example("gan")
    maker, judge = module.train(steps=20, batch=32)
    by_hand = gan_by_hand(module, steps=20, batch=32)
    assert torch.equal(weights(maker), by_hand[0]) and torch.equal(weights(judge), by_hand[1])


def gan_by_hand(module, steps, batch):
    maker, judge = module.make_networks()
    of_maker, of_judge = (torch.optim.Adam(net.parameters(), lr=1e-3, betas=(0.5, 0.9)) for net in (maker, judge))
    generator, loss = torch.Generator().manual_seed(0), nn.BCEWithLogitsLoss()
    for _ in range(steps):
        real, noise = module.real_points(batch, generator), torch.randn(batch, module.NOISE, generator=generator)
        right, wrong = judge(real), judge(maker(noise).detach())
        of_judge.zero_grad()
        (loss(right, torch.ones_like(right)) + loss(wrong, torch.zeros_like(wrong))).backward()
        of_judge.step()
        said = judge(maker(noise))
        of_maker.zero_grad()
        loss(said, torch.ones_like(said)).backward()
        of_maker.step()
    return weights(maker), weights(judge)
