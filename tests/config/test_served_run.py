import pytest
import torch

from brim.config.served_run import open_served_run
from brim.engine.checkpoints.checkpoint import Checkpoints
from brim.errors import DataError, RunFolderError
from brim.record import RunFolder
from brim.workloads.recommender import BPR


@pytest.fixture
def run(tmp_path):
    """A run of the recommender, as far as it takes to use it."""
    torch.manual_seed(0)
    model = BPR(40, 50, 4)
    folder = RunFolder.create(tmp_path / "run")
    folder.write("config.yaml", "workload: recommender\ndata: {n_users: 40, n_items: 50}\n")
    folder.write_json("model.json", {"model": "BPR", "arguments": model.arguments})
    Checkpoints(folder.checkpoints, keep=1).save_best(model, 1)
    return folder, model


def test_a_run_is_opened_with_its_weights_and_its_data(run):
    folder, model = run
    served = open_served_run(folder.path)
    assert torch.equal(served.model.items.weight, model.items.weight)
    assert served.catalogue.dataset.get_user_num() == 40


def test_data_of_another_size_is_refused(run):
    with pytest.raises(DataError, match=r"the data has 40 users and 60 items, and .* was trained with 40 and 50"):
        open_served_run(run[0].path, ["data.n_items=60"])


@pytest.mark.parametrize("config", ["epochs: 3\n", "workload: train.py:build\n"])
def test_a_run_of_another_kind_is_refused(run, config):
    run[0].write("config.yaml", config)
    with pytest.raises(RunFolderError, match=r"is not a run of workload: recommender.*brim\.load\(run\)\.recommend"):
        open_served_run(run[0].path)


def test_a_run_without_a_configuration_is_refused(run):
    run[0].remove("config.yaml")
    with pytest.raises(
        RunFolderError, match=r"cannot read .*config\.yaml, which says what data the run was trained on"
    ):
        open_served_run(run[0].path)
