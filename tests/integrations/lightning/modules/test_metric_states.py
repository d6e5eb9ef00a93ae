import torch
import torchmetrics
from torch import nn

from brim.integrations.lightning.modules.metric_states import MetricStates


def test_what_was_counted_since_is_put_back_where_a_try_failed():
    module = nn.Module()
    module.mean, module.kept = torchmetrics.MeanMetric(), torchmetrics.CatMetric()
    module.mean.update(2.0)
    states = MetricStates(module)
    states.snapshot(failures=0)
    for _ in range(2):  # a try that fails again
        module.mean.update(10.0)
        module.kept.update(torch.ones(3))
    states.restore_after(failures=0)
    assert module.mean.compute() > 2
    states.restore_after(failures=1)
    assert module.mean.compute() == 2 and module.mean._update_count == 1 and not module.kept.value
    module.mean.update(4.0)
    states.restore_after(failures=1)
    assert module.mean.compute() == 3


def test_what_a_checkpoint_keeps_is_plain_and_comes_back():
    module, other = nn.Module(), nn.Module()
    for one in (module, other):
        one.mean, one.kept = torchmetrics.MeanMetric(), torchmetrics.CatMetric()
    module.mean.update(2.0)
    module.kept.update(torch.ones(3))
    MetricStates(other).load(MetricStates(module).plain())
    assert other.mean.compute() == 2 and other.kept.compute().tolist() == [1, 1, 1]
    module.mean.update(8.0)
    assert other.mean.compute() == 2 and MetricStates(module).metrics == [module.mean, module.kept]
