import pytest
import torch
from helpers.callbacks import StopAt
from safetensors.torch import load_file

from brim import Trainer
from brim.errors import ConfigError
from brim.workloads import load
from brim.workloads.recommender import EmbeddedDataset, EvalDataLoader, GPT2RecommenderEnhanced, TrainDataLoader
from brim.workloads.recommender.stages import Stage, Stages, staged_optimizer

FROZEN = Stage(2, use_cache=True, freeze_gpt2=True, lr=0.5, encoder_lr=0.5)
TRAINED = Stage(2, use_cache=False, freeze_gpt2=False, lr=0.2, encoder_lr=0.01)
OPTIMIZER = {"name": "SGD", "momentum": 0.9}


@pytest.fixture(scope="module")
def dataset():
    return EmbeddedDataset(30, 40)


@pytest.fixture
def build(dataset):
    def build(**arguments):
        torch.manual_seed(0)
        return GPT2RecommenderEnhanced(30, 40, 8, dataset, hidden_dim=8, **arguments)

    return build


@pytest.fixture
def trainer_of(dataset, tmp_path):
    """A trainer with stages; no dropout, so that its weights can be compared with those of another loop."""

    def trainer_of(model, stages, run="run", callbacks=(), patience=None, **settings):
        without_dropout(model)
        train, valid = dataset.get_split_data("train"), dataset.get_split_data("validation")
        loaders = TrainDataLoader(train, 128, device="cpu"), EvalDataLoader(valid, train, device="cpu")
        return Trainer(
            model,
            *loaders,
            device="cpu",
            threads=1,
            lr=stages[0].lr,
            optimizer=staged_optimizer(OPTIMIZER, stages[0].lr),
            **{"epochs": sum(stage.epochs for stage in stages), **settings},
            run_dir=tmp_path / run,
            restore_best=False,
            callbacks=[Stages(model, stages, patience), *callbacks],
        )

    return trainer_of


def without_dropout(model):
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if hasattr(module, "attn_dropout") and isinstance(module.attn_dropout, float):
            module.attn_dropout = 0.0


def weights(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_same(left, right, **tolerance):
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        torch.testing.assert_close(tensor, right[name], msg=lambda told, name=name: f"{name}: {told}", **tolerance)


@pytest.mark.matrix(1)
@pytest.mark.parametrize("lora", [None, 2])
def test_two_stages_train_what_a_plain_loop_does(build, trainer_of, dataset, lora):
    staged, plain = build(lora=lora), build(lora=lora)
    assert trainer_of(staged, [FROZEN, TRAINED]).fit().ended == "done"
    without_dropout(plain)
    encoder = list(plain.encoder.parameters())
    held = {id(parameter) for parameter in encoder}
    rest = [parameter for parameter in plain.parameters() if id(parameter) not in held]
    optimizer = torch.optim.SGD([{"params": rest}, {"params": encoder}], lr=0.1, momentum=0.9)
    loader = TrainDataLoader(dataset.get_split_data("train"), 128, device="cpu")
    for epoch, stage in enumerate([FROZEN, FROZEN, TRAINED, TRAINED]):
        plain.use_cache, plain.freeze_gpt2 = stage.use_cache, stage.freeze_gpt2
        optimizer.param_groups[0]["lr"], optimizer.param_groups[1]["lr"] = stage.lr, stage.encoder_lr
        for batch in loader.batches(0, epoch):
            optimizer.zero_grad()
            plain.calculate_loss(batch).backward()
            optimizer.step()
    before = weights(build(lora=lora))
    moved = [name for name, tensor in weights(staged).items() if not torch.equal(tensor, before[name])]
    trained = [name for name in moved if name.startswith("encoder.")]
    assert trained
    assert all(".lora_" in name for name in trained) == (lora is not None)
    assert_same(weights(staged), weights(plain), atol=1e-5, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("stopped_at", [3, 5, 9])  # in the first stage, within the epoch that begins the second, later
def test_a_run_resumed_in_either_stage_ends_where_it_would_have(build, trainer_of, stopped_at):
    whole, parted, resumed = build(), build(), build()
    trainer_of(whole, [FROZEN, TRAINED], "whole").fit()
    trainer_of(parted, [FROZEN, TRAINED], "parted", [StopAt(stopped_at)], checkpoint_every=1).fit()
    trainer = trainer_of(resumed, [FROZEN, TRAINED], "parted")
    trainer.fit(resume="auto")
    assert_same(weights(resumed), weights(whole), atol=0, rtol=0)
    assert not resumed.use_cache
    assert not resumed.freeze_gpt2


@pytest.mark.slow
def test_a_stage_ends_when_it_has_waited_and_so_does_the_run(build, trainer_of, capsys):
    long = [Stage(50, True, True, 1e-9, 1e-9), Stage(50, False, True, 1e-9, 1e-9)]
    result = trainer_of(build(), long, patience=2).fit()
    assert result.epochs == 6  # each: one that is the best, and two that are not better
    assert "stage 2 of 2: texts encoded in every step, encoder frozen" in capsys.readouterr().err


def test_what_is_thawed_is_trained_in_training_mode(build, trainer_of):
    model, modes = build(), []
    plain = model.encoder.forward
    model.encoder.forward = lambda tokens: (
        modes.append((torch.is_grad_enabled(), model.encoder.training)) or plain(tokens)
    )
    trainer_of(model, [Stage(1, True, True, 0.1, 0.1), Stage(1, False, False, 0.1, 0.1)]).fit()
    assert (True, True) in modes
    assert (True, False) not in modes
    assert (False, True) not in modes


@pytest.mark.parametrize("rule", ["lr_of", "layer_decay"])
def test_rates_of_the_optimizers_own_are_refused(rule):
    with pytest.raises(ConfigError, match="stages: have lr and encoder_lr"):
        staged_optimizer({"name": "AdamW", rule: 0.5}, 0.1)


def test_texts_read_in_parts_and_again_give_the_same_gradients(build, dataset):
    whole = build(use_cache=False, freeze_gpt2=False).train()
    parted = build(use_cache=False, freeze_gpt2=False, tokens_at_once=500).train()
    batch = next(TrainDataLoader(dataset.get_split_data("train"), 8, device="cpu").batches(0, 0))
    for model in (whole, parted):
        without_dropout(model)
        model.calculate_loss(batch).backward()
    for left, right in zip(whole.parameters(), parted.parameters(), strict=True):
        torch.testing.assert_close(left.grad, right.grad, atol=1e-6, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lora", "parts"), [(None, {"micro_batch": 20}), (2, {"micro_batch": 20, "checkpointing": True})]
)
def test_an_encoder_that_is_trained_in_micro_batches_learns_the_same(build, trainer_of, lora, parts):
    whole, parted = build(lora=lora, use_cache=False), build(lora=lora, use_cache=False)
    stages = [Stage(1, False, False, 0.2, 0.01)]
    trainer_of(whole, stages, "whole", max_steps=1).fit()
    trainer_of(parted, stages, "parted", max_steps=1, **parts).fit()
    assert_same(weights(parted), weights(whole), atol=1e-5, rtol=1e-4)


def test_a_frozen_encoder_is_in_one_file_that_all_checkpoints_share(build, trainer_of, tmp_path):
    model = build()
    trainer_of(model, [FROZEN]).fit()
    folder = tmp_path / "run" / "checkpoints"
    kept = list(folder.glob("*/model.safetensors"))
    assert len(kept) > 1
    for file in kept:
        assert not [name for name in load_file(file) if name.startswith("encoder.")]
    (shared,) = (folder / "frozen").glob("*.safetensors")
    assert all(name.startswith("encoder.") for name in load_file(shared))
    loaded = load(tmp_path / "run")
    assert_same(weights(loaded), weights(model), atol=0, rtol=0)


@pytest.mark.gpu
def test_two_stages_on_a_gpu_train_what_they_do_on_the_cpu(build, trainer_of, dataset, tmp_path):
    on_cpu, on_gpu = build(), build().cuda()
    trainer_of(on_cpu, [FROZEN, TRAINED], "cpu").fit()
    without_dropout(on_gpu)
    train, valid = dataset.get_split_data("train"), dataset.get_split_data("validation")
    Trainer(
        on_gpu,
        TrainDataLoader(train, 128, device="cuda"),
        EvalDataLoader(valid, train, device="cuda"),
        device="cuda",
        lr=FROZEN.lr,
        optimizer=staged_optimizer(OPTIMIZER, FROZEN.lr),
        epochs=4,
        run_dir=tmp_path / "gpu",
        restore_best=False,
        callbacks=[Stages(on_gpu, [FROZEN, TRAINED])],
    ).fit()
    on_gpu = {name: tensor.cpu() for name, tensor in weights(on_gpu).items()}
    assert_same(on_gpu, weights(on_cpu), atol=1e-3, rtol=1e-2)
