import json

import pytest
from helpers.command import brim

from brim.workloads.recommender import EmbeddedDataset

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.fixture
def folder(tmp_path):
    """A small data set in RecBole's files, items in one of two genres."""
    pairs = EmbeddedDataset(40, 60).interactions
    lines = [f"{user}\t{item}" for user, item in zip(pairs.users.tolist(), pairs.items.tolist(), strict=True)]
    (tmp_path / "small.inter").write_text("\n".join(["user_id:token\titem_id:token", *lines]) + "\n")
    items = [f"{item}\tTitle {item}\tKind {item % 2}" for item in range(60)]
    (tmp_path / "small.item").write_text("\n".join(["item_id:token\ttitle:token_seq\tclass:token", *items]) + "\n")
    return tmp_path


@pytest.mark.parametrize(
    ("kind", "further", "told"),
    [
        ("history", ["--epochs", "1"], "text + ids, seed 0, temperature 6: epoch 1 of at most 1"),
        ("linear", [], "text + ids: 1 of 1 settings"),
    ],
)
def test_all_models_are_side_by_side_and_nothing_is_left_behind(folder, kind, further, told, monkeypatch, capsys):
    pytest.importorskip("transformers")
    before = sorted(folder.iterdir())
    assert brim(["bench", "recommender", "--data", str(folder), "--kind", kind, "--quick", *further,
                  "--device", "cpu"], monkeypatch) in (0, None)  # fmt: skip
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].split() == ["test", "split", "NDCG@10", "Recall@20", "Recall@20,", "less-rated", "half"]
    names = [
        "popularity",
        "EASE 250",
        "EASE tuned",
        "LightGCN",
        "ids",
        "text + ids",
        "random + ids",
        "taste for genres",
    ]
    assert all(any(line.startswith(name) for line in lines) for name in names)
    assert "0.2538" in next(line for line in lines if line.startswith("LightGCN"))
    assert any("above popularity of genres" in line for line in lines)
    assert lines[-1].startswith("--quick")
    assert told in err
    assert sorted(folder.iterdir()) == before


def test_json_is_one_object(folder, monkeypatch, capsys):
    pytest.importorskip("transformers")
    arguments = ["--data", str(folder), "--quick", "--device", "cpu", "--json"]
    assert brim(["bench", "recommender", *arguments], monkeypatch) in (0, None)
    found = json.loads(capsys.readouterr().out)
    assert found["encoder"] == "tiny"
    assert found["warm"]["ids, seed 0"]["ndcg@10"]["low"] <= found["warm"]["ids, seed 0"]["ndcg@10"]["mean"]
    assert set(found["cold"]) >= {"taste for genres", "text + ids"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--split", "s"], "--split and --min-rating are of a data set that --data names"),
        (["--data", "nowhere"], "there is no folder nowhere"),
        (["--seeds", "0"], "seeds=0 must be at least 1"),
        (["--epochs", "5"], "linear is solved, not trained"),
        (["--data", "d", "--split", "s", "--split-seed", "1"], "--split gives one"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(arguments, sentence, monkeypatch, capsys):
    assert brim(["bench", "recommender", "--device", "cpu", *arguments], monkeypatch) not in (0, None)
    assert sentence in " ".join(capsys.readouterr().err.split())
