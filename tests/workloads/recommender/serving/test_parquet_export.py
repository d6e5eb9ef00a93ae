import builtins

import numpy as np
import pytest
import torch

from brim.errors import ConfigError, DataError
from brim.workloads.recommender import BPR, EmbeddedDataset
from brim.workloads.recommender.serving.catalogue import Catalogue
from brim.workloads.recommender.serving.parquet_export import export_all
from brim.workloads.recommender.serving.rankings import rank_items


@pytest.fixture(scope="module")
def catalogue():
    return Catalogue(EmbeddedDataset(12, 30))


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return BPR(12, 30, 4)


@pytest.mark.parametrize("include_seen", [True, False])
def test_the_file_has_what_each_user_would_be_recommended(tmp_path, catalogue, model, include_seen):
    parquet = pytest.importorskip("pyarrow.parquet")
    out = tmp_path / "recs.parquet"
    rows = export_all(model, catalogue, out, k=5, include_seen=include_seen)
    table = parquet.read_table(out).to_pylist()
    assert len(table) == rows == 12 * 5
    for user in range(12):
        expected = rank_items(model, user, 5, None if include_seen else catalogue.seen_by(user))
        own = [row for row in table if row["user_id"] == user]
        assert [row["item_id"] for row in own] == expected.ids
        assert [row["rank"] for row in own] == [1, 2, 3, 4, 5]
        assert [row["title"] for row in own] == [catalogue.movie(item).title for item in expected.ids]
        assert [row["score"] for row in own] == pytest.approx(expected.scores)
    assert [path.name for path in tmp_path.iterdir()] == ["recs.parquet"]


def test_names_as_ids_stay_names(tmp_path, model):
    parquet = pytest.importorskip("pyarrow.parquet")
    dataset = EmbeddedDataset(12, 30)
    dataset.user_ids = np.array([f"u{row}" for row in range(12)])
    export_all(model, Catalogue(dataset), tmp_path / "recs.parquet", k=1)
    assert parquet.read_table(tmp_path / "recs.parquet").column("user_id").to_pylist()[:2] == ["u0", "u1"]


def test_somebody_who_has_seen_nearly_everything_has_fewer_rows(tmp_path, catalogue, model):
    parquet = pytest.importorskip("pyarrow.parquet")
    export_all(model, catalogue, tmp_path / "recs.parquet", k=30)
    rows = parquet.read_table(tmp_path / "recs.parquet").column("user_id").to_pylist()
    assert all(rows.count(user) == 30 - len(catalogue.seen_by(user)) for user in range(12))


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path, catalogue, model):
    pytest.importorskip("pyarrow")
    with pytest.raises(DataError, match=r"cannot write .*; name another file with --out"):
        export_all(model, catalogue, tmp_path / "no" / "recs.parquet")


def test_without_pyarrow_it_is_said_what_to_install(tmp_path, catalogue, model, monkeypatch):
    plain = builtins.__import__

    def refuse(name, *arguments):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return plain(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ConfigError, match=r"pip install 'brim\[parquet\]'"):
        export_all(model, catalogue, tmp_path / "recs.parquet")
