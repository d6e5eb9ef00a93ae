import time

import pytest
import torch

import brim
from brim.errors import BrimError
from brim.record import RunFolder
from brim.record.report.recommendations import RECOMMENDATIONS
from brim.record.run_folder import CONFIG, RESULT
from brim.workloads.recommender import EmbeddedDataset, EvalDataLoader, Popularity
from brim.workloads.recommender.linear import LinearRecommender
from brim.workloads.recommender.linear.solved_run import keep_solved
from brim.workloads.recommender.loaders import scorer


@pytest.fixture(scope="module")
def dataset():
    return EmbeddedDataset(60, 50)


@pytest.fixture(scope="module")
def model(dataset):
    return LinearRecommender.of(dataset.get_split_data("train"), control="ids")


@pytest.fixture(scope="module")
def judge(dataset):
    return EvalDataLoader(dataset.get_split_data("test"), dataset.get_split_data("train"), 32)


def kept(model, judge, dataset, folder):
    rivals = {"popularity": Popularity(dataset.get_split_data("train"))}
    config = "model: {name: linear}\n"
    return keep_solved(model, judge, dataset, rivals, "linear (ids)", config, folder, time.perf_counter())


def test_the_table_is_what_the_test_data_says_of_each(model, judge, dataset, tmp_path):
    result, table = kept(model, judge, dataset, tmp_path / "run")
    rival = judge.evaluate(Popularity(dataset.get_split_data("train")))
    assert table == {"linear (ids)": judge.evaluate(model), "popularity": rival}
    assert result.metrics == table["linear (ids)"] != rival
    assert (result.steps, result.ended) == (0, "done")


def test_the_folder_is_one_that_others_read(model, judge, dataset, tmp_path):
    result, table = kept(model, judge, dataset, tmp_path / "run")
    folder = RunFolder.open(result.run)
    assert folder.read_json(RESULT)["table"] == table
    assert folder.read_json(RESULT)["metrics_of"] == "test"
    assert (folder.path / CONFIG).read_text() == "model: {name: linear}\n"
    assert folder.read_json(RECOMMENDATIONS)["people"]
    assert "popularity" in (folder.path / "report.html").read_text()
    people = torch.arange(60)
    assert torch.equal(scorer(brim.load(folder.path))(people), scorer(model)(people))


def test_a_folder_that_holds_a_run_is_refused_and_stays_as_it_was(model, judge, dataset, tmp_path):
    kept(model, judge, dataset, tmp_path / "run")
    before = (tmp_path / "run" / RESULT).read_bytes()
    with pytest.raises(BrimError, match="run"):
        kept(model, judge, dataset, tmp_path / "run")
    assert (tmp_path / "run" / RESULT).read_bytes() == before


def test_a_ranking_that_fails_leaves_no_folder(model, dataset, tmp_path):
    class Unreadable:
        def evaluate(self, model):
            raise OSError("the test data cannot be read")

    with pytest.raises(OSError, match="cannot be read"):
        kept(model, Unreadable(), dataset, tmp_path / "run")
    assert not (tmp_path / "run").exists()
