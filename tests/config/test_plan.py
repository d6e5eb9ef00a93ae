import sys

import pytest
import torch
from torch import nn

import brim
from brim.config import load_config
from brim.config.plan import job_of_function, tier_overrides
from brim.config.recommender_workload import RecommenderWorkload, build_model, read_data
from brim.engine.components.optimizer import make_optimizer
from brim.errors import ConfigError, ModelError
from brim.hardware.tiers import TIERS

SMALL = ["data.n_users=60", "data.n_items=40"]
CARD = "NVIDIA H200"
FILE = """\
import torch
from torch import nn


def job():
    return {"model": lambda: nn.Linear(8, 8), "batch": lambda n: ((torch.empty(n, 8),), {}), "batch_size": 16}


def with_everything():
    return {
        **job(), "loss": lambda out: out.sum(), "optimizer": lambda p: torch.optim.SGD(p, lr=0.1), "precision": "bf16",
        "clip_norm": 1.0, "sliceable": False,
    }


def with_more():
    return {**job(), "epochs": 3}


def with_less():
    return {"model": nn.Linear, "batch_size": 16}


def with_nothing():
    return None


number = 3
"""


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BRIM_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def module(tmp_path):
    """A file of the user's in the current folder; the name of its module."""
    name = f"described_in_{abs(hash(tmp_path)):x}"
    (tmp_path / f"{name}.py").write_text(FILE)
    yield name
    sys.modules.pop(name, None)


def job_of(*overrides):
    return RecommenderWorkload(load_config(None, [*SMALL, *overrides])).plan_job()


def built(config):
    data = read_data(config.data)
    return build_model(config.model, data.dataset, data.train)


def optimizers(*overrides):
    """The optimizer of the plan, and the one that the trainer would make."""
    config = load_config(None, [*SMALL, "model.name=bpr", *overrides])
    job = RecommenderWorkload(config).plan_job()
    settings = config.trainer.model_dump()
    model = built(config)
    planned = job["optimizer"](p for p in job["model"].parameters() if p.requires_grad)
    return planned, make_optimizer(settings["optimizer"], model, settings["lr"])


# Configurations


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["trainer.optimizer=SGD", "trainer.lr=0.5"],
        ["trainer.optimizer={name: AdamW, weight_decay: 0.25}"],
        ["trainer.optimizer={name: SGD, momentum: 0.9}"],
        ["trainer.optimizer={name: Adam, foreach: true}"],
        ["trainer.optimizer=Adadelta"],
    ],
    ids=str,
)
def test_the_optimizer_is_the_one_that_would_train(overrides):
    planned, real = optimizers(*overrides)
    assert type(planned) is type(real)
    ((group,), (expected,)) = (
        [{k: v for k, v in g.items() if k != "params"} for g in o.param_groups] for o in (planned, real)
    )
    assert group == expected
    assert [p.shape for p in planned.param_groups[0]["params"]] == [p.shape for p in real.param_groups[0]["params"]]


def test_batch_size_precision_and_clipping_are_those_of_the_configuration():
    job = job_of("train_ds.batch_size=96", "trainer.precision=bf16-mixed", "trainer.clip_norm=0.5", "model.name=bpr")
    assert (job["batch_size"], job["precision"], job["clip_norm"]) == (96, "bf16-mixed", 0.5)
    assert brim.plan(**job, card=CARD).forecast.precision == "bf16"


@pytest.mark.parametrize(("name", "overrides"), [("bpr", []), ("gpt2", ["model.hidden_dim=24"])])
def test_the_model_is_the_one_that_would_train(name, overrides):
    config = load_config(None, [*SMALL, f"model.name={name}", *overrides])
    planned, real = (
        RecommenderWorkload(config).plan_job()["model"].model,
        built(config),
    )
    assert type(planned) is type(real)
    assert [p.shape for p in planned.parameters()] == [p.shape for p in real.parameters()]
    assert [p.requires_grad for p in planned.parameters()] == [p.requires_grad for p in real.parameters()]


def test_the_loss_is_the_one_that_would_train():
    torch.manual_seed(0)
    job = job_of("model.name=bpr")
    args, kwargs = job["batch"](12)
    assert kwargs == {}
    loss = job["model"](*args)
    assert torch.equal(loss, job["model"].model.calculate_loss(*args))
    loss.backward()


@pytest.mark.parametrize("use_cache", ["true", "false"])
def test_the_cache_is_that_of_the_configuration(use_cache):
    job = job_of(f"model.use_cache={use_cache}")
    described = {name: job[name] for name in ("model", "batch", "optimizer", "batch_size")}
    made = brim.forecast(**described, card=CARD)
    assert (made.parts["cache"] > 0) == (use_cache == "true")


@pytest.mark.parametrize(("written", "meant"), [("null", None), ("true", True), ("false", False)])
def test_whether_it_may_be_sliced_is_that_of_the_configuration(written, meant):
    assert job_of("model.name=bpr", f"trainer.sliceable={written}")["sliceable"] is meant


@pytest.mark.matrix(2)
@pytest.mark.parametrize(
    ("overrides", "accumulation", "micro_batch"),
    [
        ([], 1, None),
        (["trainer.gradient_accumulation_steps=4"], 4, None),
        (["trainer.accumulate_grad_batches=3"], 3, None),
        (["trainer.micro_batch=16"], 1, 16),
        (["trainer.micro_batch=16", "trainer.gradient_accumulation_steps=2"], 2, 16),
    ],
    ids=str,
)
def test_batches_of_a_step_and_its_slices_are_those_of_the_configuration(overrides, accumulation, micro_batch):
    job = job_of("model.name=bpr", "train_ds.batch_size=96", *overrides)
    assert (job["accumulation"], job["micro_batch"]) == (accumulation, micro_batch)
    made = brim.plan(**job, card=CARD)
    assert (made.batch_size, made.micro_batch) == (96, micro_batch or 96)
    assert any(f"adds up {accumulation} batches" in reason for reason in made.reasons) == (accumulation > 1)


@pytest.mark.parametrize(
    ("overrides", "cache"),
    [(["model.name=bpr"], None), (["model.use_cache=true"], True), (["model.use_cache=false"], False)],
    ids=str,
)
def test_the_choice_of_the_cache_has_a_reason(overrides, cache):
    found, why = RecommenderWorkload(load_config(None, [*SMALL, *overrides])).cache_choice()
    assert found is cache
    assert why


def test_averaged_weights_are_planned_as_they_are_kept():
    plain, averaged = (
        brim.plan(**job_of("model.name=bpr", f"trainer.ema={ema}"), card=CARD).forecast for ema in ("null", 0.999)
    )
    assert plain.parts["average"] == 0 and averaged.parts["average"] == plain.parts["parameters"]


def test_weights_in_bf16_are_planned_as_they_are_trained():
    full, short = (
        brim.plan(**job_of("model.name=bpr", f"trainer.precision={p}"), card=CARD).forecast for p in ("32", "bf16-true")
    )
    assert short.precision == "bf16-true" and short.parts["parameters"] < 0.6 * full.parts["parameters"]


def test_precision_auto_can_be_planned_as_it_can_be_trained():
    assert brim.plan(**job_of("model.name=bpr", "trainer.precision=auto"), card=CARD).slices == 1


# Tiers


@pytest.mark.parametrize(("tier", "batch_size", "cached"), [("large", 2048, True), ("medium", 1024, True),
                                                            ("small", 512, False)])  # fmt: skip
def test_a_tier_decides_batch_and_cache(tier, batch_size, cached):
    config = load_config(None, tier_overrides(tier))
    assert (config.train_ds.batch_size, config.model.use_cache) == (batch_size, cached)


def test_no_tier_decides_nothing():
    assert tier_overrides(None) == []


@pytest.mark.parametrize("tier", ["tiny", "", "LARGE"])
def test_a_tier_that_does_not_exist_is_refused_with_those_that_do(tier):
    with pytest.raises(ConfigError, match=f"there is no tier '{tier}'") as refused:
        tier_overrides(tier)
    assert all(f"{name}:" in str(refused.value) for name in TIERS)


# Functions


def test_a_function_in_a_file_of_the_current_folder(module):
    job = job_of_function(f"{module}:job")
    assert set(job) == {"model", "batch", "batch_size"}
    assert brim.plan(**job, card=CARD).micro_batch == 16


def test_everything_that_a_plan_takes(module):
    made = brim.plan(**job_of_function(f"{module}:with_everything"), card=CARD)
    assert made.forecast.precision == "bf16"
    assert made.forecast.parts["optimizer"] == 0


@pytest.mark.parametrize(
    ("function", "part"),
    [
        ("absent", "has no function 'absent'"),
        ("", "has no function ''"),
        ("number", "has no function 'number'"),
        ("with_nothing", "must return a dictionary with model, batch and batch_size"),
        ("with_less", "must return a dictionary with model, batch and batch_size"),
        ("with_more", "'epochs' is not an argument of a plan; known are accumulation, batch,"),
    ],
)
def test_a_function_that_cannot_be_used_is_one_sentence(module, function, part):
    with pytest.raises(ConfigError) as refused:
        job_of_function(f"{module}:{function}")
    assert part in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_module_that_does_not_exist_is_named_with_where_it_was_looked_for(tmp_path):
    with pytest.raises(ConfigError, match="there is no module 'absent_module'") as refused:
        job_of_function("absent_module:job")
    assert str(tmp_path) in str(refused.value)


def test_a_file_in_the_place_of_a_module_is_told_apart():
    with pytest.raises(ConfigError, match=r"workload=src/train.py:build; .* src.train:build"):
        job_of_function("src/train.py:build")


def test_a_module_that_needs_one_that_does_not_exist_names_that_one(module, tmp_path):
    (tmp_path / f"{module}.py").write_text("import absent_library\n")
    with pytest.raises(ConfigError, match="there is no module 'absent_library'"):
        job_of_function(f"{module}:job")


@pytest.mark.parametrize(
    ("source", "what", "line", "error"),
    [
        ("def job():\n    x = 1\n    raise KeyError('width')\n", ":job", 3, "KeyError: 'width'"),
        ("def job():\n    raise AssertionError\n", ":job", 2, "AssertionError"),
        ("def job():\n    raise ValueError('two\\nlines')\n", ":job", 2, "ValueError: two"),
        ("import torch\n\ndef job():\n    torch.ones(2) @ torch.ones(3)\n", ":job", 4, "RuntimeError: "),
        ("x = 1\ny = 1 / 0\n", "importing ", 2, "ZeroDivisionError: division by zero"),
        ("raise ValueError('odd')\n", "importing ", 1, "ValueError: odd"),
        ("def job(:\n", "importing ", 1, "SyntaxError: "),
    ],
    ids=str,
)
def test_an_error_of_the_user_is_told_with_its_line(module, tmp_path, source, what, line, error):
    file = tmp_path / f"{module}.py"
    file.write_text(source)
    with pytest.raises(ModelError) as refused:
        job_of_function(f"{module}:job")
    assert f"failed at {file}:{line}: {error}" in str(refused.value)
    assert what in str(refused.value)
    assert "\n" not in str(refused.value)
    assert refused.value.exit_code == 2


def test_an_error_of_brim_in_a_function_is_told_as_it_is(module, tmp_path):
    (tmp_path / f"{module}.py").write_text("import brim\ndef job():\n    brim.get_optimal_batch_size(-1)\n")
    with pytest.raises(ConfigError, match=r"^num_gpus=-1 must be"):
        job_of_function(f"{module}:job")


def test_a_function_may_import_from_its_folder_when_it_is_called(module, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    (tmp_path / f"{module}_models.py").write_text("from torch import nn\nNet = nn.Identity\n")
    (tmp_path / f"{module}.py").write_text(
        f"def job():\n    from {module}_models import Net\n    return dict(model=Net, batch=None, batch_size=1)\n"
    )
    assert job_of_function(f"{module}:job")["model"] is nn.Identity


@pytest.mark.parametrize("named", [":job", ".relative:job"])
def test_a_name_that_is_no_module_is_refused(named):
    with pytest.raises(ConfigError):
        job_of_function(named)
