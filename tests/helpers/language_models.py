"""Small language models of transformers, of families whose last layers differ, and a batch for all of them."""

from typing import Any

import torch
from torch import nn

WORDS = 53
SMALL: dict[str, Any] = {
    "vocab_size": WORDS, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "max_position_embeddings": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
BOTH: dict[str, Any] = {
    "vocab_size": WORDS, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "max_position_embeddings": 32,
    "dropout": 0.0, "pad_token_id": 0, "decoder_start_token_id": 1,
}  # fmt: skip
FAMILIES = ("gpt2", "llama", "qwen3", "gemma2", "granite", "cohere", "mixtral", "phi", "bert", "t5", "bart")


def language_model(name: str) -> Any:
    """A model in training mode, the same one each time, without dropout."""
    import transformers as t

    torch.manual_seed(0)
    model = _made(t, name).train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    for buffer_name, buffer in model.named_buffers():
        if buffer_name == "final_logits_bias":
            buffer.normal_()
    return model


def _made(t: Any, name: str) -> Any:
    if name == "gpt2":
        sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 32}
        return t.GPT2LMHeadModel(t.GPT2Config(vocab_size=WORDS, **sizes, embd_pdrop=0, attn_pdrop=0, resid_pdrop=0))
    if name == "t5":
        sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2, "dropout_rate": 0.0}
        return t.T5ForConditionalGeneration(t.T5Config(vocab_size=WORDS, **sizes, decoder_start_token_id=1))
    if name == "bart":
        return t.BartForConditionalGeneration(t.BartConfig(**BOTH))
    if name == "bert":
        return t.BertForMaskedLM(t.BertConfig(**SMALL))
    more: dict[str, Any] = {
        "gemma2": {"head_dim": 8, "final_logit_softcapping": 2.0, "query_pre_attn_scalar": 8},
        "granite": {"logits_scaling": 3.0},
        "cohere": {"logit_scale": 0.3},
        "qwen3": {"head_dim": 8},
        "mixtral": {
            "num_local_experts": 2, "num_experts_per_tok": 1, "output_router_logits": True, "router_aux_loss_coef": 0.5
        },
    }.get(name, {})  # fmt: skip
    names = {"llama": "Llama", "qwen3": "Qwen3", "gemma2": "Gemma2", "granite": "Granite", "cohere": "Cohere"}
    family = names.get(name, name.capitalize())
    return getattr(t, f"{family}ForCausalLM")(getattr(t, f"{family}Config")(**{**SMALL, **more}))


def language_batch(samples: int = 3, tokens: int = 7) -> dict[str, torch.Tensor]:
    """Words, and labels of which some are left out: more of them in some samples than in others."""
    draw = torch.Generator().manual_seed(1)
    words = torch.randint(3, WORDS, (samples, tokens), generator=draw)
    labels = words.clone()
    for sample in range(samples):
        labels[sample, : sample % (tokens - 2)] = -100
    return {"input_ids": words, "labels": labels}
