"""For a while this thread believes that its stream is being captured."""

import threading

import pytest
import torch
from transformers import BertConfig, BertModel
from transformers.utils.import_utils import is_cuda_stream_capturing

from brim.engine.captured.host.waiting import as_if_capturing


@pytest.fixture(autouse=True)
def not_captured(monkeypatch):
    """torch without CUDA has nobody to ask."""
    monkeypatch.setattr(torch.cuda.graphs, "_cuda_isCurrentStreamCapturing", lambda: False)


def test_only_this_thread_is_told_that_it_is_captured():
    told = []
    assert not torch.cuda.is_current_stream_capturing()
    with as_if_capturing():
        assert torch.cuda.is_current_stream_capturing() and is_cuda_stream_capturing()
        thread = threading.Thread(target=lambda: told.append(torch.cuda.is_current_stream_capturing()))
        thread.start()
        thread.join()
    assert told == [False] and not torch.cuda.is_current_stream_capturing()


def test_it_ends_with_an_error_too():
    with pytest.raises(KeyError), as_if_capturing():
        raise KeyError
    assert not torch.cuda.is_current_stream_capturing()


def test_an_encoder_of_transformers_does_not_look_into_its_mask_and_computes_the_same(monkeypatch):
    torch.manual_seed(0)
    size = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    model = BertModel(BertConfig(vocab_size=30, **size)).eval()
    tokens, mask = torch.randint(30, (2, 8)), torch.ones(2, 8, dtype=torch.long)
    mask[0, 5:] = 0
    looked = []
    whole = torch.Tensor.all

    def look(tensor, *arguments, **settings):
        looked.append(tensor)
        return whole(tensor, *arguments, **settings)

    eager = model(tokens, attention_mask=mask).last_hidden_state
    monkeypatch.setattr(torch.Tensor, "all", look)
    with as_if_capturing():
        captured = model(tokens, attention_mask=mask).last_hidden_state
    assert not looked
    assert torch.equal(eager, captured)
