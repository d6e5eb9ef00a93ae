"""Which parameters a pattern is for."""

import pytest
from torch import nn

from brim.engine.components.name_patterns import matches
from brim.engine.components.optimizer import make_optimizer

MATCHES = [
    ("norm", "transformer.h.0.ln_1.weight", "LayerNorm"),
    ("norm", "layers.0.input_layernorm.weight", "LlamaRMSNorm"),
    ("norm", "bn1.weight", "BatchNorm2d"),
    ("norm", "norm1.weight", "Affine"),
    ("norm", "prenorm.scale", "Scale"),
    ("norm", "norms.0.scale", "Scale"),
    ("norm", "x.gain", "LayerNormalization"),
    ("norm", "x.weight", "T5LayerNorm"),
    ("Norm", "x.norm_weight", "Affine"),
    ("layernorm", "ln.weight", "LayerNorm"),
    ("layer_norm", "ln.weight", "LayerNorm"),
    ("layer_norm", "final_layernorm.weight", "Scale"),
    ("LayerNorm.weight", "bert.output.LayerNorm.weight", "LayerNorm"),
    ("LayerNorm.weight", "h.0.ln_1.weight", "LayerNorm"),
    ("BatchNorm2d", "bn.bias", "BatchNorm2d"),
    ("batchnorm", "bn.bias", "BatchNorm2d"),
    ("bias", "attn.in_proj_bias", "MultiheadAttention"),
    ("bias", "rnn.bias_ih_l0", "LSTM"),
    ("bias", "relative_position_bias_table", "Swin"),
    ("bias", "biases.0", "ParameterList"),
    ("ln_1", "h.0.ln_1.weight", "LayerNorm"),
    ("ln", "h.0.ln_1.weight", "LayerNorm"),
    ("head", "lm_head.weight", "Linear"),
    ("head", "heads.head.weight", "Linear"),
    ("embedding", "wte.weight", "Embedding"),
    ("embedding", "embeddings.word.weight", "Table"),
    ("layer1", "layer1.0.weight", "Linear"),
    ("*embed*", "embeddings.word.weight", "Table"),
    ("h.0", "transformer.h.0.ln_1.weight", "LayerNorm"),
]
OTHERS = [
    ("bias", "unbiased.weight", "Linear"),
    ("bias", "x.weight", "UnbiasedLinear"),
    ("norm", "enormous.weight", "Linear"),
    ("norm", "normal.weight", "Linear"),
    ("norm", "x.weight", "NormalizedLinear"),
    ("head", "attn.in_proj_weight", "MultiheadAttention"),
    ("head", "overhead.weight", "Linear"),
    ("layer1", "layer10.0.weight", "Linear"),
    ("norm2", "bn.weight", "BatchNorm2d"),
    ("ln", "vuln.weight", "Linear"),
    ("LayerNorm.weight", "ln.bias", "LayerNorm"),
    ("h.0", "h.01.weight", "Linear"),
]


@pytest.mark.parametrize(("pattern", "name", "kind"), MATCHES)
def test_words_of_names_and_kinds_are_matched(pattern, name, kind):
    assert matches(pattern, name, kind)


@pytest.mark.parametrize(("pattern", "name", "kind"), OTHERS)
def test_other_words_that_hold_the_same_letters_are_not(pattern, name, kind):
    assert not matches(pattern, name, kind)


def test_gpt2_has_no_decay_on_its_biases_and_norms():
    transformers = pytest.importorskip("transformers")
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=11, n_embd=4, n_layer=2, n_head=1))
    made = make_optimizer({"name": "AdamW", "weight_decay": 0.1, "no_decay": ["bias", "norm"]}, model, 1e-3)
    spared = {id(p) for group in made.param_groups if group["weight_decay"] == 0 for p in group["params"]}
    norms = [module for module in model.modules() if isinstance(module, nn.LayerNorm)]
    expected = {id(p) for n, p in model.named_parameters() if n.endswith("bias")} | {id(n.weight) for n in norms}
    assert spared == expected and len(norms) == 5
