import pytest
import torch
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions, SequenceClassifierOutput

from brim.data.batches.batch import leaves_of
from brim.engine.evaluation.output_choice import check_output_choice, chosen_output
from brim.errors import ConfigError

LOGITS, HIDDEN = torch.ones(2, 3), torch.zeros(2, 4)


def test_by_default_all_is_kept():
    for outputs in (LOGITS, (LOGITS, HIDDEN), {"logits": LOGITS, "hidden": HIDDEN}):
        kept = chosen_output(outputs, None, None)
        assert type(kept) is type(outputs) and list(map(id, leaves_of(kept))) == list(map(id, leaves_of(outputs)))


def test_of_transformers_outputs_the_logits():
    assert chosen_output(SequenceClassifierOutput(loss=LOGITS.sum(), logits=LOGITS), None, None) is LOGITS


def test_of_an_output_without_logits_all_but_what_was_cached():
    outputs = BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=HIDDEN, past_key_values=((LOGITS,),))
    assert list(chosen_output(outputs, None, None)) == ["last_hidden_state"]


def test_a_part_is_named_by_key_attribute_or_number():
    assert chosen_output({"a": LOGITS, "b": HIDDEN}, None, "b") is HIDDEN
    assert chosen_output(SequenceClassifierOutput(logits=LOGITS), None, "logits") is LOGITS
    assert chosen_output((LOGITS, HIDDEN), None, 1) is HIDDEN


def test_a_function_gets_outputs_and_batch():
    assert chosen_output(1, 2, lambda outputs, batch: (outputs, batch)) == (1, 2)


@pytest.mark.parametrize(
    ("outputs", "output", "told"),
    [
        ({"a": 1}, "b", "a dict with a"), (LOGITS, "logits", "a tensor of shape"), ((LOGITS,), 4, "a tuple of 1"),
        (LOGITS, "sum", "a tensor of shape"), (object(), 0, "an object"),
    ],
)  # fmt: skip
def test_a_part_that_is_not_there_is_refused_with_what_there_is(outputs, output, told):
    with pytest.raises(ConfigError, match=told):
        chosen_output(outputs, None, output)


@pytest.mark.parametrize("output", [True, 1.5, ["logits"], lambda outputs: outputs])
def test_what_names_no_part_is_refused_before_anything_is_computed(output):
    with pytest.raises(ConfigError, match="output="):
        check_output_choice(output)
