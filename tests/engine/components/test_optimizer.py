import pytest
import torch
from torch import nn

from brim.engine.components.optimizer import make_optimizer, unused_rate
from brim.errors import ConfigError


def test_adamw_is_the_default_and_takes_lr():
    optimizer = make_optimizer(None, nn.Linear(2, 1), 0.5)
    assert type(optimizer) is torch.optim.AdamW
    assert optimizer.param_groups[0]["lr"] == 0.5


@pytest.mark.parametrize("name", ["sgd", "SGD", "Adam", "adagrad"])
def test_names_are_those_of_torch_in_any_case(name):
    assert type(make_optimizer(name, nn.Linear(2, 1), 0.1)).__name__.lower() == name.lower()


def test_a_mapping_has_a_name_and_the_optimizers_own_arguments():
    optimizer = make_optimizer({"name": "adamw", "weight_decay": 0.25}, nn.Linear(2, 1), 0.1)
    assert (optimizer.param_groups[0]["weight_decay"], optimizer.param_groups[0]["lr"]) == (0.25, 0.1)


@pytest.mark.parametrize("wrong", [{"weightdecay": 1}, {"lr": 1}, {"weight_decay": -1}, {"weight_decay": "much"}])
def test_arguments_that_an_optimizer_does_not_take_are_refused(wrong):
    with pytest.raises(ConfigError, match="optimizer"):
        make_optimizer(wrong, nn.Linear(2, 1), 0.1)


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="'AdamW'"):
        make_optimizer("AdammW", nn.Linear(2, 1), 0.1)


def test_functions_and_instances_are_taken_as_they_are():
    model = nn.Linear(2, 1)
    instance = torch.optim.SGD(model.parameters(), lr=0.3)
    assert make_optimizer(instance, model, 0.1) is instance
    made = make_optimizer(lambda parameters: torch.optim.SGD(parameters, lr=0.3), model, 0.1)
    assert made.param_groups[0]["lr"] == 0.3


def test_a_function_that_returns_something_else_is_refused():
    with pytest.raises(ConfigError, match="returned an int"):
        make_optimizer(lambda parameters: 3, nn.Linear(2, 1), 0.1)


def test_frozen_parameters_are_left_out_and_a_frozen_model_is_refused():
    model = nn.Linear(2, 1)
    model.bias.requires_grad_(False)
    assert len(make_optimizer(None, model, 0.1).param_groups[0]["params"]) == 1
    model.weight.requires_grad_(False)
    with pytest.raises(ConfigError, match="nothing to train"):
        make_optimizer(None, model, 0.1)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_by_name_the_fused_optimizer_is_taken_and_steps_alike(device):
    weights = {}
    for wanted in ("AdamW", lambda parameters: torch.optim.AdamW(parameters, lr=0.1)):
        torch.manual_seed(0)
        model = nn.Linear(4, 4).to(device)
        optimizer = make_optimizer(wanted, model, 0.1)
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.ones(2, 4, device=device)).square().mean().backward()
            optimizer.step()
        weights[bool(optimizer.param_groups[0].get("fused"))] = model.weight.detach().clone()
    assert (weights[True] - weights[False]).norm() / weights[False].norm() <= 1e-5


def test_sparse_gradients_get_an_optimizer_that_takes_them():
    model = nn.Embedding(5, 2, sparse=True)
    optimizer = make_optimizer("sgd", model, 0.1)
    model(torch.tensor([1, 2])).sum().backward()
    optimizer.step()
    assert not optimizer.param_groups[0].get("fused")


class Ascending(torch.optim.SGD):
    """Asks for its closure as sharpness-aware optimizers do."""

    def step(self, closure=None):
        assert closure is not None, "sharpness-aware minimisation needs a closure"
        return super().step(closure)


class Insisting(torch.optim.SGD):
    def step(self, closure=None):
        if closure is None:
            raise RuntimeError("a closure, please")
        return super().step(closure)


class Obliging(torch.optim.SGD):
    """May be given a closure, as torch's own may."""

    def step(self, closure=None):
        loss = None
        if closure is not None:
            loss = closure()
        super().step()
        return loss


@pytest.mark.parametrize(
    "wanted",
    [
        pytest.param(lambda model: "lbfgs", id="name"),
        pytest.param(lambda model: {"name": "LBFGS", "max_iter": 3}, id="mapping"),
        pytest.param(lambda model: lambda parameters: torch.optim.LBFGS(parameters), id="function"),
        pytest.param(lambda model: torch.optim.LBFGS(model.parameters()), id="instance"),
        pytest.param(lambda model: Ascending(model.parameters(), lr=0.1), id="asserts"),
        pytest.param(lambda model: lambda parameters: Insisting(parameters, lr=0.1), id="raises"),
    ],
)
def test_an_optimizer_that_needs_a_closure_is_refused_however_it_comes(wanted):
    model = nn.Linear(2, 1)
    with pytest.raises(ConfigError, match="needs a closure"):
        make_optimizer(wanted(model), model, 0.1)


def test_one_that_only_takes_a_closure_is_not():
    model = nn.Linear(2, 1)
    assert type(make_optimizer(lambda parameters: Obliging(parameters, lr=0.1), model, 0.1)) is Obliging


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_in_half_precision_are_stepped_by_name_too(name, dtype):
    model = nn.Linear(8, 8).to(dtype)
    before = model.weight.clone()
    optimizer = make_optimizer(name, model, lr=0.1)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert not (model.weight == before).any()


class OwnSGD(torch.optim.SGD):
    def __init__(self, *given, **settings):
        super().__init__(*given, **settings)


@pytest.mark.parametrize("kind", [torch.optim.SGD, OwnSGD])
def test_a_class_is_made_with_the_trainers_learning_rate(kind):
    made = make_optimizer(kind, torch.nn.Linear(1, 1), 0.25)
    assert type(made) is kind and made.param_groups[0]["lr"] == 0.25


def test_a_learning_rate_that_is_not_used_is_told():
    model = torch.nn.Linear(1, 1)
    own = torch.optim.SGD(model.parameters(), lr=0.5)
    assert "lr=0.1 has no effect" in unused_rate(lambda parameters: own, own, 0.1)
    assert "lr=0.1 has no effect" in unused_rate(own, own, 0.1)
    for wanted, lr in ((own, 1e-3), (own, 0.5), ("SGD", 0.1), (torch.optim.SGD, 0.1), (None, 0.1)):
        assert unused_rate(wanted, own, lr) is None


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("adamw_torch", "'AdamW'"),
        ("adamw_torch_fused", "'AdamW'"),
        ("paged_adamw_8bit", "'AdamW'"),
        ("AdmW", "'AdamW'"),
    ],
)
def test_a_name_of_another_librarys_is_met_with_torchs_and_with_the_way_for_others(name, near):
    with pytest.raises(ConfigError) as told:
        make_optimizer(name, nn.Linear(2, 1), 0.1)
    assert f"did you mean {near}? " in str(told.value) and "optimizer=lambda parameters: ..." in str(told.value)


def test_a_name_like_none_is_not_guessed_at():
    with pytest.raises(ConfigError, match=r"is not in torch\.optim; one of another library is handed over"):
        make_optimizer("galore", nn.Linear(2, 1), 0.1)


def test_an_optimizer_whose_state_no_checkpoint_could_hold_is_refused_at_the_start():
    class Wrapper(torch.optim.Optimizer):
        def __init__(self, inner):  # as one finds them: without super().__init__
            self.inner, self.param_groups, self.state, self.defaults = inner, inner.param_groups, inner.state, {}

        def step(self, closure=None):
            return self.inner.step(closure)

    model = nn.Linear(2, 1)
    wrapped = Wrapper(torch.optim.SGD(model.parameters(), lr=0.1))
    for wanted in (wrapped, lambda parameters: wrapped):
        with pytest.raises(ConfigError, match=r"state_dict\(\) fails .*, so no checkpoint could hold it"):
            make_optimizer(wanted, model, 0.1)
