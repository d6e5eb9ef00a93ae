from types import MethodType

import pytest
import torch
from helpers.compiled_training import Net, batches
from torch import nn
from torch._dynamo.utils import counters

from brim.engine.calling.compiler import Compiler
from brim.engine.compiled import CompiledLoss
from brim.engine.compiled.caches_off import caching_configs
from brim.engine.components.loss import loss_of
from brim.engine.oom.activation_checkpointing import BEFORE, forward

transformers = pytest.importorskip("transformers")
IDS = torch.arange(24).reshape(2, 12) % 20
BATCH = {"input_ids": IDS, "labels": IDS}


def gpt2(layers=4):
    torch.manual_seed(0)
    sizes = {"n_layer": layers, "n_embd": 8, "n_head": 2, "vocab_size": 20, "n_positions": 16}
    config = transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, pad_token_id=0)
    return transformers.GPT2LMHeadModel(config).train()


def gradients(model, compute):
    torch.manual_seed(1)
    model.zero_grad()
    compute(BATCH).backward()
    return [parameter.grad.clone() for parameter in model.parameters()], torch.get_rng_state()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_gpt2s_layers_are_one_graph_whatever_its_cache_is_set_to(backend):
    torch._dynamo.reset()
    model = gpt2()
    counted = loss_of(model, None)
    eager, drawn = gradients(model, counted.plain)
    counters.clear()
    compiled, drawn_compiled = gradients(model, CompiledLoss(counted, Compiler(backend=backend, per="block")))
    assert counters["stats"]["unique_graphs"] <= 3  # a layer, and what is before and after them
    assert model.config.use_cache is True
    assert torch.equal(drawn, drawn_compiled)
    for one, other in zip(eager, compiled, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_caches_stay_on_where_the_loss_reads_them():
    model = gpt2(1)
    assert caching_configs(model, None) == [model.config]
    assert caching_configs(model, lambda model, batch: model(**batch).loss) == [model.config]
    assert caching_configs(model, lambda model, batch: model(**batch).past_key_values) == []


def test_a_module_that_calls_blocks_may_be_computed_again_in_the_backward_pass():
    torch.manual_seed(0)
    model, (batch, *_) = Net(), batches()
    counted = loss_of(model, nn.MSELoss())
    compiled = CompiledLoss(counted, Compiler(backend="aot_eager", per="block"))
    found = []
    for run, is_recomputed in ((counted.plain, False), (compiled, True)):
        if is_recomputed:
            vars(model).update({BEFORE: None, "forward": MethodType(forward, model)})
        torch.manual_seed(1)
        model.zero_grad()
        run(batch).backward()
        found.append([parameter.grad.clone() for parameter in model.parameters()])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    assert vars(model)[BEFORE] is None
