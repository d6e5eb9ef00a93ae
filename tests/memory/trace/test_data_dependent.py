"""What depends on data: the true answer where whole numbers are known, else a harmless answer or an upper bound."""

import pytest
import torch
from torch import nn

from brim.errors import ModelError
from brim.hardware.cards import H200
from brim.memory import forecast
from brim.memory.as_cuda.mode import as_cuda
from brim.memory.trace.trace import Recorder


class Seen(nn.Module):
    """A layer, and a look at the batch; what was seen is kept outside."""

    def __init__(self, look, seen: list) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.look, self.seen = look, seen

    def forward(self, x):
        self.seen.append(self.look(x))
        return self.layer(x.float())


IDS = [[1, 2, 3, 0, 0, 0, 0, 0], [4, 4, 4, 4, 4, 4, 0, 0], [7, 0, 0, 0, 0, 0, 0, 9]]  # 11 of 24 are not 0


def ids(n: int):
    return (torch.tensor(IDS),), {}


def floats(n: int):
    return (torch.randn(3, 8),), {}


def see(look, batch=ids):
    """What a model sees in its forward pass, and the notes of the forecast."""
    seen: list = []
    notes = forecast(lambda: Seen(look, seen), batch, batch_size=3, card=H200).notes
    return seen[0], notes


def known(run):
    """What is known of a tensor that a function makes of fake ones."""
    recorder = Recorder(H200, (2, 11))
    with as_cuda(H200, (2, 11), recorder), recorder:
        return recorder._values.of(run())


# -- whole numbers are known -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("look", "answer"),
    [
        (lambda x: x.max().item(), 9),
        (lambda x: int(x.sum()), 46),
        (lambda x: bool((x > 0).all()), False),
        (lambda x: bool((x >= 0).all()), True),
        (lambda x: x[0, :3].tolist(), [1, 2, 3]),
        (lambda x: torch.equal(x, x.clone()), True),
        (lambda x: torch.equal(x, x + 1), False),
        (lambda x: int((x != 0).sum(1).max()), 6),
        (lambda x: [len(part) for part in x[0].split([3, 5])], [3, 5]),
        (lambda x: 4 in x, True),
    ],
    ids=["max", "sum", "all", "all true", "tolist", "equal", "not equal", "longest", "split", "in"],
)
def test_numbers_asked_for_are_the_true_ones(look, answer) -> None:
    assert see(look) == (answer, ())


@pytest.mark.parametrize(
    ("look", "shape"),
    [
        (lambda x: x[x > 0], (11,)),
        (lambda x: x[(x > 0).any(1)], (3, 8)),
        (lambda x: x[(x > 5).any(1)], (1, 8)),
        (lambda x: x.masked_select(x > 0), (11,)),
        (lambda x: x.nonzero(), (11, 2)),
        (lambda x: torch.where(x > 0)[0], (11,)),
        (lambda x: torch.argwhere(x == 4), (6, 2)),
        (lambda x: x.float()[x[:, 0] > 1], (2, 8)),
        (lambda x: torch.repeat_interleave(x[0], x[0]), (6,)),
        (lambda x: torch.zeros(4, 3, 8)[:, x > 0], (4, 11)),
    ],
    ids=["mask", "rows", "few rows", "select", "nonzero", "where", "argwhere", "floats", "repeat", "second dim"],
)
def test_masks_of_whole_numbers_pick_what_they_really_pick(look, shape) -> None:
    assert see(lambda x: tuple(look(x).shape)) == (shape, ())


def test_values_follow_arithmetic() -> None:
    assert known(lambda: (torch.arange(6).view(2, 3) * 2 + 1)[:, 1:].sum(1)).tolist() == [8, 20]


def test_values_follow_writing_in_place() -> None:
    def write():
        x = torch.zeros(4, dtype=torch.long)
        x[1:3] = 7
        x.add_(1)
        return x

    assert known(write).tolist() == [1, 8, 8, 1]


def test_what_was_written_from_the_unknown_is_not_known() -> None:
    def write():
        x = torch.zeros(2000)
        x.copy_(torch.randn(2000))
        return x > 0

    assert known(write) is None


def test_indices_of_what_is_written_stay_known() -> None:
    """A layer of a graph network adds up messages by the edges, and then counts them."""

    def look(x):
        edges = x.flatten()
        torch.zeros(10, 8).index_add_(0, edges, torch.randn(24, 8))
        return edges.bincount(minlength=10).shape

    assert see(look) == ((10,), ())


def test_what_a_view_was_written_from_the_unknown_is_not_known_of_the_whole() -> None:
    def write():
        x = torch.zeros(2000, dtype=torch.bool)
        x[:1000].copy_(torch.randn(1000) > 0)
        return x

    assert known(write) is None


def test_the_generator_of_the_user_draws_nothing() -> None:
    mine = torch.Generator().manual_seed(3)
    before = mine.get_state()
    see(lambda x: torch.randperm(8, generator=mine)[:3].tolist())
    assert torch.equal(mine.get_state(), before)


def test_floats_are_not_known() -> None:
    assert known(lambda: torch.randn(4)) is None
    assert known(lambda: torch.zeros(1 << 20)) is None  # known by nature, and too many


def test_a_few_floats_follow_from_what_is_known() -> None:
    assert known(lambda: torch.arange(4) / 2).tolist() == [0, 0.5, 1, 1.5]


def test_masks_of_attention_are_known_as_numbers_too() -> None:
    """Longformer looks into such a mask for where its global attention is."""

    def mask():
        positions = torch.arange(64)
        numbers = torch.where(positions[:, None] >= positions, 0.0, torch.tensor(float("-inf")))
        numbers[:, 0] = 1.0
        return (numbers > 0).sum()

    assert known(mask).item() == 64


def test_what_is_drawn_is_not_known() -> None:
    assert known(lambda: torch.rand_like(torch.arange(1 << 12).float())) is None
    assert known(lambda: torch.zeros(1 << 12).normal_()) is None


def test_a_full_mask_that_a_model_makes_is_seen_to_be_full() -> None:
    """OPT makes one of ones where it is given none, and does without where all of it is set."""
    full, _ = see(lambda x: bool(torch.ones(64, 512).bool().sum() == 64 * 512))
    assert full


@pytest.mark.parametrize("dtype", [torch.long, torch.float])
def test_the_data_of_the_user_is_not_written_to(dtype: torch.dtype) -> None:
    mine = torch.ones(3, 8, dtype=dtype)
    see(lambda x: x.add_(5), lambda n: ((mine,), {}))
    assert mine.tolist() == [[1] * 8] * 3


# -- floats are not ----------------------------------------------------------------------------------------------------


def test_answers_for_what_is_not_known_are_harmless() -> None:
    assert see(lambda x: x.sum().item(), floats) == (0.5, ())


@pytest.mark.parametrize("ask", [lambda x: bool(x.sum() > 0), lambda x: torch.allclose(x, x), lambda x: bool(x.any())])
def test_a_branch_that_only_the_data_chooses_is_told(ask) -> None:
    answer, notes = see(ask, floats)
    assert (answer, len(notes)) == (False, 1)
    assert notes[0].startswith("a yes or no was asked for at ")
    assert notes[0].endswith("that only the data knows: no was taken")


@pytest.mark.parametrize(
    ("look", "healthy"),
    [
        (lambda x: bool(torch.isnan(x).any()), False),
        (lambda x: bool(torch.isinf(x.sum())), False),
        (lambda x: bool(torch.isfinite(x.sum())), True),
        (lambda x: bool(torch.isfinite(x).all()), True),
        (lambda x: not torch.isfinite(x.sum()), False),
        (lambda x: bool((x != x).any()), False),
        (lambda x: bool(torch.isnan(x).sum() == 0), True),
        (lambda x: bool(x.isnan().sum() > 0), False),
        (lambda x: bool(x.isinf().sum(0).any()), False),
        (lambda x: bool(torch.isfinite(x.sum()).logical_not()), False),
    ],
)
def test_looks_for_bad_numbers_find_none_and_are_not_told(look, healthy) -> None:
    assert see(look, floats) == (healthy, ())


@pytest.mark.parametrize(
    ("look", "most"),
    [
        (lambda x: x[x > 0], (24,)),
        (lambda x: x[x[:, 0] > 0], (3, 8)),
        (lambda x: x.masked_select(x > 0), (24,)),
        (lambda x: (x > 0).nonzero(), (24, 2)),
        (lambda x: torch.unique(x), (24,)),
        (lambda x: torch.unique_consecutive(x.flatten()), (24,)),
    ],
    ids=["mask", "rows", "select", "nonzero", "unique", "consecutive"],
)
def test_masks_of_floats_pick_all_that_they_could_with_a_note(look, most) -> None:
    shape, notes = see(lambda x: tuple(look(x).shape), floats)
    assert shape == most
    assert len(notes) == 1
    assert notes[0].endswith("gives as many values as its data says: the most it could give was taken")


@pytest.mark.parametrize(
    ("look", "taken"),
    [
        (lambda x: torch.repeat_interleave(x, (x[:, 0] > 0).long() + 3, dim=0), (3, 8)),
        (lambda x: torch.bincount((x.flatten() > 0).long() * 99), (24,)),
    ],
    ids=["repeat", "bincount"],
)
def test_of_what_has_no_bound_the_note_says_that_there_may_be_more(look, taken) -> None:
    shape, notes = see(lambda x: tuple(look(x).shape), floats)
    assert shape == taken
    assert notes[0].endswith("as many as it was given were taken, and it may give more")


# -- what goes wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [ids, floats], ids=["whole numbers", "floats"])
def test_the_inverse_of_unique_has_the_shape_of_what_it_came_from(batch) -> None:
    assert see(lambda x: tuple(torch.unique(x, return_inverse=True)[1].shape), batch)[0] == (3, 8)


@pytest.mark.parametrize("batch", [ids, floats], ids=["whole numbers", "floats"])
def test_unique_rows_are_rows(batch) -> None:
    assert see(lambda x: tuple(torch.unique(x, dim=0).shape), batch)[0] == (3, 8)


def test_what_an_initialisation_asks_of_its_weights_is_not_told() -> None:
    """torch's orthogonal weights look at what was drawn, as transformers' truncated normal numbers do."""

    def model():
        layer = nn.Linear(8, 8)
        assert not (layer.weight > 2).any()
        return layer

    assert forecast(model, floats, batch_size=3, card=H200).notes == ()


@pytest.mark.parametrize("rates", [lambda: torch.linspace(0, 0.3, 4), lambda: torch.logspace(-2, -1, 4)])
def test_rates_for_layers_one_after_the_other_are_what_they_are(rates) -> None:
    """Stochastic depth is built from them, and leaves nothing in memory where its rate is 0."""
    assert see(lambda _: [rate.item() for rate in rates()], floats) == (rates().tolist(), ())


@pytest.mark.parametrize(("batch", "rows"), [(ids, 2), (floats, 3)], ids=["whole numbers", "floats"])
def test_consecutive_rows_are_rows(batch, rows: int) -> None:
    look = lambda x: tuple(torch.unique_consecutive(x[[0, 0, 1]], dim=0).shape)  # noqa: E731
    assert see(look, batch)[0] == (rows, 8)


@pytest.mark.parametrize(
    ("right", "solution", "residuals"),
    [(lambda x: x[:, 5:], (2, 3), (3,)), (lambda x: x[:, 5], (2,), ())],
    ids=["matrix", "vector"],
)
def test_least_squares_have_a_shape_that_is_known(right, solution, residuals) -> None:
    look = lambda x: [part.shape for part in torch.linalg.lstsq(x[:, :2], right(x))][:2]  # noqa: E731
    assert see(look, floats) == ([solution, residuals], ())


def test_a_histogram_of_whole_numbers_that_the_cpu_cannot_compute_is_one_of_unknown_numbers() -> None:
    """Mixtures of experts count tokens so where a table says which expert a token goes to."""
    seen, _ = see(lambda x: torch.histc(x.int(), bins=10, min=0, max=9).cumsum(0).shape)
    assert seen == (10,)


def test_what_gives_as_many_values_as_its_data_says_in_an_unknown_way_is_refused_by_name() -> None:
    with pytest.raises(ModelError, match=r"aten._unique.default gives as many values as its data says"):
        see(lambda x: torch.ops.aten._unique(x), floats)


def test_what_unique_found_can_be_computed_with() -> None:
    def look(x):
        found = torch.unique(x)
        return len(found + torch.arange(len(found)))

    assert see(look)[0] >= 7


def test_bincount_has_its_smallest_length() -> None:
    assert see(lambda x: len(torch.bincount(x.flatten(), minlength=1000)))[0] == 1000


def test_what_a_model_asserts_about_its_numbers_holds() -> None:
    def look(x):
        assert torch.isfinite(x).all()

    see(look, floats)


def test_distributions_can_be_used() -> None:
    sample, _ = see(lambda x: torch.distributions.Normal(x, torch.ones_like(x)).rsample(), floats)
    assert sample.shape == floats(3)[0][0].shape


def test_ctc_loss_can_be_used() -> None:
    def loss(output):
        logits = output.expand(20, 3, 8).log_softmax(-1)
        lengths = torch.full((3,), 20), torch.full((3,), 4)
        return nn.functional.ctc_loss(logits, torch.ones(3, 4, dtype=torch.long), *lengths)

    assert forecast(lambda: nn.Linear(8, 8), floats, loss, batch_size=3, card=H200).allocated > 0


def test_arithmetic_of_plain_numbers_is_known() -> None:
    """Longformer divides lengths by ``torch.div(512, 128)``, and views its tensors in as many chunks."""
    recorder = Recorder(H200, (2, 11))
    with as_cuda(H200, (2, 11), recorder), recorder:
        chunks = torch.div(512, 128, rounding_mode="trunc") - 1
        assert torch.empty(6, 5).view(chunks, 2, 5).shape == (3, 2, 5)
    assert not recorder.trace.notes
