"""Labels as long as there are classes: the batches of other lengths tell where the classes are."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import brim
from brim.engine.evaluation.metrics.named import named_metric
from brim.engine.evaluation.metrics.seen_batch import SeenBatch
from brim.engine.evaluation.metrics.summed_metric import added, sums_on_host
from brim.errors import ConfigError

CLASSES = 6


def batches(lengths, axis):
    made = torch.Generator().manual_seed(1)
    for length in lengths:
        scores = torch.randn(8, length, CLASSES, generator=made)
        target = torch.randint(0, CLASSES, (8, length), generator=made)
        yield scores.movedim(-1, axis), target


def value(name, of_batches):
    metric, sums = named_metric(name), None
    for scores, target in of_batches:
        sums = added(sums, metric.part(SeenBatch(nn.Identity(), None, scores, (None, target), 8)))
    return metric.finish(sums_on_host([sums])[0])


@pytest.mark.parametrize("name", ["accuracy", "top5_accuracy", "f1", "precision", "recall"])
@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize("lengths", [(4, 6, 7), (6, 6, 5), (6, 9, 6)])
def test_every_batch_is_read_as_the_clear_ones_are(name, axis, lengths):
    """Whichever comes first. Samples and positions in one dimension leave no choice."""
    flat = [(scores.movedim(axis, -1).flatten(0, 1), target.flatten()) for scores, target in batches(lengths, axis)]
    assert value(name, batches(lengths, axis)) == pytest.approx(value(name, flat))


def test_where_no_batch_tells_it_is_refused():
    with pytest.raises(ConfigError, match=r"second dimension of the outputs or the last is not known.*pass a function"):
        value("accuracy", batches((6, 6), -1))


def test_outputs_of_both_kinds_are_refused():
    with pytest.raises(ConfigError, match=r"some batches .* second dimension, and those of others in the last"):
        value("f1", [*batches((4,), 1), *batches((4,), -1)])


def test_in_an_evaluation():
    torch.manual_seed(0)
    model = nn.Linear(4, CLASSES)
    data = [(torch.randn(8, length, 4), torch.randint(0, CLASSES, (8, length))) for length in (6, 5, 6)]
    run = brim.Trainer(
        model, data, device="cpu", loss_fn=lambda pred, target: F.cross_entropy(pred.flatten(0, 1), target.flatten())
    )
    with torch.no_grad():
        hits = torch.cat([(model(x).argmax(-1) == y).flatten() for x, y in data])
    assert run.evaluate(data, metrics="accuracy")["accuracy"] == pytest.approx(float(hits.double().mean()))
