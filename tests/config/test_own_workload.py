import json
import sys
from pathlib import Path

import pytest
import torch
from helpers.projects import CONFIG, TRAIN, fresh_imports, write_project
from torch import nn

import brim
from brim.config import load_config
from brim.config.bench import bench_step
from brim.config.own_workload import OwnWorkload, checked_arguments
from brim.errors import ConfigError, ModelError

CARD = "NVIDIA H200"


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BRIM_CACHE", str(tmp_path / "cache"))
    with fresh_imports():
        yield write_project(tmp_path)


def workload(*overrides):
    return OwnWorkload(load_config("my.yaml", overrides))


def returning(project, text):
    """A workload whose function ends in this line."""
    code = TRAIN[: TRAIN.index("    return")] + f"    {text}\n"
    write_project(project, code)
    sys.modules.pop("train", None)  # of before
    return workload()


# A run


def test_a_run_is_what_the_trainer_makes_of_the_same_in_python(project):
    outcome = workload("params.hidden=5", "trainer.run_dir=by_config").run()
    names = {}
    exec((project / "train.py").read_text(), names)
    torch.manual_seed(0)
    parts = names["build"](hidden=5)
    data = brim.Loader(parts.pop("train_data"), 8)
    trainer = brim.Trainer(train_data=data, **parts, epochs=2, lr=0.05, device="cpu", threads=1, run_dir="by_hand")
    result = trainer.fit()
    assert outcome.result.metrics == result.metrics
    assert outcome.result.steps == result.steps == 10
    loaded = brim.load("by_config", model=names["build"](hidden=5)["model"])
    for ours, theirs in zip(loaded.parameters(), trainer.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_the_outcome_has_the_metrics_of_the_model_and_by_what_it_was_judged(project):
    outcome = workload().run()
    assert outcome.judged_by == "evaluation"
    assert list(outcome.table) == ["Sequential"]
    assert outcome.columns == tuple(outcome.table["Sequential"]) == ("loss",)
    tested = returning(project, "return {'model': model, 'train_data': (x, y), 'test_data': (x, y), "
                                "'loss_fn': nn.MSELoss()}").run()  # fmt: skip
    assert tested.judged_by == "test"


def test_without_data_to_judge_by_there_is_no_table(project):
    own = returning(project, "return {'model': model, 'train_data': (x, y), 'loss_fn': nn.MSELoss()}")
    assert own.run().table == {}


def test_a_tuple_of_model_and_data_is_enough_for_a_model_with_its_own_loss(project):
    code = """
import torch
from torch import nn

class Mean(nn.Linear):
    def calculate_loss(self, batch):
        return self(batch[0]).square().mean()

def build():
    return Mean(3, 1), (torch.randn(16, 3),)
"""
    write_project(project, code)
    assert workload().run().result.steps == 4


def test_the_run_folder_holds_all_settings_and_goes_on_from_there():
    first = workload("params.hidden=5", "trainer.run_dir=run").run()
    config = load_config("run/config.yaml")
    assert config.params == {"hidden": 5, "samples": 40, "noise": 0.1}
    assert config.trainer.lr == 0.05
    again = OwnWorkload(load_config("run/config.yaml", ["trainer.epochs=4"])).run(resume="run")
    assert (first.result.steps, again.result.steps) == (10, 20)
    whole = workload("params.hidden=5", "trainer.epochs=4", "trainer.run_dir=whole").run()
    assert again.result.metrics == whole.result.metrics


def test_what_the_function_decides_for_the_trainer_is_used_and_can_be_resumed(project):
    text = "return {'model': model, 'train_data': (x, y), 'loss_fn': nn.MSELoss(), " \
           "'optimizer': torch.optim.SGD(model.parameters(), 0.07), 'scheduler': 'cosine'}"  # fmt: skip
    (project / "my.yaml").write_text(CONFIG.replace(" lr: 0.05,", ""))
    code = TRAIN[: TRAIN.index("    return")] + f"    {text}\n"
    write_project(project, code, (project / "my.yaml").read_text())
    outcome = workload("trainer.run_dir=run").run()
    lines = [json.loads(line) for line in (outcome.result.run / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["lr"] < 0.07
    resumed = OwnWorkload(load_config("run/config.yaml", ["trainer.epochs=3"])).run(resume="run")
    assert resumed.result.steps == 15


def test_data_settings_act_on_all_three_kinds_of_data(project):
    own = returning(project, "return {'model': model, 'train_data': (x, y), 'eval_data': (x, y), 'test_data': (x, y), "
                             "'loss_fn': nn.MSELoss()}")  # fmt: skip
    config = own.config.model_copy(
        update={"valid_ds": own.config.valid_ds.model_copy(update={"batch_size": 3}),
                "test_ds": own.config.test_ds.model_copy(update={"batch_size": 7})}
    )  # fmt: skip
    given = OwnWorkload(config).build()
    assert [given[name].batch_size for name in ("train_data", "eval_data", "test_data")] == [8, 3, 7]


def test_weights_follow_the_seed():
    first, again, other = (
        workload(f"trainer.seed={seed}").build()["model"][0].weight for seed in (3, 3, 4)
    )  # fmt: skip
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


# Mistakes


@pytest.mark.parametrize(
    ("text", "error", "part"),
    [
        ("return None", ConfigError, "train.py:build returned nothing; it must return a mapping such as"),
        ("return model", ConfigError, "train.py:build returned a Sequential"),
        ("return model, x, y", ConfigError, "train.py:build returned a tuple of 3"),
        ("return {'model': model}", ConfigError, "returned no 'train_data'"),
        ("return {'modl': model, 'train_data': x}", ConfigError, "returned 'modl', no argument of brim.Trainer; did "
         "you mean 'model'?"),
        ("return {'model': 3, 'train_data': x}", ConfigError, "returned an int (3) as the model"),
        ("return {'model': model, 'train_data': x, 'lr': 1}", ConfigError,
         "trainer.lr is set, and train.py:build returns 'lr' as well; leave one of them out"),
        ("raise KeyError('path')", ModelError, "train.py:build failed at"),
    ],
)  # fmt: skip
def test_what_a_function_cannot_return_is_one_sentence_and_nothing_is_written(project, text, error, part):
    own = returning(project, text)
    with pytest.raises(error) as refused:
        own.run()
    assert part in str(refused.value)
    assert not (project / "runs").exists()


def test_an_error_of_the_function_names_its_line(project):
    own = returning(project, "raise KeyError('path')")
    with pytest.raises(ModelError, match=r"train\.py:10: KeyError: 'path'"):
        own.build()


def test_arguments_are_those_of_the_trainer():
    model = nn.Linear(1, 1)
    assert checked_arguments({"model": model, "train_data": [1], "patience": 3}, "a:b")["patience"] == 3


# Plans and benches


def test_the_plan_is_of_the_model_loss_and_batch_that_would_train():
    job = workload("params.hidden=64", "trainer.optimizer=SGD").plan_job()
    assert job["batch_size"] == 8
    args, _ = job["batch"](12)
    assert [part.shape for part in args[0]] == [(12, 3), (12, 1)]
    made = brim.plan(**job, card=CARD)
    assert made.batch_size == 8
    adam = brim.plan(**workload("params.hidden=64", "trainer.optimizer=Adam").plan_job(), card=CARD)
    assert adam.forecast.parts["optimizer"] > made.forecast.parts["optimizer"]


def test_the_plan_knows_an_optimizer_that_the_function_made(project):
    (project / "my.yaml").write_text(CONFIG)
    own = returning(project, "return {'model': model, 'train_data': (x, y), 'loss_fn': nn.MSELoss(), "
                             "'optimizer': torch.optim.SGD(model.parameters(), 0.1)}")  # fmt: skip
    assert brim.plan(**own.plan_job(), card=CARD).forecast.parts["optimizer"] == 0


@pytest.mark.parametrize("data", ["[(x, y), (x, y)]", "torch.utils.data.DataLoader(list(zip(x, y)), batch_size=5)"])
def test_the_batch_of_a_plan_is_that_of_the_data_where_it_makes_its_own(project, data):
    (project / "my.yaml").write_text(CONFIG)
    code = TRAIN[: TRAIN.index("    return")]
    code += f"    return {{'model': model, 'train_data': {data}, 'loss_fn': nn.MSELoss()}}\n"
    write_project(project, code, CONFIG.replace("{batch_size: 8}", "{}"))
    assert workload().plan_job()["batch_size"] == (40 if data.startswith("[") else 5)


def test_steps_are_measured():
    found = bench_step(load_config("my.yaml", ["trainer.compile=eager"]), 0.1)
    assert found.batch_size == 8
    assert found.ways[0].samples_per_second > 0
    assert not Path("runs").exists()


def test_an_optimizer_of_the_functions_is_left_as_it_is_when_steps_are_measured(project):
    returning(project, "return {'model': model, 'train_data': (x, y), 'loss_fn': nn.MSELoss(), "
                       "'optimizer': torch.optim.SGD(model.parameters(), 0.01)}")  # fmt: skip
    found = bench_step(load_config("my.yaml", ["trainer.compile=eager"]), 0.1)
    assert found.ways[1].reason == "the workload brings its own optimizer"
    assert found.ways[0].samples_per_second > 0


def test_a_tier_decides_the_batch_where_the_section_does_not(project):
    write_project(project, config=CONFIG.replace("train_ds: {batch_size: 8}\n", ""))
    assert workload("trainer.tier=small").build_trainer().train_data.batch_size == 512
    with pytest.raises(ConfigError, match="tier='small' is batches of 512, and train_data has batches of 8"):
        workload("trainer.tier=small", "train_ds.batch_size=8").build_trainer()
