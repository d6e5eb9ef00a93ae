"""``brim train --slurm``: the script it prints, run for real with stand-ins for Slurm's own commands."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
from helpers.waiting import wait_until
from safetensors.torch import load_file

from brim.cli import main as cli

TRAINING = [
    "trainer.device=cpu", "trainer.checkpoint_every=10", "trainer.eval_every=1000",
    "trainer.patience=null", "trainer.threads=1", "trainer.keep=1000", "model.name=bpr", "data.n_users=200",
    "data.n_items=60", "train_ds.batch_size=64",
]  # fmt: skip

# What is known of the real ones: options come before the command, and signals reach every process of a step.
SRUN = """#!/bin/bash
while [[ $1 == -* ]]; do shift; done
"$@" &
task=$!
below() { for child in $(pgrep -P "$1"); do echo "$child"; below "$child"; done; }
trap 'kill -USR1 $task $(below $task)' USR1
while kill -0 $task 2>/dev/null; do wait $task; done
wait $task
"""
SCONTROL = """#!/bin/bash
if [ "$1 $2" = "show hostnames" ]; then echo localhost; echo elsewhere; else echo "$@" >> requeued; fi
"""


def script(*arguments, monkeypatch, capsys):
    """What ``brim train --slurm`` prints, and nothing else."""
    monkeypatch.setattr(sys, "argv", ["brim", "train", "--slurm", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    assert (ended.value.code, err) == (0, "")
    return out


@pytest.fixture
def printed(tmp_path, monkeypatch, capsys):
    """Prints a script in an empty folder, which stays the one of the test."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: script(*arguments, monkeypatch=monkeypatch, capsys=capsys)


@pytest.fixture
def job(tmp_path, printed):
    """Starts a script as a job of Slurm's would be started; one with the same number is the same job, requeued."""
    commands, started = tmp_path / "commands", []
    commands.mkdir()
    for name, text in {"srun": SRUN, "scontrol": SCONTROL}.items():
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)

    def start(number, text):
        (tmp_path / "job.sh").write_text(text)
        process = subprocess.Popen(
            ["bash", "job.sh"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True, env={
                **os.environ, "PATH": f"{commands}:{os.environ['PATH']}", "SLURM_JOB_ID": str(number),
                "SLURM_NNODES": "1", "SLURM_JOB_NODELIST": "localhost", "SLURM_CPUS_PER_TASK": "1",
            },
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def ended(process):
    """Its exit code and what it said."""
    said, _ = process.communicate()
    return process.returncode, said


def checkpoints(run):
    return sorted(path.name for path in run.glob("checkpoints/step-*"))


def progress(run):
    return json.loads((run / "checkpoints" / checkpoints(run)[-1] / "progress.json").read_text())


def weights(run):
    return load_file(run / "checkpoints" / checkpoints(run)[-1] / "model.safetensors")


@pytest.mark.slow
def test_a_job_asked_to_stop_is_requeued_and_ends_with_the_weights_of_one_that_was_not(tmp_path, printed, job):
    text = printed(*TRAINING, "trainer.epochs=1000000")
    stopped, straight = tmp_path / "runs" / "brim-7", tmp_path / "runs" / "brim-8"

    process = job(7, text)
    wait_until(lambda: checkpoints(stopped), process)
    os.kill(process.pid, signal.SIGUSR1)  # as B: in --signal says, the shell alone
    code, said = ended(process)
    assert code == 75, said
    assert (tmp_path / "requeued").read_text() == "requeue 7\n"
    assert not (stopped / "result.json").exists()
    last = int(checkpoints(stopped)[-1].removeprefix("step-"))

    text = printed(*TRAINING, f"trainer.epochs={progress(stopped)['epoch'] + 2}")
    code, said = ended(job(7, text))
    assert code == 0, said
    assert f"resuming after step {last} " in said
    code, said = ended(job(8, text))
    assert code == 0, said
    assert checkpoints(stopped)[-1] == checkpoints(straight)[-1]
    assert all(tensor.equal(weights(stopped)[name]) for name, tensor in weights(straight).items())
    assert (tmp_path / "requeued").read_text() == "requeue 7\n"


@pytest.mark.slow
def test_what_is_refused_is_tried_once_and_not_requeued(tmp_path, printed, job):
    code, said = ended(job(7, printed(*TRAINING, "data.name=ml-1m", "data.path=missing")))
    assert code == 2
    assert said.count("there is no folder missing") == 1  # not for each restart
    assert not (tmp_path / "requeued").exists()


HOSTILE = 'it\'s $HOME; `reboot` "and" $(reboot) \\'


def test_every_argument_reaches_the_ranks_as_it_was(tmp_path, printed, job):
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "my model.yaml").write_text("trainer: {device: cpu, run_dir: 'runs/it''s #1: mine'}\n")
    text = printed("a b/my model.yaml", "data.name=recbole", f"data.path='{HOSTILE.replace(chr(39), chr(39) * 2)}'")
    assert "#SBATCH --job-name=it-s-1-mine\n" in text
    (tmp_path / "commands" / "srun").write_text('#!/bin/bash\nprintf "%s\\n" "$@" > told\n')
    assert ended(job(7, text))[0] == 0
    told = (tmp_path / "told").read_text().splitlines()
    assert told[told.index("train") + 1 :] == [
        "a b/my model.yaml", "data.name=recbole", f"data.path='{HOSTILE.replace(chr(39), chr(39) * 2)}'",
        'trainer.run_dir="runs/it\'s #1: mine"', "--resume", "auto",
    ]  # fmt: skip
    assert (tmp_path / "runs" / "it's #1: mine").is_dir()


def test_it_asks_for_what_was_named(printed):
    text = printed("--nodes", "4", "--gpus-per-node", "2", "--time", "2-12:00:00")
    for line in ("nodes=4", "ntasks-per-node=1", "gpus-per-node=2", "time=2-12:00:00", "requeue", "open-mode=append"):
        assert f"#SBATCH --{line}\n" in text
    assert "--nproc-per-node=2 " in text
    assert "--gpus-per-node" not in printed("trainer.device=cpu")


def test_a_run_that_is_named_is_the_one_that_goes_on(tmp_path, printed):
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "runs" / "mine" / "metrics.jsonl").touch()
    (tmp_path / "runs" / "mine" / "config.yaml").write_text("workload: recommender\ntrainer: {device: cpu}\n")
    text = printed("--resume", "runs/mine")
    assert "\nrun=runs/mine\n" in text
    assert "train runs/mine/config.yaml 'trainer.run_dir=\"runs/mine\"' --resume auto &" in text


@pytest.mark.parametrize("arguments", [[], ["--nodes", "2", "trainer.run_dir=x"]], ids=str)
def test_the_script_is_one_that_bash_reads_and_shellcheck_likes(tmp_path, printed, arguments):
    text = printed(*arguments)
    assert subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True).stderr == ""
    if shutil.which("shellcheck"):
        assert subprocess.run(["shellcheck", "-"], input=text, text=True, capture_output=True).stdout == ""


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--slurm", "--time", "tomorrow"], "--time tomorrow is not a time of Slurm's"),
        (["--slurm", "--time", "1:00\n#SBATCH --x"], "is not a time of Slurm's"),
        (["--slurm", "--ranks", "2"], "name --gpus-per-node in place of --ranks"),
        (["--slurm", "--gpus-per-node", "2", "trainer.device=cpu"], "would leave them idle"),
        (["--slurm", "--gpus-per-node", "0"], "needs trainer.device=cpu"),
        (["--slurm", "nope.yaml"], "there is no configuration file nope.yaml"),
        (["--slurm", "--resume", "nowhere"], "nowhere is not a run folder"),
        (["--nodes", "2"], "add --slurm"),
        (["--time", "1:00:00"], "add --slurm"),
    ],
    ids=str,
)
def test_what_cannot_be_is_one_sentence_and_no_script(tmp_path, monkeypatch, capsys, arguments, part):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["brim", "train", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert part in err and err.startswith("brim: ")
