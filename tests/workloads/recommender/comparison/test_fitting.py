import pytest
import torch

from brim.workloads.recommender import EASE, EmbeddedDataset
from brim.workloads.recommender.comparison import ComparisonSettings, Judge, compare
from brim.workloads.recommender.comparison.fitting import EASE_REGULARISATIONS, fit, linear_rows, solve, tuned_ease
from brim.workloads.recommender.comparison.judge import NDCG
from brim.workloads.recommender.linear import LinearSettings

SETTINGS = ComparisonSettings(seeds=1, epochs=2, embed_dim=8, people=16)


@pytest.fixture(scope="module")
def dataset():
    return EmbeddedDataset(40, 60)


@pytest.fixture(scope="module")
def judge(dataset):
    return Judge(*(dataset.get_split_data(name) for name in ("train", "validation", "test")), "cpu")


def test_a_training_is_quiet_tells_its_epochs_and_is_a_function_of_the_seed(judge, capsys):
    told, encodings = [], torch.randn(60, 12, generator=torch.Generator().manual_seed(0))
    first, again, other = (fit(judge, "text + ids", 6.0, seed, SETTINGS, encodings, told.append) for seed in (0, 0, 1))
    assert told[:2] == [f"text + ids, seed 0, temperature 6: epoch {epoch} of at most 2" for epoch in (1, 2)]
    assert capsys.readouterr().err == ""
    assert first.validation == again.validation == judge.choose_by(first.model)
    assert torch.equal(first.model.ids.weight, again.model.ids.weight)
    assert not torch.equal(first.model.ids.weight, other.model.ids.weight)
    assert first.epochs == 2


def test_ids_read_no_encodings(judge):
    fitted = fit(judge, "ids", 6.0, 0, SETTINGS, torch.zeros(60, 12), lambda sentence: None)
    assert fitted.model.projection is None


def test_the_validation_split_chooses_the_regularisation(judge):
    model, chosen = tuned_ease(judge)
    scores = {value: judge.choose_by(EASE(judge.train, value)) for value in EASE_REGULARISATIONS}
    assert judge.choose_by(model) == max(scores.values()) == scores[chosen]


def test_the_validation_split_chooses_for_each_model_from_the_same_settings(judge):
    encodings = torch.randn(60, 12)
    settings = ComparisonSettings(kind="linear", trials=4, seeds=1)
    rows = list(linear_rows(judge, settings, encodings, lambda sentence: None))
    assert [row.name for row in rows] == ["ids, seed 0", "text + ids, seed 0", "random + ids, seed 0"]
    for row in rows:
        trials = [{name: value for name, value in one.items() if name != "validation"} for one in row.details["tried"]]
        assert trials == [vars(LinearSettings.drawn(number)) for number in range(4)]
        best = max(row.details["tried"], key=lambda one: one["validation"])
        assert row.details["chosen"].items() <= best.items()
    text = solve(judge, "text + ids", LinearSettings(**rows[1].details["chosen"]), 0, encodings)
    assert rows[1].metrics[NDCG].mean == pytest.approx(float(judge.slices(text)[NDCG].mean()))


def test_seeds_draw_random_vectors_alone_and_the_rows_say_so(judge):
    settings = ComparisonSettings(kind="linear", trials=1, seeds=2)
    rows = list(linear_rows(judge, settings, torch.randn(60, 12), lambda sentence: None))
    assert rows[2].metrics == rows[3].metrics
    assert "the same for every seed" in rows[3].note
    assert "the same for every seed" not in rows[5].note


def test_a_comparison_can_be_of_linear_models(dataset):
    settings = ComparisonSettings(kind="linear", seeds=1).quick()
    found = compare(dataset, torch.randn(60, 12), settings)
    assert [row.name for row in found.warm[-3:]] == ["ids, seed 0", "text + ids, seed 0", "random + ids, seed 0"]
    assert [row.name for row in found.cold[2:]] == ["text + ids", "random + ids"]
    assert found.bars and found.above
