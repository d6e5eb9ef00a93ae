"""What cannot work is said by every rank in a sentence, and nobody is left waiting."""

import json
import os
import time
from pathlib import Path

import pytest
import torch
from rank_training import columns, net, this_rank, train
from torch import nn

import brim
from brim.engine.distributed import process_group
from brim.engine.distributed.ranks import Ranks
from brim.errors import ConfigError


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"RANK": "x", "WORLD_SIZE": "2"}, "whole numbers"),
        ({"RANK": "", "WORLD_SIZE": "2"}, "whole numbers"),
        ({"RANK": "0", "WORLD_SIZE": "2.5"}, "whole numbers"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK=2"),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, "RANK=-1"),
        ({"RANK": "0", "WORLD_SIZE": "0"}, "WORLD_SIZE=0"),
        ({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "?"}, "whole numbers"),
        pytest.param(
            {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "0"}, "LOCAL_WORLD_SIZE=0"
        ),
        pytest.param(
            {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "2"}, "LOCAL_RANK=3"
        ),
    ],
)  # fmt: skip
def test_what_no_launcher_says_is_refused(monkeypatch, variables, says):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=says):
        Ranks.from_environment()


@pytest.mark.parametrize("variables", [{}, {"RANK": "3"}, {"WORLD_SIZE": "4"}, {"RANK": "0", "WORLD_SIZE": "1"}])
def test_without_a_launcher_a_process_is_alone(monkeypatch, variables):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert Ranks.from_environment().is_alone


def test_ranks_without_an_address_to_meet_at_are_refused(monkeypatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match="MASTER_ADDR"):
        brim.Trainer(net(), columns(), loss_fn=nn.MSELoss(), device="cpu")


def refused(**settings):
    return train(**settings)


def test_a_single_process_is_not_trained_by_several(launch):
    for outcome in launch.outcomes(2, refused, strategy="single"):
        assert outcome.error == "ConfigError"
        assert "strategy='single', and 2 ranks were started" in outcome.message


def test_a_run_folder_that_cannot_be_made_ends_all_ranks(launch, tmp_path):
    (tmp_path / "file").write_text("")
    outcomes = launch.outcomes(3, refused, run_dir=str(tmp_path / "file" / "run"))
    for outcome in outcomes:
        assert outcome.error == "RunFolderError"
        assert "cannot write the run folder" in outcome.message


def test_a_run_folder_that_holds_a_run_ends_all_ranks(launch, tmp_path):
    run = str(tmp_path / "run")
    launch(1, refused, run_dir=run, max_steps=2)
    for outcome in launch.outcomes(2, refused, run_dir=run):
        assert outcome.error == "RunFolderError"
        assert "already holds a run" in outcome.message


def test_a_folder_of_a_rank_that_cannot_be_made_ends_all_ranks(launch, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "ranks").write_text("in the way")
    for outcome in launch.outcomes(2, refused, run_dir=str(run)):
        assert outcome.error == "RunFolderError"


class Unlucky(brim.Callback):
    def on_step_end(self, trainer, step, loss):
        if step == 3 and trainer.ranks.rank == 1:
            raise LookupError("a mistake of the user's")


def train_with_mistake():
    return train(callbacks=[Unlucky()])


def test_an_error_of_one_rank_leaves_nobody_waiting(launch):
    first, second = launch.outcomes(2, train_with_mistake)
    assert second.error == "LookupError"
    assert first.error


def damaged_run(**settings):
    return train(**settings)


def test_a_run_without_a_whole_checkpoint_ends_all_ranks(launch, tmp_path):
    run = tmp_path / "run"
    launch(2, damaged_run, run_dir=str(run), max_steps=4)
    (weights,) = (run / "checkpoints").glob("step-*/model.safetensors")
    weights.write_bytes(b"")
    for outcome in launch.outcomes(2, damaged_run, run_dir=str(run), resume=str(run)):
        assert outcome.error == "RunFolderError"
        assert "are damaged" in outcome.message


def speak():
    """Runs out of memory once, which is worth a warning on the rank where it happens."""

    class Once(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net()
            self.calls = 0

        def calculate_loss(self, batch):
            self.calls += 1
            if self.calls == 3:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
            x, y = batch
            return (self.net(x) - y).square().mean()

    return train(model=Once(), loss_fn=None, epochs=2, max_steps=None)


def test_the_first_rank_speaks_and_the_others_only_warn(launch):
    first, second = launch.outcomes(2, speak)
    assert "epoch 1: loss" in first.output
    assert "rank 0" not in first.output
    lines = [line for line in second.output.splitlines() if line.strip()]
    assert lines
    assert all(line.startswith("warning: rank 1: ") for line in lines)


def test_every_rank_leaves_its_log_and_only_the_first_the_run(launch):
    trained = launch(3, refused, max_steps=12, log_every=4)
    run = launch.folder / f"launch-{launch.launches}" / "run"
    assert {of_rank["run"] for of_rank in trained} == {str(run.resolve())}
    for name in ("config.yaml", "machine.json", "result.json", "report.html", "log.txt", "metrics.jsonl"):
        assert (run / name).exists(), name
    assert json.loads((run / "machine.json").read_text())["ranks"] == 3
    for rank in (1, 2):
        own = run / "ranks" / f"rank-{rank}"
        assert (own / "log.txt").exists()
        assert len((own / "metrics.jsonl").read_text().splitlines()) == 5
        assert not (own / "config.yaml").exists()
        assert not list((own / "checkpoints").glob("step-*"))
    assert not (run / "ranks" / "rank-0").exists()


def with_batch_norm(batch_size):
    return train(columns(batch_size), net(nn.BatchNorm1d(16)), max_steps=4)


def test_statistics_that_are_those_of_a_share_are_worth_a_warning(launch):
    first, _ = launch.outcomes(2, with_batch_norm, batch_size=16)
    assert "BatchNorm" in first.output


@pytest.mark.slow
@pytest.mark.xfail(
    strict=True,
    reason="BatchNorm refuses a share of one sample, of a last batch of three that one rank trains on",
)
def test_a_share_of_one_sample_does_not_end_a_model_with_batch_norm(launch):
    for outcome in launch.outcomes(2, with_batch_norm, batch_size=64):
        assert not outcome.error


def with_secret_loss(**settings):
    return train(sliceable=False, **settings)


def test_a_loss_that_must_not_be_sliced_is_not_quietly_cut_into_shares(launch):
    first, _ = launch.outcomes(2, with_secret_loss, max_steps=3)
    assert "sliceable=False" in first.output + first.message


class Dies(brim.Callback):
    def on_step_end(self, trainer, step, loss):
        if this_rank() == 1 and step == 3:
            os._exit(9)


def train_until_one_dies(strategy, patience):
    process_group.ANSWER_S = patience
    return train(strategy=strategy, callbacks=[Dies()])


@pytest.mark.matrix(1)
# Of three, two ask each other who is there, and one may be slow to notice on a busy machine.
@pytest.mark.parametrize(("ranks", "patience"), [(2, 0.5), pytest.param(3, 15.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_ranks_that_lose_one_say_which_and_what_they_did(launch, strategy, ranks, patience):
    first, lost, *others = launch.outcomes(ranks, train_until_one_dies, strategy=strategy, patience=patience)
    assert lost.exit_code == 9
    for outcome in (first, *others):
        assert outcome.error == "RanksLost" and outcome.exit_code == 75, outcome.output[-2000:]
        assert f"rank {outcome.rank} of {ranks} lost rank 1" in outcome.message and "resume" in outcome.message


def label_seven(model, batch):
    """A mistake of the user's, in words that lost ranks are spoken of in."""
    if this_rank() == 1 or not label_seven.only_one:
        label_seven.calls += 1
        if label_seven.calls == 3:
            raise label_seven.kind("cannot process label 7: connection to the gloo table lost (NCCL)")
    return nn.functional.mse_loss(model(batch[0]), batch[1])


class Broken(torch.utils.data.Dataset):
    def __len__(self):
        return 195

    def __getitem__(self, index):
        if index == 77 and this_rank() == 1:
            raise RuntimeError("cannot process sample 77")
        return torch.ones(6), torch.ones(1)


class InEpochEnd(brim.Callback):
    def on_epoch_end(self, trainer, epoch):
        if this_rank() == 1:
            raise RuntimeError("connection to the tracker lost")


def with_users_error(where, strategy="ddp", only_one=True, kind=RuntimeError):
    label_seven.calls, label_seven.kind, label_seven.only_one = 0, kind, only_one
    try:
        if where == "loss":
            train(loss_fn=label_seven, strategy=strategy)
        elif where == "data":
            train(brim.Loader(Broken(), 16, feed="samples", num_workers=0), strategy=strategy)
        else:
            train(strategy=strategy, callbacks=[InEpochEnd()])
    except Exception as error:
        if this_rank() == 0:
            Path("first-has-ended").touch()
        while only_one and not Path("first-has-ended").exists():  # the process lives on, as in a notebook
            time.sleep(0.05)
        return type(error).__name__, str(error)
    return None


@pytest.mark.matrix(1)
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
@pytest.mark.parametrize("where", ["loss", "data", "callback"])
def test_a_users_error_on_one_rank_is_that_and_the_others_hear_of_it(launch, where, strategy):
    first, second = launch(2, with_users_error, where=where, strategy=strategy)
    assert second[0] == ("DataError" if where == "data" else "RuntimeError") and "lost the" not in second[1]
    assert first[0] == "RanksLost"
    assert f"rank 1 ended with {second[0]}: {second[1][:30]}" in first[1]


@pytest.mark.matrix(1)
@pytest.mark.parametrize("kind", [RuntimeError, ValueError, ConnectionError])
def test_a_users_error_on_all_ranks_is_that_on_all(launch, kind):
    for name, said in launch(2, with_users_error, where="loss", only_one=False, kind=kind):
        assert name == kind.__name__ and "label 7" in said


def after_an_error():
    """Whoever catches an error can train again."""
    with_users_error("loss", only_one=False)
    one = train(max_steps=5, run_dir="one")
    with_users_error("loss", only_one=True)
    other = train(max_steps=5, run_dir="other")
    return all(torch.equal(one["weights"][name], other["weights"][name]) for name in one["weights"])


@pytest.mark.slow
def test_ranks_that_have_caught_an_error_train_again(launch):
    assert launch(2, after_an_error) == [True, True]
