"""scaled_dot_product_attention through the kernel that the card would choose."""

import torch
from torch import Tensor
from torch.library import Library
from torch.nn import functional

from brim.hardware.cards import Card
from brim.memory.as_cuda.operators import for_fake_tensors
from brim.memory.kernels.attention import Attention, choose_attention_kernel

aten = torch.ops.aten
MASK_ALIGNMENT = 8
HEAD_ALIGNMENT = 8


def register_attention(library: Library, card: Card, runtime: tuple[int, int]) -> None:
    """Choose as torch on CUDA chooses, and call that kernel."""

    def attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        needs_grad = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad)
        call = Attention(
            tuple(query.shape), tuple(key.shape), tuple(value.shape), query.dtype, attn_mask is not None, is_causal,
            dropout_p, needs_grad, attn_mask is not None and attn_mask.requires_grad, enable_gqa,
        )  # fmt: skip
        kernel = choose_attention_kernel(card.capability, call, runtime)
        if kernel == "flash":
            return _flash(query, key, value, dropout_p, is_causal, scale)
        if kernel == "cudnn":
            made = aten._scaled_dot_product_cudnn_attention(
                query, key, value, _numbers_of(attn_mask, query), needs_grad, dropout_p, is_causal, False, scale=scale
            )
        elif kernel == "efficient":
            bias = _additive_mask(attn_mask, query, key)
            made = aten._scaled_dot_product_efficient_attention(
                query, key, value, bias, needs_grad, dropout_p, is_causal, scale=scale
            )
        else:
            made = aten._scaled_dot_product_attention_math(
                query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
            )
        output: Tensor = made[0]
        return output

    name = "scaled_dot_product_attention"
    library.impl(name, for_fake_tensors(name, attention), "AutogradCPU")


def _flash(query: Tensor, key: Tensor, value: Tensor, dropout: float, causal: bool, scale: float | None) -> Tensor:
    """Flash attention wants the head's size in multiples of eight; torch pads, and cuts the result."""
    head = query.shape[-1]
    missing = -head % HEAD_ALIGNMENT
    if missing:
        query, key, value = (functional.pad(t, (0, missing)) for t in (query, key, value))
        scale = scale or head**-0.5
    result: Tensor = aten._scaled_dot_product_flash_attention(query, key, value, dropout, causal, False, scale=scale)[0]
    return result[..., :head] if missing else result


def _additive_mask(mask: Tensor | None, query: Tensor, key: Tensor) -> Tensor | None:
    """A mask as numbers, its rows padded to a multiple of 8 and expanded over batch and heads."""
    mask = _numbers_of(mask, query)
    if mask is None:
        return None
    missing = -mask.shape[-1] % MASK_ALIGNMENT
    if missing:
        mask = functional.pad(mask, (0, missing))[..., : mask.shape[-1]]
    return mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])


def _numbers_of(mask: Tensor | None, query: Tensor) -> Tensor | None:
    """A mask of booleans becomes one in the query's type at every call, which is kept for the backward pass."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.where(mask, 0.0, torch.scalar_tensor(float("-inf"), dtype=query.dtype))
