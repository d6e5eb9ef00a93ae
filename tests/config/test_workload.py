import pytest
from helpers.projects import fresh_imports, write_project

from brim.config import load_config
from brim.config.own_workload import OwnWorkload
from brim.config.recommender_workload import RecommenderWorkload
from brim.config.workload import open_workload


@pytest.mark.parametrize("overrides", [[], ["workload=recommender"]])
def test_a_workload_of_brims_own_is_found_by_name_and_is_the_one_without_any(overrides):
    assert isinstance(open_workload(load_config(None, overrides)), RecommenderWorkload)


def test_code_is_imported_when_the_workload_is_opened_and_not_before(tmp_path, monkeypatch):
    monkeypatch.chdir(write_project(tmp_path, "open('trace', 'w').close()\n\ndef build(): ...\n"))
    with fresh_imports():
        config = load_config("my.yaml")
        assert not (tmp_path / "trace").exists()
        assert isinstance(open_workload(config), OwnWorkload)
        assert (tmp_path / "trace").exists()
