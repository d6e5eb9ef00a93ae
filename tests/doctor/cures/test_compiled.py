import pytest
import torch
from torch import nn
from torch.nn.modules import module as modules
from torch.utils.checkpoint import checkpoint

from brim.doctor.cures import compiled as cure
from brim.doctor.cures.compiled import can_be_compiled, compile_after_first_step
from brim.doctor.cures.precision import compute_in_bf16

pytestmark = pytest.mark.usefixtures("undone")


@pytest.fixture(autouse=True)
def forgotten():
    from torch._inductor import config

    torch._dynamo.utils.counters.clear()
    with config.patch(fallback_random=False):
        yield
    torch._dynamo.reset()


class Model(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 8))
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.body(x))


def is_compiled(module):
    return module._compiled_call_impl is not None


def trained(model, steps=6, loss_fn=None, closure=False, optimizer=torch.optim.Adam):
    torch.manual_seed(0)
    made, losses = optimizer(model.parameters(), lr=0.01), []

    def passes():
        made.zero_grad()
        output = model(torch.rand(16, 4))
        loss = loss_fn(output, torch.zeros_like(output)) if loss_fn else output.pow(2).mean()
        loss.backward()
        losses.append(loss.item())
        return loss

    for _ in range(steps):
        if closure:
            made.step(passes)
        else:
            passes()
            made.step()
    return losses


@pytest.mark.parametrize("closure", [False, True])
def test_what_the_script_calls_itself_is_compiled_after_its_first_step(closure, monkeypatch):
    compiled = []
    monkeypatch.setattr(cure, "compile_in_place", lambda module, bf16: compiled.append(module))
    compile_after_first_step()
    model, loss_fn = Model(), nn.MSELoss()
    before = dict(modules._global_forward_pre_hooks)
    trained(model, steps=1, loss_fn=loss_fn, closure=closure)
    assert compiled == ([] if closure else [model])  # a closure is called within the step
    trained(model, steps=3, loss_fn=loss_fn, closure=closure)
    assert compiled == [model] and len(modules._global_forward_pre_hooks) == len(before) - 1


def test_two_models_are_compiled_and_what_is_evaluated_before_is_not(monkeypatch):
    compiled = []
    monkeypatch.setattr(cure, "compile_in_place", lambda module, bf16: compiled.append(module))
    compile_after_first_step()
    generator, judge, teacher = Model(), nn.Linear(1, 1), nn.Linear(4, 1)
    with torch.no_grad():
        teacher(torch.ones(1, 4))
    optimizer = torch.optim.SGD([*generator.parameters(), *judge.parameters()], lr=0.1)
    judge(generator(torch.ones(2, 4))).sum().backward()
    optimizer.step()
    assert compiled == [generator, judge]


def test_blocks_that_are_computed_again_are_compiled_with_their_model(monkeypatch):
    class Checkpointed(Model):
        def forward(self, x):
            return self.head(checkpoint(self.body, x, use_reentrant=False))

    compiled = []
    monkeypatch.setattr(cure, "compile_in_place", lambda module, bf16: compiled.append(module))
    compile_after_first_step()
    model = Checkpointed()
    trained(model, steps=2)
    assert compiled == [model]


def test_a_model_that_fails_does_not_hide_the_next_call(monkeypatch):
    compiled = []
    monkeypatch.setattr(cure, "compile_in_place", lambda module, bf16: compiled.append(module))
    compile_after_first_step()
    model = Model()
    with pytest.raises(RuntimeError):
        model(torch.ones(1, 5))
    trained(model, steps=1)
    assert compiled == [model]


def test_what_cannot_or_need_not_be_compiled_is_left():
    model = nn.Linear(2, 2)
    assert can_be_compiled(model) and not can_be_compiled(nn.CrossEntropyLoss())
    assert not can_be_compiled(torch.compile(model)) and not can_be_compiled(torch.jit.script(model))
    assert not can_be_compiled(nn.DataParallel(model))
    model.compile()
    assert not can_be_compiled(model)


# Each compiles a model, which takes some ten seconds.
@pytest.mark.slow
@pytest.mark.parametrize("make", [Model, lambda: Model(0.5), lambda: Model().body])
@pytest.mark.parametrize("closure", [False, True])
def test_a_compiled_training_is_the_same_but_for_rounding_and_its_names_stay(make, closure):
    torch.manual_seed(1)
    plain_model = make()
    plain = trained(plain_model, closure=closure)
    compile_after_first_step()
    torch.manual_seed(1)
    model = make()
    assert trained(model, closure=closure) == pytest.approx(plain, rel=1e-5)
    assert is_compiled(model) and model.state_dict().keys() == plain_model.state_dict().keys()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1  # nothing of ours is compiled with it


@pytest.mark.slow
def test_a_module_is_compiled_under_autocast_where_it_computes_in_bf16():
    compute_in_bf16()
    torch.manual_seed(1)
    plain = trained(Model())
    compile_after_first_step(bf16=True)
    torch.manual_seed(1)
    model = Model()
    assert trained(model) == pytest.approx(plain, rel=1e-2)
    assert is_compiled(model) and model(torch.ones(1, 4)).dtype == torch.float32
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2
