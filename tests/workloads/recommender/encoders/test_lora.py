import pytest
import torch

from brim.errors import ConfigError
from brim.workloads.recommender.encoders.lora import is_adapter
from brim.workloads.recommender.text_encoder import TextEncoder

TEXTS = ["Movie: Heat.", "Ran"]


def trained(encoder):
    return [name for name, parameter in encoder.named_parameters() if parameter.requires_grad]


def test_adapters_begin_as_nothing_and_are_all_that_is_trained():
    pytest.importorskip("peft")
    plain, adapted = TextEncoder(), TextEncoder(lora=4)
    tokens = plain.tokenize(TEXTS)
    torch.testing.assert_close(adapted.encode_all(tokens), plain.encode_all(tokens))
    adapted.freeze(False)
    assert trained(adapted)
    assert all(map(is_adapter, trained(adapted)))
    adapted.freeze(True)
    assert not trained(adapted)


def test_the_adapters_are_those_of_peft():
    peft = pytest.importorskip("peft")
    torch.manual_seed(0)
    ours = TextEncoder(lora={"r": 2, "lora_alpha": 6, "target_modules": ["c_fc"]})
    torch.manual_seed(0)
    config = peft.LoraConfig(r=2, lora_alpha=6, target_modules=["c_fc"], fan_in_fan_out=True)
    theirs = peft.get_peft_model(TextEncoder().model, config)
    for one, other in zip(ours.model.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("lora", [0, -1, True, 2.5])
def test_a_rank_that_is_none_is_refused(lora):
    pytest.importorskip("transformers")
    with pytest.raises(
        ConfigError, match=r"must be a rank of at least 1, or a mapping of peft\.LoraConfig's arguments"
    ):
        TextEncoder(lora=lora)


@pytest.mark.parametrize("lora", [{"rank": 8}, {"r": 8, "target_modules": ["q_proj"]}])
def test_what_peft_does_not_take_is_refused_in_one_sentence(lora):
    pytest.importorskip("peft")
    with pytest.raises(ConfigError, match=r"cannot be added to GPT2Model: .*name its layers") as error:
        TextEncoder(lora=lora)
    assert "\n" not in str(error.value)
