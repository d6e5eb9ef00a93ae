import json

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import AutoConfig, AutoTokenizer, GPT2Config, PreTrainedTokenizerFast

from brim.errors import DataError
from brim.workloads.recommender.text_encoder import TextEncoder

CODE = """
import os
os.mkdir({trace!r})
from transformers import GPT2Config, GPT2Model
class EvilConfig(GPT2Config): model_type = "evil"
class Evil(GPT2Model): config_class = EvilConfig
"""


def test_code_in_the_folder_does_not_run_whatever_is_typed(tmp_path, trap, monkeypatch):
    folder = tmp_path / "model"
    folder.mkdir()
    classes = {"AutoConfig": "evil.EvilConfig", "AutoModel": "evil.Evil", "AutoTokenizer": ["evil.Evil", None]}
    (folder / "config.json").write_text(json.dumps({"model_type": "evil", "auto_map": classes}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"auto_map": classes}))
    (folder / "evil.py").write_text(CODE.format(trace=str(trap.trace)))
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    AutoConfig.from_pretrained(folder)
    assert trap.has_sprung  # the payload is alive: transformers asks, and a "y" runs it
    with pytest.raises(DataError, match="contains custom code"):
        TextEncoder(str(folder))
    assert not trap.has_sprung


def test_code_in_the_weights_does_not_run(tmp_path, trap):
    folder = tmp_path / "model"
    GPT2Config(vocab_size=5, n_positions=8, n_embd=4, n_layer=1, n_head=1).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)
    assert AutoTokenizer.from_pretrained(folder)("a")["input_ids"]  # nothing else is wrong with the folder
    torch.save({"wte.weight": trap}, folder / "pytorch_model.bin")
    torch.load(folder / "pytorch_model.bin", weights_only=False)
    assert trap.has_sprung
    with pytest.raises(DataError, match="cannot be loaded"):
        TextEncoder(str(folder))
    assert not trap.has_sprung


@pytest.mark.parametrize(
    "text", ["{", "[]", "null", '{"model_type": 5}', '{"model_type": "gpt2", "n_embd": "x"}', "\0"]
)
def test_a_description_of_anything_is_one_sentence(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(DataError, match="cannot be loaded"):
        TextEncoder(str(tmp_path))
