"""``brim train``, ``plan`` and ``bench step`` with a model of the user's."""

import json
import subprocess
import sys

import pytest
from helpers.command import Command
from helpers.projects import TRAIN, fresh_imports, write_project


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("BRIM_CACHE", str(tmp_path.with_name(f"{tmp_path.name}-cache")))
    with fresh_imports():
        yield write_project(tmp_path)


@pytest.fixture
def brim(monkeypatch, capsys):
    return Command(monkeypatch, capsys)


def test_train_prints_the_metrics_and_where_the_run_is(project, brim):
    done = brim(project, "train", "my.yaml", "params.hidden=3", "trainer.run_dir=run")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "evaluation" in lines[1] and "loss" in lines[1]
    assert any(line.startswith("│ Sequential") for line in lines)
    assert done.stderr.splitlines()[-1] == "report: run/report.html"
    assert "hidden: 3" in (project / "run/config.yaml").read_text()


def test_train_as_json_says_by_what_it_was_judged(project, brim):
    done = brim(project, "train", "my.yaml", "--json")
    summary = json.loads(done.stdout)
    assert set(summary) == {"run", "steps", "epochs", "seconds", "ended", "evaluation"}
    assert summary["evaluation"]["Sequential"]["loss"] > 0


def test_a_workload_needs_no_file_of_settings(project, brim):
    done = brim(project, "train", "workload=train.py", "trainer.device=cpu", "trainer.threads=1", "--json")
    assert json.loads(done.stdout)["steps"] == 2


@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("params.hiden=3", "train.py:build has no parameter 'hiden'; did you mean 'hidden'?"),
        ("params.hidden=wide", "params.hidden='wide' cannot be used: input should be a valid integer"),
        ("workload=trian.py:build", "there is no file trian.py in "),
        ("workload=train.py:built", "'built' is not there; name a function"),
        ("train_ds.batch_sise=3", "did you mean 'train_ds.batch_size'?"),
        ("test_ds.batch_size=3", "test_ds: there is no data for it"),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_written(project, brim, override, part):
    done = brim(project, "train", "my.yaml", override)
    assert (done.returncode, done.stdout) == (2, "")
    assert part in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in project.iterdir() if path.name != "__pycache__") == ["my.yaml", "train.py"]


def test_plan_and_bench_take_the_same_configuration(project, brim):
    done = brim(project, "plan", "my.yaml", "--card", "NVIDIA A10G", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["micro_batch"] == 8
    done = brim(project, "bench", "step", "my.yaml", "trainer.compile=eager", "--seconds", "0.1", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["batch_size"] == 8
    assert not (project / "runs").exists()


@pytest.mark.parametrize(
    "arguments", [["my.yaml"], ["model.name=bpr", "data.n_users=60", "data.n_items=40", "trainer.device=cpu"]]
)
def test_a_dry_run_leaves_nothing_and_names_no_folder(project, brim, arguments):
    done = brim(project, "train", *arguments, "trainer.fast_dev_run=true", "trainer.threads=1")
    assert done.returncode == 0, done.stderr
    assert "Run folder" not in done.stdout
    assert sorted(path.name for path in project.iterdir() if path.name != "__pycache__") == ["my.yaml", "train.py"]


def test_a_tier_of_a_plan_is_its_batch(project, brim):
    done = brim(project, "plan", "my.yaml", "--card", "NVIDIA A10G", "--tier", "small", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["batch_size"] == 512


@pytest.mark.slow
def test_ranks_each_build_the_workload_and_train_as_one_does(project, brim):
    alone = brim(project, "train", "my.yaml", "--json")
    command = [sys.executable, "-m", "brim", "train", "my.yaml", "--ranks", "2", "--json"]
    together = subprocess.run(command, cwd=project, capture_output=True, text=True)
    assert (together.returncode, together.stdout.count("\n")) == (0, 1), together.stderr
    one, two = json.loads(alone.stdout), json.loads(together.stdout)
    assert two["steps"] == one["steps"]
    assert two["evaluation"]["Sequential"]["loss"] == pytest.approx(one["evaluation"]["Sequential"]["loss"], rel=1e-5)


def test_workers_read_data_sets_whose_class_is_in_the_users_file(project, brim):
    code = TRAIN.replace("def build(", '''class Rows(torch.utils.data.Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


def build(''').replace('"train_data": (x, y)', '"train_data": Rows(x, y)')  # fmt: skip
    write_project(project, code)
    alone = brim(project, "train", "my.yaml", "train_ds.num_workers=0", "--json")
    done = brim(project, "train", "my.yaml", "train_ds.num_workers=2", "train_ds.prefetch_factor=1", "--json")
    assert done.returncode == 0, done.stderr
    assert "2 workers" in done.stderr
    assert json.loads(done.stdout)["evaluation"] == json.loads(alone.stdout)["evaluation"]
