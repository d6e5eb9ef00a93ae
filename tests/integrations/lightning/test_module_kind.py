import lightning as L
import pytest
from torch import nn

from brim.errors import ConfigError
from brim.integrations.lightning.module_kind import (
    base_of,
    check_module,
    is_overridden,
    library_part,
    plain_function,
    takes_batch_idx,
)


class Own(L.LightningModule):
    def training_step(self, batch):
        return None


def test_what_the_user_wrote_is_told_from_what_lightning_has():
    assert is_overridden(Own(), "training_step") and not is_overridden(Own(), "validation_step")
    assert not is_overridden(nn.Linear(1, 1), "forward") and not is_overridden(None, "setup")


def test_a_method_put_on_the_object_counts_as_written():
    module = Own()
    module.on_fit_end = lambda: None
    assert is_overridden(module, "on_fit_end")


def test_other_models_and_classes_are_refused():
    with pytest.raises(ConfigError, match=r"this is a Linear; for other models use brim\.Trainer"):
        check_module(nn.Linear(1, 1))
    with pytest.raises(ConfigError, match=r"^ManualStep takes a LightningModule"):
        check_module(nn.Linear(1, 1), "ManualStep")
    with pytest.raises(ConfigError, match=r"Own is a class; pass Own\(\.\.\.\)"):
        check_module(Own)
    assert check_module(Own()) is not None and base_of(Own()) is L.LightningModule


def test_parts_come_from_the_library_that_the_module_is_of():
    other = pytest.importorskip("pytorch_lightning")
    assert library_part(Own(), "utilities.data").__name__ == "lightning.pytorch.utilities.data"
    assert library_part(other.LightningModule(), "utilities.data").__name__ == "pytorch_lightning.utilities.data"


def test_a_step_is_handed_the_number_of_its_batch_where_it_takes_one():
    assert not takes_batch_idx(Own().training_step)
    assert takes_batch_idx(lambda *batch: None) and takes_batch_idx(lambda batch, i: None)


def test_the_function_behind_a_method_is_found_through_decorators():
    assert plain_function(Own().training_step) is Own.training_step
    assert plain_function(len) is None
