import torch
from torch import nn

from brim.engine.calling.compiler import Compiler
from brim.engine.compiled.compile_report import CompileReport
from brim.engine.compiled.compile_trial import CompileTrial
from brim.engine.compiled.compiled_loss import CompiledLoss
from brim.engine.components.loss import loss_of
from brim.engine.components.precision import Precision
from brim.engine.step.eager_step import EagerStep


def test_a_trial_leaves_weights_optimizer_and_generators_as_they_were():
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.Linear(3, 1))
    counted = loss_of(model, nn.MSELoss())
    step = EagerStep(counted, torch.optim.Adam(model.parameters()), Precision("32", torch.device("cpu")))
    window = [(torch.randn(4, 3), torch.randn(4, 1))]
    step(window)
    before, drawn = [p.detach().clone() for p in model.parameters()], torch.get_rng_state()
    report = CompileReport()
    CompileTrial(step, counted, CompiledLoss(counted, Compiler(backend="eager"), proves=True), [window, window]).run(
        report
    )
    assert report.likeness.startswith("proven over 2 batches: gradients")
    assert report.gain is not None
    assert all(map(torch.equal, before, model.parameters()))
    assert torch.equal(drawn, torch.get_rng_state())
    assert counted.run is counted.plain
