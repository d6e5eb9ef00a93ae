"""The steps that are traced: what comes in which order, and how errors in the user's code are told."""

import copy
import random

import numpy as np
import pytest
import torch
from torch import nn

from brim.errors import ConfigError, ModelError
from brim.hardware.cards import H200
from brim.memory.forecast import make_job
from brim.memory.trace.steps import trace_steps
from brim.memory.trace.trace import Trace


def batch(n: int):
    return (torch.randn(n, 16),), {}


def trace(model=lambda: nn.Linear(16, 4), batch=batch, loss=None, optimizer=None, steps: int = 3, **more) -> Trace:
    return trace_steps(make_job(model, batch, loss, optimizer, **more), 8, H200, (2, 11), steps)


def kinds(trace: Trace, *wanted: str) -> list[tuple[str, str, int]]:
    return [(s.kind, s.module, s.size) for s in trace.storages if s.kind in wanted]


def line_of(function, below: int = 0) -> str:
    return f"{__file__}:{function.__code__.co_firstlineno + below}"


# -- what happens ------------------------------------------------------------------------------------------------------


def test_phases_come_in_order() -> None:
    step = ["batch", "forward", "backward", "optimizer"]
    assert [phase for _, phase in trace().marks] == ["move", *step * 3]


@pytest.mark.parametrize("fails", [False, True])
def test_what_the_users_code_draws_of_python_and_numpy_is_put_back(fails: bool) -> None:
    def drawn(n: int):
        values = torch.tensor([[random.random() + np.random.rand()] * 16] * n)
        return (values if not fails else values[0, 0],), {}

    random.seed(1), np.random.seed(1)
    expected = random.random(), np.random.rand()
    random.seed(1), np.random.seed(1)
    if fails:
        with pytest.raises(ModelError):
            trace(batch=drawn)
    else:
        trace(batch=drawn)
    assert (random.random(), np.random.rand()) == expected


def test_slices_of_a_batch_come_before_the_optimizer() -> None:
    step = ["batch", "forward", "backward"] * 2
    assert [phase for _, phase in trace(accumulation=2).marks] == ["move", *[*step, "optimizer"] * 3]


def test_parameters_move_children_first_and_have_names() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(4))
            self.register_buffer("mean", torch.zeros(2))
            self.layer = nn.Linear(16, 4)

        def forward(self, x):
            return self.layer(x) * self.scale

    assert kinds(trace(Two), "parameters", "buffers") == [
        ("parameters", "layer.weight", 256), ("parameters", "layer.bias", 16), ("parameters", "scale", 16),
        ("buffers", "mean", 8),
    ]  # fmt: skip


def test_weights_of_a_recurrent_layer_are_copied_together() -> None:
    placed = kinds(
        trace(lambda: nn.GRU(16, 4), lambda n: ((torch.randn(n, 3, 16),), {}), lambda out: out[0].sum()), "parameters"
    )
    assert [size for _, _, size in placed] == [768, 192, 48, 48, 1056]


def test_gradients_and_optimizer_state_have_names() -> None:
    made = trace(steps=1)
    assert sorted(kinds(made, "gradients")) == [("gradients", "bias", 16), ("gradients", "weight", 256)]
    assert sorted(kinds(made, "optimizer")) == sorted(
        [("optimizer", "weight", 256), ("optimizer", "bias", 16)] * 2
        + [("optimizer", "weight", 4), ("optimizer", "bias", 4)]
    )


def test_the_batch_is_on_the_card() -> None:
    assert kinds(trace(steps=1), "batch") == [("batch", "", 8 * 16 * 4)]


def test_batches_may_be_nested() -> None:
    def nested(n: int):
        return (), {"inputs": {"a": torch.randn(n, 16), "b": [torch.randn(n, 16)], "name": "x"}}

    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 4)

        def forward(self, inputs):
            return self.layer(inputs["a"] + inputs["b"][0])

    assert len(kinds(trace(Nested, nested, steps=1), "batch")) == 2


def test_the_model_trains_even_where_it_was_left_in_evaluation() -> None:
    made = trace(lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(16, 4)).eval())
    assert any(storage.operator == "aten.native_dropout.default" for storage in made.storages)


def test_frozen_parameters_have_no_gradient_and_no_state() -> None:
    def frozen() -> nn.Module:
        model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 4))
        model[0].requires_grad_(False)
        return model

    names = {module for _, module, _ in kinds(trace(frozen), "gradients", "optimizer")}
    assert names == {"1.weight", "1.bias"}


def test_buffers_that_a_module_calls_its_cache_are_one() -> None:
    class Caching(nn.Module):
        cache_buffers = ("table",)

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 4)
            self.table = None

        def forward(self, x):
            self.table = torch.zeros(1000) if self.table is None else self.table
            return self.layer(x) + self.table[0]

    assert [size for _, _, size in kinds(trace(Caching), "cache")] == [4000]


def test_clipping_allocates_in_the_optimizer_phase() -> None:
    def made_by_optimizer(**more) -> int:
        return sum(storage.phase == "optimizer" for storage in trace(steps=1, **more).storages)

    assert made_by_optimizer(clip_norm=1.0) > made_by_optimizer()


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_as_many_steps_as_asked_for(steps: int) -> None:
    assert [phase for _, phase in trace(steps=steps).marks].count("optimizer") == steps


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def told(**job) -> str:
    with pytest.raises(ModelError) as caught:
        trace(**job)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_error_in_the_builder_has_its_line() -> None:
    def build() -> nn.Module:
        raise KeyError("width")

    assert told(model=build) == f"building the model failed at {line_of(build, 1)}: KeyError: 'width'"


def test_an_error_in_the_batch_has_its_line() -> None:
    def broken(n: int):
        return (torch.randn(n, 16) @ torch.randn(3, 3),), {}

    assert told(batch=broken).startswith(f"making a batch failed at {line_of(broken, 1)}: RuntimeError: ")


def test_an_error_in_the_forward_pass_has_its_line_and_its_module() -> None:
    class Wrong(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(16, 16), nn.Linear(15, 4))

        def forward(self, x):
            return self.inner(x)

    message = told(model=Wrong)
    assert message.startswith(f"the forward pass failed at {line_of(Wrong.forward, 1)} in inner.1 (Linear): ")


def test_an_error_in_the_loss_has_its_line() -> None:
    def loss(output):
        return output.sum() / 0 if output.shape[0] > 100 else output.no_such_thing

    assert told(loss=loss).startswith(f"the forward pass failed at {line_of(loss, 1)}: AttributeError: ")


def test_an_error_in_the_optimizer_has_its_line() -> None:
    def optimizer(parameters):
        return torch.optim.SGD(parameters, lr=-1)

    assert told(optimizer=optimizer).startswith(f"making the optimizer failed at {line_of(optimizer, 1)}: ValueError: ")


def test_a_failure_says_what_was_taken_for_data_and_the_least_that_training_takes() -> None:
    class Skips(nn.Linear):
        def forward(self, x):
            while x.norm() < 100:
                x = super().forward(x)
            return x

    def build() -> nn.Module:
        model = Skips(16, 16)
        model.register_buffer("table", torch.zeros(1 << 19))
        return model

    said = told(model=build)
    asked = f"a yes or no was asked for at {line_of(Skips.forward, 1)} that only the data knows: no was taken"
    assert said.startswith("the backward pass failed: RuntimeError: ")
    assert said.endswith(f"; {asked}; weights, buffers and gradients alone take 2.0 MiB")


def test_arrays_of_the_batch_are_the_users() -> None:
    class Writes(nn.Linear):
        def forward(self, x, counts):
            counts += 1
            return super().forward(x)

    mine = np.zeros(3)
    trace(lambda: Writes(16, 4), lambda n: ((torch.randn(n, 16), mine), {}))
    assert mine.tolist() == [0, 0, 0]


def test_a_part_that_is_copied_while_the_model_runs_is_watched_too() -> None:
    class Teacher(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.student, self.teacher = nn.Linear(16, 16), None

        def forward(self, x):
            if self.teacher is None:
                self.teacher = copy.deepcopy(self.student).requires_grad_(False)
            return self.student(x) - self.teacher(x)

    recorded = trace(Teacher)
    assert any(storage.operator == "aten.clone.default" and storage.phase == "forward" for storage in recorded.storages)


def test_a_loss_that_is_no_number_is_told() -> None:
    assert "the backward pass failed" in told(loss=lambda output: output)


def test_a_model_without_trainable_parameters_is_told() -> None:
    assert "empty parameter list" in told(model=lambda: nn.Linear(16, 4).requires_grad_(False))


def test_a_builder_of_something_else_is_told() -> None:
    assert told(model=lambda: 3) == "model= built an int; it must build a torch.nn.Module"


def test_an_optimizer_that_needs_a_closure_is_told() -> None:
    assert told(optimizer=torch.optim.LBFGS).startswith("the optimizer's step failed")


@pytest.mark.parametrize(
    "made", [lambda n: torch.randn(n, 16), lambda n: {"x": torch.randn(n, 16)}, lambda n: (torch.randn(n, 16),)]
)
def test_a_batch_that_is_no_pair_is_told_what_it_must_be(made) -> None:
    assert "(args, kwargs)" in told(batch=made)


def test_a_clip_norm_that_is_no_number_is_refused() -> None:
    with pytest.raises(ConfigError):
        trace(clip_norm="much")


def test_a_scripted_module_is_told() -> None:
    with pytest.raises((ModelError, ConfigError)):
        trace(model=lambda: torch.jit.script(nn.Linear(16, 4)))


def test_a_sparse_buffer_that_is_made_in_the_forecast_is_refused() -> None:
    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 4)
            self.register_buffer("edges", torch.eye(8).to_sparse())

        def forward(self, x):
            return torch.sparse.mm(self.edges, self.layer(x))

    with pytest.raises(ModelError, match=r"^edges is a sparse tensor, whose memory cannot be forecast; give a dense"):
        trace(model=Graph)
    sizes = [size for kind, name, size in kinds(trace(model=Graph()), "buffers") if name == "edges"]
    assert sizes == [2 * 8 * 8, 4 * 8]  # of one that exists its indices and values are known


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_it_does_not_matter_whether_the_caller_wants_gradients(context) -> None:
    plain = trace()
    with context():
        assert kinds(trace(), "gradients", "optimizer") == kinds(plain, "gradients", "optimizer")
    assert kinds(plain, "gradients")
