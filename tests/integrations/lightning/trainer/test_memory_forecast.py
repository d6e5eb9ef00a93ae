import pytest
import torch
import torchmetrics
from helpers.lightning_training import Classifier, X, Y
from torch import nn

import brim
from brim.errors import CannotFit, ConfigError
from brim.integrations.lightning import forecast, largest_batch

CARD = "NVIDIA H200"


class Logs(Classifier):
    def __init__(self):
        super().__init__(width=64)
        self.accuracy = torchmetrics.Accuracy("multiclass", num_classes=3)

    def training_step(self, batch, batch_idx):
        out = self(batch[0])
        self.accuracy(out, batch[1])
        self.log("train_acc", self.accuracy)
        return self.loss(out, batch[1]) * (self.trainer.current_epoch + 1)


def test_a_module_takes_what_the_same_model_takes_without_lightning():
    module = Classifier(width=64)
    plain = brim.forecast(
        module.net, lambda n: ((torch.empty(n, 4),), {}),
        lambda out: nn.functional.cross_entropy(out, torch.zeros(len(out), dtype=torch.long, device=out.device)),
        torch.optim.Adam, batch_size=512, card=CARD,
    )  # fmt: skip
    made = forecast(module, (X, Y), batch_size=512, card=CARD)
    assert made.parts["parameters"] == plain.parts["parameters"] and made.parts["optimizer"] == plain.parts["optimizer"]
    assert made.allocated == pytest.approx(plain.allocated, rel=0.05)


def test_a_forecast_leaves_no_trace_in_the_module():
    module = Logs()
    before, generator = {k: v.clone() for k, v in module.state_dict().items()}, torch.get_rng_state()
    assert forecast(module, (X, Y), card=CARD).batch_size == 24
    assert module._trainer is None and module.accuracy._update_count == 0 and "log" not in vars(module)
    assert all(torch.equal(value, module.state_dict()[name]) for name, value in before.items())
    assert torch.equal(generator, torch.get_rng_state())


@pytest.mark.slow
def test_the_largest_batch_grows_with_the_memory_and_what_it_holds_fits():
    module = Classifier(width=1024)
    small, large = (largest_batch(module, (X, Y), card=CARD, memory=memory) for memory in ("128MiB", "256MiB"))
    assert 24 < small < large
    assert forecast(module, (X, Y), batch_size=small, card=CARD).allocated <= 128 << 20
    assert forecast(module, (X, Y), batch_size=2 * large, card=CARD).allocated > 256 << 20
    with pytest.raises(CannotFit):
        largest_batch(module, (X, Y), card=CARD, memory="16MiB")


def test_a_schedule_of_the_length_of_a_training_can_be_made_without_a_trainer():
    class Cycled(Classifier):
        def configure_optimizers(self):
            adam = torch.optim.Adam(self.parameters())
            total = self.trainer.estimated_stepping_batches
            assert total == self.trainer.num_training_batches * self.trainer.max_epochs
            return [adam], [torch.optim.lr_scheduler.OneCycleLR(adam, 0.1, total_steps=total)]

    class Plain(Classifier):
        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    batch = (torch.randn(8, 4), torch.zeros(8, dtype=torch.long))
    cycled, plain = (forecast(kind(), batch, card="NVIDIA L4").allocated for kind in (Cycled, Plain))
    assert cycled == plain


def test_several_optimizers_are_counted_as_one_without_state():
    class Two(Classifier):
        def configure_optimizers(self):
            return [torch.optim.Adam(self.parameters()), torch.optim.Adam(self.parameters())]

    assert forecast(Two(), (X, Y), card=CARD).parts["optimizer"] == 0


def test_other_models_are_refused():
    with pytest.raises(ConfigError, match="takes a LightningModule"):
        forecast(nn.Linear(4, 3), (X, Y), card=CARD)
