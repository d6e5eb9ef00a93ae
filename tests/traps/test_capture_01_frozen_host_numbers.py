"""Capture trap 1: numbers of the host (rates, decay, counts, scales, clip factors) are frozen into the graph."""

import pytest
import torch

pytestmark = pytest.mark.gpu
MAKERS = {
    "Adam, fused": lambda model: torch.optim.Adam(model.parameters(), lr=2.0**-8, fused=True),
    "Adam": lambda model: torch.optim.Adam(model.parameters(), lr=2.0**-8),
    "AdamW": lambda model: torch.optim.AdamW(model.parameters(), lr=2.0**-8),
    "SGD": lambda model: torch.optim.SGD(model.parameters(), lr=2.0**-8, momentum=0.9, weight_decay=0.01),
}


def moving(name, values):
    """Sets a number of the optimizer after every step, as schedules and callbacks do."""

    def after(number, model, optimizer):
        for group in optimizer.param_groups:
            if name in group:
                group[name] = values[number % len(values)]

    return after


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("lr", [2.0**-8, 2.0**-6, 2.0**-10]),
        ("weight_decay", [0.0, 0.5, 0.1]),
        ("betas", [(0.9, 0.999), (0.5, 0.99)]),
        ("momentum", [0.9, 0.5, 0.1]),
        ("eps", [1e-8, 1e-2]),
    ],
)
def test_numbers_that_move_between_steps_move_in_the_training(twins, make, name, values):
    batches = [tuple(column[i : i + 32] for column in twins.rows()) for i in range(0, 640, 32)] * 2
    settings = {"optimizer": make, "after": moving(name, values)}
    eager, tried = (twins.step_through(twins.mlp, batches, how, **settings) for how in ("off", "auto"))
    assert tried.differs_from(eager) <= 1e-5


@pytest.mark.parametrize("fused", [True, False])
def test_the_count_in_adams_correction_goes_on(twins, fused):
    eager, captured = twins(
        twins.mlp, twins.rows(), optimizer=lambda p: torch.optim.Adam(p, lr=2.0**-8, betas=(0.9, 0.9999), fused=fused)
    )
    assert captured.is_accounted_for
    assert captured.differs_from(eager) <= 1e-5
    counts = {int(state["step"]) for state in captured.optimizer.state.values()}
    assert counts == {len(captured.losses)}


def test_the_clip_factor_is_that_of_each_batch(twins):
    x, y = twins.rows()
    y = y * torch.logspace(-2, 2, 640).unsqueeze(1)  # norms far below and far above the limit
    eager, captured = twins(
        twins.mlp, (x, y), shuffle=False, clip_norm=1.0, optimizer=lambda p: torch.optim.SGD(p, lr=0.01)
    )
    assert captured.is_accounted_for
    assert captured.differs_from(eager) <= 1e-5


def test_the_loss_scale_shrinks_in_the_graph(twins):
    x, y = twins.rows(1920)
    for step in (30, 40, 50):
        y[32 * step : 32 * step + 32] = 3e4  # beyond fp16 once it is scaled
    settings = {"precision": "fp16", "epochs": 1, "shuffle": False}
    eager, captured = twins(twins.mlp, (x, y), **settings)
    assert captured.is_accounted_for
    scales = [one.trainer.precision.scaler.get_scale() for one in (captured, eager)]
    assert scales[0] == scales[1] <= 65536.0 / 8
    assert captured.differs_from(eager) <= 1e-3
