"""The measured convolutions: what the table holds, and what is made of it."""

from dataclasses import replace

import pytest

from brim.memory.kernels.convolution_measured import (
    RULE,
    SLACK,
    Expression,
    Pass,
    copies,
    estimate,
    evaluate,
    explanations,
    extras,
    table,
    workspace,
)
from brim.memory.kernels.convolution_rules import Problem, forward, winograd

ROWS = range(0, 37_592, 163)


@pytest.mark.parametrize("direction", list(Pass))
def test_what_explains_a_row_gives_its_bytes(direction: Pass) -> None:
    for row in ROWS:
        measured = table().size(row, direction)
        for expression, _ in explanations(row, direction):
            size = evaluate(expression, table().problem(row), direction)
            # A rule counts as right within half a percent, and what only scales is rounded to one.
            assert abs(size - measured) <= max(2 * SLACK, measured // 100), (row, expression)


@pytest.mark.parametrize(("direction", "at_least"), [(Pass.FORWARD, 0.9), (Pass.INPUT, 0.9), (Pass.WEIGHT, 0.85)])
def test_most_measured_convolutions_get_back_their_own_bytes(direction: Pass, at_least: float) -> None:
    right = 0
    for row in ROWS:
        measured = table().size(row, direction)
        right += abs(workspace(table().problem(row), direction) - measured) <= max(SLACK, measured // 200)
    assert right >= at_least * len(ROWS)


def test_a_row_is_its_own_nearest_neighbour() -> None:
    for row in ROWS:
        neighbours = table().neighbours(table().problem(row), Pass.WEIGHT)
        assert min(distance for _, distance in neighbours) == pytest.approx(0, abs=1e-5)


def test_without_neighbours_the_rule_decides(problem: Problem) -> None:
    assert estimate(problem, Pass.FORWARD, []) == forward(problem)
    assert evaluate(RULE, problem, Pass.FORWARD) == forward(problem)


def test_an_empty_batch_has_no_neighbours(problem: Problem) -> None:
    assert workspace(replace(problem, batch=0), Pass.FORWARD) == forward(replace(problem, batch=0))


def test_the_head_of_deeplab_adds_up_its_filter_eight_times() -> None:
    """2048 channels to 256, dilated, 32 x 32 pixels: 180 MiB were what a training's peak held besides all else."""
    head = Problem(
        batch=2, channels_in=2048, channels_out=256, groups=1, pixels_in=1024, pixels_out=1024, taps=9, strided=False,
        element=4, squares=2 * 64, dilated=True,
    )  # fmt: skip
    assert workspace(head, Pass.WEIGHT) // 2**20 == 180
    assert workspace(head, Pass.FORWARD) // 2**20 == 36
    assert workspace(replace(head, element=2), Pass.WEIGHT) // 2**20 < 40  # bf16 does not


def test_copies_fill_up_channels(problem: Problem) -> None:
    thin = replace(problem, channels_in=3)
    x, y, w = thin.x, thin.y, 2 * thin.weights
    assert copies(thin)["xyw"] == x + y + w
    assert copies(thin)["XyA"] == x // 3 * 8 + y + w // 3 * 8
    assert copies(thin)["ZyD"] == x // 3 * 4 + y + w // 3 * 4
    assert copies(problem)["XYC"] == copies(problem)["xyw"]


def test_an_expression_follows_the_problem(problem: Problem) -> None:
    larger = replace(problem, batch=48)
    per_image = Expression("", "images", 1)
    assert evaluate(per_image, larger, Pass.WEIGHT) - 16 == 3 * (evaluate(per_image, problem, Pass.WEIGHT) - 16)
    fixed = Expression("", "filters", 5)
    assert evaluate(fixed, larger, Pass.WEIGHT) == evaluate(fixed, problem, Pass.WEIGHT) == 5 * problem.sums + 16
    assert extras(problem)["tiles"] == 9 * 65_536


def test_winograd_transforms_squares(problem: Problem) -> None:
    """384 to 384 channels over 128 x 128 pixels, twelve images, fp32: as measured."""
    large = replace(problem, batch=12, channels_in=384, channels_out=384, element=4, squares=12 * 32 * 32)
    assert winograd(large) == 1_380_188_160


@pytest.mark.parametrize("direction", list(Pass))
@pytest.mark.parametrize("element", [2, 4, 8])
def test_unusual_problems_have_an_answer(problem: Problem, direction: Pass, element: int) -> None:
    """Far from all that was measured: three dimensions with channels last, groups, a huge filter."""
    changes: list[dict[str, int | bool]] = [
        {"dimensions": 3, "channels_last": True, "squares": 0},
        {"groups": 4, "dilated": True},
        {"groups": 64, "channels_out": 64, "channels_last": True},
        {"taps": 31 * 31, "widest": 31},
        {"channels_in": 1, "channels_out": 1, "pixels_in": 1, "pixels_out": 1},
    ]
    for change in changes:
        assert workspace(replace(problem, element=element, **change), direction) >= 0


def test_groups_are_filled_up_or_taken_eight_at_a_time(problem: Problem) -> None:
    grouped = replace(problem, channels_in=96, channels_out=96, groups=4)
    sizes = copies(grouped)
    filled = (grouped.x + grouped.y) * 32 // 24 + 4 * 32 * 32 * grouped.taps * grouped.element
    assert sizes["filled groups"] == filled
    assert sizes["eight groups"] == grouped.x + grouped.y + grouped.weights * grouped.element
    many = replace(grouped, groups=16)
    assert copies(many)["eight groups"] == (many.x + many.y + many.weights * many.element) // 2
    assert "filled groups" not in copies(problem)
