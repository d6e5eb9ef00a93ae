import torch
from torch import nn

from brim.engine.compiled.trial_start import TrialStart
from brim.engine.components.loss import loss_of
from brim.engine.components.precision import Precision
from brim.engine.step.eager_step import EagerStep


class Clipping(nn.Module):
    """Clips a trained weight in its forward pass, moves a frozen one, and has one that no optimizer steps."""

    def __init__(self):
        super().__init__()
        self.trained, self.frozen, self.apart = (nn.Linear(2, 2) for _ in range(3))
        self.frozen.requires_grad_(False)

    def forward(self, x):
        with torch.no_grad():
            self.trained.weight.clamp_(-0.1, 0.1)
            self.frozen.weight.add_(1.0)
        return self.apart(self.frozen(self.trained(x)))


def test_everything_returns_that_a_forward_pass_moves():
    torch.manual_seed(0)
    model = Clipping()
    optimizer = torch.optim.SGD(model.trained.parameters(), lr=0.1)
    step = EagerStep(loss_of(model, nn.MSELoss()), optimizer, Precision("32", torch.device("cpu")))
    model.apart.weight.grad = torch.ones(2, 2)
    before, drawn = {k: v.clone() for k, v in model.state_dict().items()}, torch.get_rng_state()
    start = TrialStart(model, None, step, lambda: None)
    start.return_to()
    assert model.apart.weight.grad is None
    step.gradients([(torch.randn(3, 2), torch.randn(3, 2))])
    assert not torch.equal(model.frozen.weight, before["frozen.weight"])
    start.put_back()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert torch.equal(drawn, torch.get_rng_state())
    assert torch.equal(model.apart.weight.grad, torch.ones(2, 2))
