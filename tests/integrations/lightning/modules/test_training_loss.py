import copy
import functools
from types import SimpleNamespace

import pytest
import torch
from helpers.lightning_training import Classifier, X, Y

from brim.engine.calling.loss_form import LossForm, form_of
from brim.engine.sandbox.named_state import NamedState
from brim.errors import ConfigError
from brim.integrations.lightning.modules.batch_transfer import BatchTransfer
from brim.integrations.lightning.modules.loop_state import LoopState
from brim.integrations.lightning.modules.training_loss import loss_in, reads_argument, training_loss, why_not_captured


def loss_for(module):
    return training_loss(LoopState(module), BatchTransfer(module, None))


class Quiet(Classifier):
    def training_step(self, batch, batch_idx):
        return self.loss(self(batch[0]), batch[1])


def test_the_loss_calls_the_training_step_of_the_model_that_it_is_given():
    module, other = Quiet(), Quiet()
    for one in (module, other):
        one.eval()
    assert torch.equal(loss_for(module)(other, (X, Y)), other.training_step((X, Y), 0))


def test_a_copy_on_trial_sees_the_same_trainer():
    class Asks(Quiet):
        def training_step(self, batch, batch_idx):
            return super().training_step(batch, batch_idx) * self.trainer.factor

    module = Asks()
    module._trainer = SimpleNamespace(factor=0.0)
    assert loss_for(module)(copy.deepcopy(module), (X, Y)) == 0


def test_it_has_the_form_of_a_loss_and_the_code_of_the_step_is_read():
    loss = loss_for(Quiet())
    assert form_of(loss) is LossForm.OF_MODEL
    assert Quiet.training_step in NamedState(Quiet(), loss).functions


@pytest.mark.parametrize(
    ("returned", "sentence"),
    [(None, "returned None"), ({"out": 1}, "a dict without 'loss'"), ([1.0], "returned a list")],
)
def test_what_holds_no_loss_is_refused(returned, sentence):
    with pytest.raises(ConfigError, match=sentence):
        loss_in(returned, "Lit")


def test_a_step_that_reads_numbers_of_the_host_is_not_captured():
    class ByNumber(Quiet):
        def training_step(self, batch, batch_idx):
            return super().training_step(batch, batch_idx) * (batch_idx + 1)

    class ByEpoch(Quiet):
        def training_step(self, batch, batch_idx):
            return self.loss(self(batch[0]), batch[1]) * (self.current_epoch + 1)

    class Watched(Quiet):
        def on_train_batch_end(self, outputs, batch, batch_idx):
            pass

    assert why_not_captured(Quiet(), loss_for(Quiet())) is None
    assert "reads its batch_idx" in why_not_captured(ByNumber(), loss_for(ByNumber()))
    assert "names current_epoch" in why_not_captured(ByEpoch(), loss_for(ByEpoch()))
    assert "on_train_batch_end is called" in why_not_captured(Watched(), loss_for(Watched()))


def test_arguments_are_found_in_the_code_that_reads_them():
    def nested(self, batch, batch_idx):
        return lambda: batch_idx

    assert reads_argument(nested, 2) and reads_argument(lambda *all: all, 2)
    assert not reads_argument(lambda self, batch: batch, 2)
    assert not reads_argument(functools.wraps(nested)(lambda self, batch, batch_idx: batch), 2)
