"""What becomes of a shape: eager at first, due, captured or refused, dropped."""

import pytest
import torch
from torch import nn

from brim.engine.captured import graph_cache
from brim.engine.captured.graph_cache import MOST_EVICTED, MOST_GRAPHS, MOST_POSTPONED, GraphCache
from brim.engine.captured.report import Refusal, StateNotRestored, Unproven

WINDOW = [(torch.zeros(2),)]


@pytest.fixture
def cache(monkeypatch):
    monkeypatch.setattr(graph_cache, "release_memory", lambda device: None)
    return GraphCache(nn.Linear(1, 1), torch.device("cpu"), warm_up=3, samples_kept=2, subject="steps are", tell=print)


def refuse(samples):
    raise Refusal("the reason")


def test_a_shape_is_due_after_its_eager_passes_with_samples_of_the_last_ones(cache):
    assert [cache.note_eager_pass(WINDOW, ("a",)) for _ in range(2)] == [1, 2]
    assert not cache.is_due(("a",)) and not cache.is_due(("b",))
    cache.note_eager_pass(WINDOW, ("a",))
    assert cache.is_due(("a",))
    handed = []
    assert cache.attempt(("a",), lambda samples: handed.extend(samples) or "graph") == ""
    assert len(handed) == 2 and cache.graphs == {("a",): "graph"} and not cache.samples
    assert cache.report.captured and cache.report.graphs == 1


def test_a_shape_that_was_never_eager_is_not_due(cache):
    cache.warm_up = 1
    assert not cache.is_due(("new",))


def test_a_refused_shape_is_not_due_again_until_shapes_are_forgotten(cache):
    for _ in range(3):
        cache.note_eager_pass(WINDOW, ("a",))
    assert cache.attempt(("a",), refuse) == "the reason"
    assert not cache.is_due(("a",)) and not cache.graphs and not cache.report.reason
    cache.forget_shapes()
    for _ in range(3):
        cache.note_eager_pass(WINDOW, ("a",))
    assert cache.is_due(("a",))


def test_a_shape_whose_samples_prove_nothing_is_tried_on_others_but_not_for_ever(cache):
    def prove_nothing(samples):
        raise Unproven("all is NaN")

    for _ in range(MOST_POSTPONED):
        for _ in range(3):
            assert not cache.is_due(("a",))
            cache.note_eager_pass(WINDOW, ("a",))
        assert cache.is_due(("a",)) and cache.attempt(("a",), prove_nothing) == "" and not cache.graphs
    for _ in range(3):
        cache.note_eager_pass(WINDOW, ("a",))
    assert cache.attempt(("a",), prove_nothing) == "all is NaN"
    assert not cache.is_due(("a",))


def test_a_state_that_could_not_be_put_back_ends_the_run(cache):
    def spoil(samples):
        raise StateNotRestored("the state")

    with pytest.raises(StateNotRestored):
        cache.attempt(("a",), spoil)


def test_nothing_is_due_once_it_is_stopped(cache):
    for _ in range(3):
        cache.note_eager_pass(WINDOW, ("a",))
    cache.stop("the reason")
    assert not cache.is_due(("a",)) and not cache.samples and cache.report.reason == "the reason"


def test_a_sample_without_memory_refuses_its_shape_alone(cache, monkeypatch):
    def runs_out(window):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(graph_cache, "own_copy", runs_out)
    for _ in range(3):
        cache.note_eager_pass(WINDOW, ("a",))
    assert not cache.is_due(("a",)) and not cache.samples and not cache.report.reason


def test_the_oldest_graph_goes_for_a_new_one_and_is_not_captured_again(cache):
    for number in range(MOST_GRAPHS + 1):
        cache.attempt((number,), lambda samples: "graph")
    assert list(cache.graphs) == [(number,) for number in range(1, MOST_GRAPHS + 1)]
    for _ in range(3):
        cache.note_eager_pass(WINDOW, (0,))
    assert not cache.is_due((0,))
    assert cache.drop() and not cache.graphs and not cache.drop()


def test_samples_are_kept_of_a_few_shapes(monkeypatch):
    few = GraphCache(
        nn.Linear(1, 1),
        torch.device("cpu"),
        warm_up=2,
        samples_kept=1,
        subject="steps are",
        tell=print,
        sampled_shapes=2,
    )
    for number in range(4):
        for _ in range(2):
            few.note_eager_pass(WINDOW, (number,))
    assert list(few.samples) == [(2,), (3,)]


def captured_of(cache, shapes):
    """Which of them are captured, each after its eager passes."""
    found = []
    for shape in shapes:
        for _ in range(cache.warm_up):
            cache.note_eager_pass(WINDOW, (shape,))
        if cache.is_due((shape,)):
            cache.attempt((shape,), lambda samples, shape=shape: shape)
            found.append(shape)
    return found


def test_batches_of_ever_new_shapes_are_not_captured_without_end(cache):
    most = MOST_GRAPHS + MOST_EVICTED
    assert captured_of(cache, range(3 * most)) == list(range(most))
    assert len(cache.graphs) == MOST_GRAPHS


def test_who_chooses_the_graph_that_goes_decides_by_itself_how_many_do(cache):
    cache.choose_evicted = min
    assert captured_of(cache, range(30)) == list(range(30))
