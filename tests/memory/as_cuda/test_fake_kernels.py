"""Grouped products and histograms of whole numbers on fake tensors, as CUDA computes them."""

import pytest
import torch
from torch._subclasses import fake_impls

from brim.errors import ModelError
from brim.hardware.cards import H200
from brim.memory import forecast
from brim.memory.as_cuda.mode import as_cuda
from brim.memory.trace.trace import Recorder

EXPERTS, TOKENS, WIDTH, INNER = 4, 96, 64, 128


def grouped(dtype: torch.dtype, transposed: bool):
    """Shapes and types of a grouped product and of its gradients."""
    recorder = Recorder(H200, (2, 11))
    with as_cuda(H200, (2, 11), recorder), recorder:
        x = torch.empty(TOKENS, WIDTH, dtype=dtype, requires_grad=True)
        weight = torch.empty(
            (EXPERTS, INNER, WIDTH) if transposed else (EXPERTS, WIDTH, INNER), dtype=dtype, requires_grad=True
        )
        counts = torch.histc(torch.empty(TOKENS, dtype=torch.int32), bins=EXPERTS, min=0, max=EXPERTS - 1)
        offsets = torch.cumsum(counts, 0, dtype=torch.int32)
        recorder.enter("forward")
        recorder.watching = True
        product = torch._grouped_mm(x, weight.transpose(1, 2) if transposed else weight, offs=offsets)
        recorder.enter("backward")
        product.sum().backward()
        assert (x.grad.shape, weight.grad.shape) == (x.shape, weight.shape)
        return product.shape, product.dtype, recorder.finish()


@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_grouped_product_and_its_gradients(dtype: torch.dtype, transposed: bool) -> None:
    shape, kind, trace = grouped(dtype, transposed)
    assert (shape, kind) == ((TOKENS, INNER), dtype)
    made = [s.size for s in trace.storages if "_grouped_mm" in s.operator and s.kind == ""]
    bytes_of = torch.empty((), dtype=dtype).element_size()
    assert sorted(made) == sorted(
        [TOKENS * INNER * bytes_of, TOKENS * WIDTH * bytes_of, EXPERTS * WIDTH * INNER * bytes_of]
    )


def test_only_products_group_by_group_need_the_workspace_of_cublas() -> None:
    for dtype, workspaces in ((torch.float32, 2), (torch.bfloat16, 0)):
        trace = grouped(dtype, True)[2]
        assert sum(storage.size == 32 << 20 for storage in trace.storages) == workspaces


def test_factors_that_do_not_fit_are_refused_with_their_line() -> None:
    class Wrong(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.empty(EXPERTS, WIDTH + 8, INNER))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch._grouped_mm(x, self.weight, offs=torch.zeros(EXPERTS, dtype=torch.int32))

    with pytest.raises(ModelError, match=r"test_fake_kernels.py:\d+ .*inner sizes agree"):
        forecast(Wrong, lambda n: ((torch.empty(n, WIDTH),), {}), batch_size=8, card=H200)


def test_torchs_own_kernels_are_back_afterwards() -> None:
    before = dict(fake_impls.op_implementations_dict)
    grouped(torch.float32, True)
    assert fake_impls.op_implementations_dict == before


@pytest.mark.parametrize("precision", ["32", "bf16"])
def test_experts_of_transformers_through_grouped_products(precision: str) -> None:
    transformers = pytest.importorskip("transformers", reason="mixtures of experts come from transformers")
    config = transformers.MixtralConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, num_local_experts=4, use_cache=False,
    )  # fmt: skip

    def tokens(n: int):
        made = torch.randint(0, 64, (n, 16))
        return (), {"input_ids": made, "labels": made}

    found = forecast(
        lambda: transformers.MixtralForCausalLM(config), tokens, batch_size=4, precision=precision, card=H200
    )
    weights = sum(p.numel() for p in transformers.MixtralForCausalLM(config).parameters())
    assert found.parts["parameters"] >= 4 * weights
    assert found.parts["activations"] > 0
    assert not found.notes
