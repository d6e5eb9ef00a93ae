"""``brim recommend``: by the ids and titles of the data set, or one sentence."""

import json

import pytest
from typer.testing import CliRunner

from brim.cli.main import app
from brim.config import load_config
from brim.config.recommender_workload import RecommenderWorkload
from brim.workloads import load
from brim.workloads.recommender import EmbeddedDataset
from brim.workloads.recommender.dataset import Movie
from brim.workloads.recommender.serving.catalogue import Catalogue

SMALL = ["data.n_users=40", "data.n_items=50", "trainer.device=cpu", "trainer.threads=1", "trainer.epochs=1"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recommend") / "run"
    RecommenderWorkload(load_config(None, [*SMALL, f"trainer.run_dir={folder}"])).run()
    return folder


@pytest.fixture(scope="module")
def catalogue():
    return Catalogue(EmbeddedDataset(40, 50))


def recommend(*words):
    return CliRunner().invoke(app, ["recommend", *map(str, words)])


def as_json(*words):
    found = recommend(*words, "--json")
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def test_a_user_is_recommended_what_the_model_ranks_highest_of_what_they_have_not_seen(run, catalogue):
    found = as_json(run, "--user", 7, "--k", 4)
    seen = catalogue.seen_by(7)
    assert [one["item"] for one in found["recommended"]] == load(run).recommend(7, 4, known=seen)
    assert [one["title"] for one in found["watched"]] == [catalogue.movie(item).title for item in seen]
    shown = recommend(run, "--user", 7, "--k", 4).stdout
    assert all(one["title"] in shown for one in found["recommended"])
    assert "User 7: User: " in shown


def test_what_was_seen_can_be_included(run, catalogue):
    found = as_json(run, "--user", 7, "--k", 50, "--include-seen")
    assert sorted(one["item"] for one in found["recommended"]) == list(range(50))


def test_who_has_seen_everything_is_told_so_and_no_genre_is_shown_of_what_has_none(run, catalogue, monkeypatch):
    monkeypatch.setattr(Catalogue, "seen_by", lambda self, row: list(range(50)))
    assert recommend(run, "--user", 7).stdout.splitlines()[-1].startswith("nothing: they have seen every item")
    monkeypatch.setattr(Catalogue, "movie", lambda self, row: Movie("Heat", ()))
    assert recommend(run, "--user", 7, "--include-seen").stdout.splitlines()[-1].endswith("Heat")


def test_somebody_new_by_what_they_watched(run):
    found = as_json(run, "--like", "3, 8,9", "--k", 5)
    assert [one["item"] for one in found["watched"]] == [3, 8, 9]
    assert [one["item"] for one in found["recommended"]] == load(run).recommend(watched=[3, 8, 9], k=5)


def test_somebody_new_in_words(run):
    text = "User: woman, age 25-34, occupation: doctor."
    found = as_json(run, "--text", text, "--k", 5)
    assert [one["item"] for one in found["recommended"]] == load(run).recommend(text=text, k=5)


@pytest.mark.slow
def test_a_new_item_by_its_text(run):
    text = "Movie: The Blood of Grave (1999). Genres: Horror."
    found = as_json(run, "--new-item", text, "--k", 3)
    assert [one["user"] for one in found["users"]] == load(run).recommend_users(text, k=3)
    assert len(found["alike"]) == 3
    placed = as_json(run, "--new-item", text, "--user", 3)
    assert 1 <= placed["place"] <= placed["of"]
    assert f"place {placed['place']} of {placed['of']}" in recommend(run, "--new-item", text, "--user", 3).stdout


def test_everybody_goes_into_a_parquet_file(run, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    found = as_json(run, "--all", "--out", tmp_path / "recs.parquet", "--k", 2)
    assert found["rows"] == parquet.read_table(tmp_path / "recs.parquet").num_rows == 80


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--user", "999"], "there is no user 999 in the training data, which has 40, ids 0 to 39"),
        (["--like", "1,999"], "there is no item 999 in the training data, which has 50, ids 0 to 49"),
        (["--like", "1,,3"], "must be ids of items with commas between them"),
        (["--like", "1,x"], "there is no item x in the training data"),
        (["--user", "1", "--like", "2"], "name one"),
        ([], "say for whom"),
        (["--all"], "every user is --all --out FILE.parquet"),
        (["--all", "--out", "a.csv"], "--out=a.csv must end in .parquet"),
        (["--all", "--out", "a.parquet", "--user", "1"], "every user is --all --out FILE.parquet"),
        (["--new-item", "x", "--like", "1"], "--new-item goes with --user, or alone"),
        (["--user", "1", "--k", "0"], "k=0 must be a whole number of at least 1"),
        (["data.n_users=41", "--user", "1"], "the data has 41 users and 50 items"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(run, words, sentence):
    found = recommend(run, *words)
    assert found.exit_code != 0
    assert sentence in " ".join(found.stderr.split())


def test_a_run_of_something_else_is_refused(run, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "metrics.jsonl").touch()
    (other / "config.yaml").write_text("epochs: 3\n")
    assert "is not a run of workload: recommender" in recommend(other, "--user", 1).stderr
    assert "is not a run folder" in recommend(tmp_path / "nothing", "--user", 1).stderr


def test_the_page_of_the_run_shows_people_with_recommendations(run):
    people = json.loads((run / "recommendations.json").read_text())["people"]
    assert len(people) == 4
    assert people[0]["recommended"][0] in (run / "report.html").read_text()
