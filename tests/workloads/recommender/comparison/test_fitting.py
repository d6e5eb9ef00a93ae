import pytest
import torch

from brim.workloads.recommender import EASE, EmbeddedDataset
from brim.workloads.recommender.comparison import ComparisonSettings, Judge
from brim.workloads.recommender.comparison.fitting import EASE_REGULARISATIONS, fit, tuned_ease

SETTINGS = ComparisonSettings(seeds=1, epochs=2, embed_dim=8, people=16)


@pytest.fixture(scope="module")
def judge():
    dataset = EmbeddedDataset(40, 60)
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
