import json
import math

import pytest
import torch

import brim
from brim.config import load_config
from brim.config.recommender_workload import RecommenderWorkload, with_whole_batches
from brim.errors import BrimError, ConfigError, DataError, RunFolderError
from brim.workloads.recommender import EmbeddedDataset

pytestmark = pytest.mark.usefixtures("own_folder")

SMALL = [
    "data.n_users=60", "data.n_items=40", "model.name=bpr", "trainer.device=cpu", "trainer.threads=1",
    "trainer.epochs=2",
]  # fmt: skip


def run(*overrides, resume=None):
    return RecommenderWorkload(load_config(None, [*SMALL, *overrides])).run(resume)


def test_a_run_ends_with_test_metrics_of_the_model_beside_popularity():
    outcome = run()
    assert list(outcome.table) == ["BPR (ids)", "popularity", "EASE"]
    assert outcome.table["BPR (ids)"] == outcome.result.metrics
    assert outcome.table["BPR (ids)"].keys() == outcome.table["popularity"].keys()
    assert {"recall@10", "recall@20", "ndcg@10", "ndcg@20"} <= outcome.table["BPR (ids)"].keys()
    assert all(0 < value <= 1 for row in outcome.table.values() for value in row.values())


def test_the_model_that_reads_texts_trains_is_loaded_and_says_what_tiny_is(capsys):
    outcome = run("model.name=gpt2")
    assert list(outcome.table) == ["text + ids (gpt2=tiny)", "popularity", "EASE"]
    assert "random weights" in capsys.readouterr().err
    model, item_vectors = brim.load(outcome.result.run), brim.load(outcome.result.run).item_vectors()
    assert torch.allclose(model.item_vectors(), item_vectors)


def test_the_page_of_a_run_holds_its_table(tmp_path):
    page = (run("trainer.run_dir=run").result.run / "report.html").read_text()
    assert "popularity" in page
    assert "memory_process" in page


def test_movielens_without_its_folder_is_refused_with_where_to_get_it():
    with pytest.raises(ConfigError, match="brim data ml-1m"):
        run("data.name=ml-1m")


def test_the_run_folder_holds_the_configuration_that_was_run():
    config = load_config(None, [*SMALL, "trainer.run_dir=a/run"])
    outcome = RecommenderWorkload(config).run()
    assert outcome.result.run.as_posix() == "a/run"
    assert load_config("a/run/config.yaml") == config


def test_a_run_without_a_run_dir_makes_one_named_after_the_model(tmp_path):
    assert run().result.run.name.endswith("-bpr")
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_steps_follow_from_batch_size_and_epochs():
    pairs = len(EmbeddedDataset(60, 40).get_split_data("train"))
    assert run("train_ds.batch_size=100000").result.steps == 2
    assert run("train_ds.batch_size=50").result.steps == 2 * math.ceil(pairs / 50)


def test_max_steps_ends_the_run_in_the_middle_of_an_epoch():
    assert run("train_ds.batch_size=50", "trainer.max_steps=3").result.steps == 3


def test_the_same_configuration_gives_the_same_metrics_and_another_seed_does_not():
    first, again, other = run(), run(), run("trainer.seed=1")
    assert first.table == again.table
    assert first.table["BPR (ids)"] != other.table["BPR (ids)"]
    assert first.table["popularity"] == other.table["popularity"]


@pytest.mark.parametrize("override", ["data.seed=1", "model.embed_dim=3", "train_ds.shuffle=false", "trainer.lr=0.1"])
def test_a_setting_reaches_the_training(override):
    in_batches = "train_ds.batch_size=50"
    assert run(in_batches, override).table["BPR (ids)"] != run(in_batches).table["BPR (ids)"]


def test_cut_offs_are_those_of_the_configuration():
    assert {"recall@3", "ndcg@3"} <= run("eval_ds.k=[3]").table["BPR (ids)"].keys()
    assert "recall@10" not in run("eval_ds.k=[3]").table["BPR (ids)"]


def test_a_resumed_run_ends_as_one_that_was_never_stopped():
    in_batches = "train_ds.batch_size=50"
    whole = run(in_batches, "trainer.epochs=4")
    half = run(in_batches, "trainer.epochs=2", "trainer.run_dir=half")
    resumed = run(in_batches, "trainer.epochs=4", resume=half.result.run)
    assert resumed.result.steps == whole.result.steps == 2 * half.result.steps
    assert resumed.table == whole.table


def test_metrics_of_a_resumed_run_go_on_in_the_same_file(tmp_path):
    run("trainer.run_dir=a")
    run("trainer.epochs=3", resume=tmp_path / "a")
    losses = [json.loads(line) for line in (tmp_path / "a/metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in losses if "loss" in line] == [1, 2, 3]


def test_the_trained_model_of_the_run_can_be_loaded():
    outcome = run()
    assert type(brim.load(outcome.result.run)).__name__ == "BPR"


def test_a_folder_that_holds_a_run_is_not_overwritten(tmp_path):
    run("trainer.run_dir=a")
    before = (tmp_path / "a/metrics.jsonl").read_bytes()
    with pytest.raises(RunFolderError, match="already holds a run"):
        run("trainer.run_dir=a")
    assert (tmp_path / "a/metrics.jsonl").read_bytes() == before


def test_a_folder_without_a_run_cannot_be_resumed(tmp_path):
    with pytest.raises(RunFolderError, match="is not a run folder"):
        run(resume=tmp_path)


@pytest.mark.parametrize("precision", ["32", "bf16-mixed", "bf16-true", "auto"])
def test_a_precision_that_the_cpu_has_is_trained_in(precision):
    assert run(f"trainer.precision={precision}").result.steps == 2


@pytest.mark.parametrize(
    ("override", "error", "part"),
    [
        ("data.split_ratio=[]", ConfigError, "three shares"),
        ("data.split_ratio=[0, 1, 1]", ConfigError, "three shares"),
        ("data.split_ratio=[1, -1, 1]", ConfigError, "three shares"),
        ("data.split_ratio=[.nan, 1, 1]", ConfigError, "three shares"),
        ("data.split_ratio=[1, 0, 0]", DataError, "larger share"),
        ("eval_ds.k=[0]", ConfigError, "greater than or equal to 1"),
        ("trainer.device=gpu", ConfigError, "is not a device"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(tmp_path, override, error, part):
    with pytest.raises(error, match=part):
        run(override)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "override",
    [
        "trainer.precision=16-mixed",
        "trainer.optimizer=Adamm",
        "trainer.accumulate_grad_batches=0",
        "trainer.compile=nonsense",
        "trainer.scheduler={warmup: .nan}",
        "trainer.scheduler={warmup: .inf}",
        f"trainer.seed={10**25}",
        f"data.seed={10**25}",
        r'trainer.run_dir="a\0b"',
        r'trainer.run_dir="\ud800"',
        f"trainer.run_dir={'x' * 300}",
        "train_ds.drop_last=true",
    ],
)
def test_settings_that_cannot_work_are_refused_and_leave_nothing(tmp_path, override):
    with pytest.raises(BrimError):
        run(override)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ratio", ["[1, .nan, 1]", "[.inf, 1, 1]"])
def test_shares_that_are_not_finite_are_refused_as_shares(ratio):
    with pytest.raises(ConfigError, match="split_ratio"):
        run(f"data.split_ratio={ratio}")


@pytest.mark.parametrize(("samples", "drop_last"), [(63, False), (64, True), (1000, True)])
def test_all_batches_are_whole_unless_there_is_less_than_one(samples, drop_last):
    config = load_config(None, ["train_ds.batch_size=64"])
    assert with_whole_batches(config, samples).train_ds.drop_last is drop_last
    assert config.train_ds.drop_last is False


def test_validation_and_test_may_have_batches_of_their_own():
    overrides = [*SMALL, "eval_ds.batch_size=9", "valid_ds.batch_size=7", "trainer.device=cpu"]
    trainer = RecommenderWorkload(load_config(None, overrides)).build_trainer()
    assert (trainer.eval_data.batch_size, trainer.test_data.batch_size) == (7, 9)


def test_settings_of_workers_that_the_recommender_does_not_have_are_said_to_do_nothing(capsys):
    run("train_ds.num_workers=4", "train_ds.pin_memory=true", "valid_ds.prefetch_factor=2", "test_ds.num_workers=auto")
    said = capsys.readouterr().err
    assert "train_ds.num_workers, train_ds.pin_memory cannot act: the recommender makes its batches on the" in said
    assert "valid_ds.prefetch_factor cannot act" in said
    assert "test_ds" not in said


def test_nothing_is_said_of_workers_where_none_are_asked_for(capsys):
    run()
    assert "cannot act" not in capsys.readouterr().err


@pytest.mark.parametrize("control", [None, "ids", "random"])
def test_the_model_of_histories_trains_with_its_controls_and_is_loaded(control):
    name = {None: "history, text + ids (gpt2=tiny)", "ids": "history (ids)", "random": "history (random vectors + ids)"}
    outcome = run("model.name=history", *([] if control is None else [f"model.control={control}"]))
    assert next(iter(outcome.table)) == name[control]
    assert len(brim.load(outcome.result.run).recommend(3, 5)) == 5


@pytest.mark.parametrize("loss", ["softmax", "sampled_softmax"])
def test_a_loss_is_chosen_by_its_name(loss):
    assert run(f"model.loss={loss}").result.metrics != run().result.metrics


def test_a_batch_of_histories_is_of_people():
    assert load_config(None, ["model.name=history"]).train_ds.batch_size == 256
    assert load_config(None, ["model.name=history", "train_ds.batch_size=32"]).train_ds.batch_size == 32
    assert load_config(None, []).train_ds.batch_size == 2048


@pytest.mark.parametrize(
    "overrides",
    [["model.name=history", "model.loss=bpr"], ["model.control=ids"], ["model.name=history", "model.lora=4"]],
)
def test_settings_of_another_model_are_refused(overrides):
    with pytest.raises(ConfigError, match="history"):
        load_config(None, overrides)


@pytest.mark.parametrize("control", [None, "ids", "random"])
def test_the_linear_model_is_solved_with_its_controls_and_is_loaded(control):
    name = {None: "linear, text + ids (gpt2=tiny)", "ids": "linear (ids)", "random": "linear (random vectors + ids)"}
    chosen = ["data.n_users=40", "data.n_items=60", "trainer.device=cpu", "model.name=linear"]
    config = load_config(None, [*chosen, *([] if control is None else [f"model.control={control}"])])
    outcome = RecommenderWorkload(config).run()
    assert set(outcome.table) == {name[control], "popularity", "EASE"}
    assert (outcome.result.steps, outcome.result.ended) == (0, "done")
    assert len(brim.load(outcome.result.run).recommend(1, k=3)) == 3


@pytest.mark.parametrize("override", ["trainer.lr=0.1", "train_ds.batch_size=32", "model.loss=bpr", "model.lora=4"])
def test_settings_of_a_training_are_refused_where_nothing_is_trained(override):
    with pytest.raises(ConfigError, match="linear"):
        load_config(None, ["model.name=linear", override])


def test_what_is_solved_has_no_steps_to_plan_and_nothing_to_resume():
    workload = RecommenderWorkload(load_config(None, ["model.name=linear", "data.n_users=40", "data.n_items=60"]))
    with pytest.raises(ConfigError, match="closed form"):
        workload.plan_job()
    with pytest.raises(ConfigError, match="--resume"):
        workload.run("somewhere")
