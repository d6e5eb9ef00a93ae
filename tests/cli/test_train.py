import io
import json
import signal
import subprocess
import sys

import pytest
from helpers.command import Command
from helpers.waiting import wait_until
from rich.console import Console

from brim.cli import main as cli
from brim.cli.train import metrics_table, split_arguments
from brim.config import load_config
from brim.errors import ConfigError

SMALL = [
    "data.n_users=60", "data.n_items=40", "model.name=bpr", "trainer.device=cpu", "trainer.threads=1",
    "trainer.epochs=2",
]  # fmt: skip


@pytest.fixture
def brim(monkeypatch, capsys):
    return Command(monkeypatch, capsys)


def tree(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


# Bad input


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["nope.yaml"], "there is no configuration file nope.yaml"),
        (["--epochs", "3"], "settings are written without dashes: trainer.epochs=3"),
        (["train_ds.batch_size=0"], "train_ds.batch_size=0"),
        (["vision.yaml"], "workload='vision' is not known"),
        (["trainer.epoch=3"], "did you mean 'trainer.epochs'?"),
        (
            [*SMALL, "workload=recommender", "trainer.run_dir=vision.yaml/run"],
            "cannot write the run folder vision.yaml/run: Not a directory",
        ),
        (["a.yaml", "b.yaml"], "one configuration file at most, and a.yaml, b.yaml were named"),
        (["--resume", "nowhere"], "nowhere is not a run folder"),
    ],
    ids=str,
)
def test_bad_input_is_one_sentence_on_stderr_exit_2_and_nothing_written(tmp_path, brim, arguments, part):
    (tmp_path / "vision.yaml").write_text("workload: vision\n")
    done = brim(tmp_path, "train", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    (sentence,) = [line for line in done.stderr.splitlines() if not line.startswith("training on the CPU")]
    assert sentence.startswith("brim: ")
    assert part in sentence
    assert tree(tmp_path) == ["vision.yaml"]


def test_a_loss_that_is_not_a_number_ends_the_run_and_names_the_step(tmp_path, brim):
    done = brim(tmp_path, "train", *SMALL, "trainer.epochs=5", "trainer.lr=1e30", "trainer.run_dir=run")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("brim: the loss is ")
    assert " at step 2 (epoch 2, samples 0 to " in last
    assert "the loss is" in (tmp_path / "run/log.txt").read_text()
    losses = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert max(line["step"] for line in losses) == 1
    assert [path.name for path in (tmp_path / "run/checkpoints").glob("step-*")] == ["step-000000001"]


# A run


def test_a_run_prints_its_table_and_leaves_everything_in_its_folder(tmp_path, brim):
    done = brim(tmp_path, "train", *SMALL)
    assert done.returncode == 0, done.stderr
    rows = [line.split("│")[1].strip() for line in done.stdout.splitlines() if line.startswith("│")]
    assert rows == ["BPR (ids)", "popularity", "EASE"]
    assert "recall@10" in done.stdout
    assert "ndcg@20" in done.stdout
    (run,) = (tmp_path / "runs").iterdir()
    assert done.stderr.splitlines()[-1] == f"report: {run.relative_to(tmp_path)}/report.html"
    assert str(run.relative_to(tmp_path)) not in done.stdout
    assert {"metrics.jsonl", "events.jsonl", "log.txt", "config.yaml", "checkpoints"} <= {p.name for p in run.iterdir()}
    assert {p.name for p in (run / "checkpoints").iterdir()} == {"best", "step-000000001", "step-000000002"}
    assert load_config(run / "config.yaml") == load_config(None, SMALL)
    for name in ("metrics.jsonl", "events.jsonl"):
        assert all(isinstance(json.loads(line), dict) for line in (run / name).read_text().splitlines())
    assert "epoch 2: loss " in (run / "log.txt").read_text()
    assert "epoch 2: loss " in done.stderr
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_run_with_json_prints_one_object_and_nothing_else(tmp_path, brim):
    (tmp_path / "c.yaml").write_text(
        "data: {n_users: 60, n_items: 40}\nmodel: {name: bpr}\ntrainer: {device: cpu, run_dir: here}\n"
    )
    done = brim(tmp_path, "train", "c.yaml", "trainer.epochs=2", "--json", "eval_ds.k=[5]")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    summary = json.loads(done.stdout)
    assert {key: summary[key] for key in ("run", "steps", "epochs", "ended")} == {
        "run": "here", "steps": 2, "epochs": 2, "ended": "done",
    }  # fmt: skip
    assert set(summary["test"]) == {"BPR (ids)", "popularity", "EASE"}
    assert 0 < summary["test"]["BPR (ids)"]["ndcg@5"] <= 1
    assert summary["seconds"] > 0


@pytest.mark.slow
def test_ctrl_c_ends_with_130_and_a_checkpoint_from_which_the_run_goes_on(tmp_path, brim):
    run = tmp_path / "run"
    long = [*SMALL, "trainer.epochs=1000000", "trainer.patience=null", "train_ds.batch_size=64", "trainer.run_dir=run"]
    command = [sys.executable, "-m", "brim", "train", *long]
    process = subprocess.Popen(command, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        wait_until(lambda: list((run / "checkpoints").glob("step-*")), process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    finally:
        process.kill()
    assert (process.returncode, out) == (130, "")
    assert "Ctrl-C: stopping after this step, with a checkpoint" in err
    assert "Traceback" not in err
    newest = sorted((run / "checkpoints").glob("step-*"))[-1]
    step = int(newest.name.removeprefix("step-"))
    progress = json.loads((newest / "progress.json").read_text())
    assert progress["step"] == step
    said = f"brim: stopped by Ctrl-C after step {step:,}; checkpoint: {newest.relative_to(tmp_path)}"
    assert err.splitlines()[-1] == said

    epochs = progress["epoch"] + 2
    done = brim(tmp_path, "train", "--resume", "run", f"trainer.epochs={epochs}", "--json")
    assert done.returncode == 0, done.stderr
    assert f"resuming after step {step:,} " in done.stderr
    summary = json.loads(done.stdout)
    assert (summary["epochs"], summary["run"]) == (epochs, "run")
    assert summary["steps"] == epochs * 10  # 600 pairs in batches of 64
    assert not (tmp_path / "runs").exists()


# In this process


def test_show_config_prints_every_setting_and_trains_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["brim", "train", "--show-config", "trainer.epochs=7"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code in (0, None)
    assert tree(tmp_path) == []
    (tmp_path / "c.yaml").write_text(capsys.readouterr().out)
    assert load_config("c.yaml") == load_config(None, ["trainer.epochs=7"])


@pytest.mark.parametrize(
    ("arguments", "path", "overrides"),
    [
        ([], None, []),
        (["a.yaml"], "a.yaml", []),
        (["a=1", "b=2"], None, ["a=1", "b=2"]),
        (["a.yaml", "a=1", "b=x=y"], "a.yaml", ["a=1", "b=x=y"]),
        (["a=1", "a.yaml"], "a.yaml", ["a=1"]),
    ],
)
def test_the_argument_without_an_equals_sign_is_the_file(arguments, path, overrides):
    found, rest = split_arguments(arguments)
    assert (None if found is None else str(found), rest) == (path, overrides)


@pytest.mark.parametrize("arguments", [["a", "b"], ["a.yaml", "x=1", "b.yaml"], ["trainer.epochs", "3"]])
def test_a_second_file_is_refused(arguments):
    with pytest.raises(ConfigError, match="one configuration file at most"):
        split_arguments(arguments)


def test_a_file_whose_path_has_an_equals_sign_is_a_file(tmp_path):
    path = tmp_path / "lr=1" / "a.yaml"
    path.parent.mkdir()
    path.write_text("{}")
    assert split_arguments([str(path)]) == (path, [])


def test_the_table_has_a_row_for_each_model_and_the_metrics_asked_for_first():
    row = {"mrr@5": 0.5, "ndcg@5": 0.25, "recall@5": 0.125}
    table = metrics_table({"A": row, "B": row}, ["recall@5", "ndcg@5", "mrr@5"])
    screen = io.StringIO()
    Console(file=screen, width=100).print(table)
    assert [column.header for column in table.columns] == ["test", "recall@5", "ndcg@5", "mrr@5"]
    assert table.row_count == 2
    assert "0.1250" in screen.getvalue()


def test_a_row_without_a_metric_has_a_dash_there():
    console = Console(file=io.StringIO(), width=60)
    console.print(metrics_table({"model": {"mse": 1.0, "coverage": 0.8}, "naive": {"mse": 2.0}}, ("mse", "coverage")))
    naive = next(line for line in console.file.getvalue().splitlines() if "naive" in line)
    assert "2.0000" in naive and " - " in naive


# What is trained is said


@pytest.mark.parametrize("command", ["train", "plan", "bench step"])
@pytest.mark.parametrize("text", ["", "# workload: forecaster\n"], ids=["empty", "comment"])
def test_a_file_that_says_nothing_is_refused(tmp_path, brim, text, command):
    (tmp_path / "empty.yaml").write_text(text)
    done = brim(tmp_path, *command.split(), "empty.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("brim: empty.yaml holds no settings") and done.stderr.count("\n") == 1
    assert tree(tmp_path) == ["empty.yaml"]


def test_the_run_of_a_script_is_not_resumed_as_a_recommender(tmp_path, brim):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").touch()
    (tmp_path / "run" / "config.yaml").write_text("trainer: {epochs: 3}\n")  # as brim.Trainer leaves it
    done = brim(tmp_path, "train", "--resume", "run")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "no run of brim train: run its script again, with trainer.fit(resume='run')" in done.stderr


def test_where_no_workload_is_named_it_is_said_which_is_trained(tmp_path, brim):
    (tmp_path / "some.yaml").write_text("model: {name: bpr}\n")
    done = brim(tmp_path, "train", "some.yaml", *SMALL)
    assert done.returncode == 0
    assert done.stderr.startswith(
        "no workload is named: training the recommender (model bpr, data embedded); another is"
    )
    named = brim(tmp_path, "train", "some.yaml", "workload=recommender", *SMALL)
    assert named.returncode == 0 and "no workload is named" not in named.stderr
