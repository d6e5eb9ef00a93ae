"""Adapters of peft on a model of transformers: a checkpoint holds what is trained, and the base is on disk once."""

import pytest
import torch
from safetensors.torch import load_file

import brim
from brim.engine.checkpoints.export import export_weights
from brim.engine.checkpoints.shared_files import references_in
from brim.engine.checkpoints.weights import read_weights
from brim.workloads.saved_model import load

peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")

IDS = torch.randint(0, 512, (24, 12), generator=torch.Generator().manual_seed(1))
DATA = {"input_ids": IDS, "labels": IDS.clone()}


def make_base(seed=0):
    torch.manual_seed(seed)
    size = {"n_positions": 16, "n_embd": 128, "n_layer": 4, "n_head": 4}
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=512, use_cache=False, bos_token_id=0, eos_token_id=0, **size)
    )


def make_model(seed=0, **settings):
    base = make_base(seed)
    torch.manual_seed(2)
    fixed = {"r": 4, "target_modules": ["c_attn"], "fan_in_fan_out": True, "lora_dropout": 0.1}
    return peft.get_peft_model(base, peft.LoraConfig(**{**fixed, **settings}))


def make_trainer(folder, model, **settings):
    fixed = {"epochs": 2, "lr": 0.01, "optimizer": "AdamW", "device": "cpu", "threads": 1, "keep": 10}
    held_out = {name: ids[:8] for name, ids in DATA.items()}
    return brim.Trainer(model, brim.Loader(DATA, 8), held_out, run_dir=folder, **{**fixed, **settings})


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def size_of(folder):
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def bytes_of_base(model):
    return sum(
        p.nbytes for name, p in model.named_parameters() if "lora_" not in name and "modules_to_save" not in name
    )


def outputs(model):
    with torch.no_grad():
        return model.eval()(input_ids=IDS).logits


@pytest.mark.matrix(1)
@pytest.mark.parametrize("ema", [None, 0.9])
def test_checkpoints_of_adapters_are_a_tenth_of_the_base_and_go_on_to_the_bit(tmp_path, ema):
    straight, resumed = make_model(), make_model(seed=5)
    make_trainer(tmp_path / "straight", straight, epochs=4, ema=ema).fit()
    make_trainer(tmp_path / "run", make_model(), ema=ema).fit()
    make_trainer(tmp_path / "run", resumed, epochs=4, ema=ema).fit(resume="auto")
    assert same(resumed.state_dict(), straight.state_dict())

    checkpoints = tmp_path / "run" / "checkpoints"
    trained = {name for name, parameter in straight.named_parameters() if parameter.requires_grad}
    written = [*checkpoints.glob("step-*"), checkpoints / "best"]
    assert len(written) == 5
    for path in written:
        assert load_file(path / "model.safetensors").keys() == trained
        assert 10 * size_of(path) < bytes_of_base(straight)
    (base,) = (checkpoints / "frozen").iterdir()
    assert 0.95 < base.stat().st_size / bytes_of_base(straight) < 1.1


def test_what_fit_leaves_is_loaded_exported_and_saved_as_peft_saves_it(tmp_path):
    model = make_model()
    make_trainer(tmp_path / "run", model, epochs=3).fit(save_model=True, model_path=tmp_path / "model.pt")
    left = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert same(torch.load(tmp_path / "model.pt", weights_only=True), left)
    assert same(load(tmp_path / "run", make_model(seed=3)).state_dict(), left)
    exported, _ = export_weights(tmp_path / "run")
    assert references_in(exported) == {} and same(load(tmp_path / "run", make_model(seed=4)).state_dict(), left)
    assert all(torch.equal(tensor, left[name]) for name, tensor in read_weights(exported).items())

    model.save_pretrained(tmp_path / "adapters")
    assert 10 * size_of(tmp_path / "adapters") < bytes_of_base(model)
    assert all("lora_" in name for name in load_file(tmp_path / "adapters" / "adapter_model.safetensors"))
    again = peft.PeftModel.from_pretrained(make_base(), tmp_path / "adapters")
    assert torch.equal(outputs(again), outputs(model))


def test_modules_that_are_trained_whole_are_with_the_adapters(tmp_path):
    model = make_model(modules_to_save=["ln_f"])
    make_trainer(tmp_path / "run", model).fit()
    best = tmp_path / "run" / "checkpoints" / "best" / "model.safetensors"
    kept = {name for name in load_file(best) if "modules_to_save" in name}
    assert len(kept) == 2 and same(read_weights(best), model.state_dict())
    model.save_pretrained(tmp_path / "adapters")
    again = peft.PeftModel.from_pretrained(make_base(), tmp_path / "adapters")
    assert torch.equal(outputs(again), outputs(model))


def test_adapters_merged_into_the_base_are_found(tmp_path):
    class Merges(brim.Callback):
        def on_save(self, trainer, step):
            if step == 6:
                trainer.model.merge_adapter()

    model = make_model()
    trainer = make_trainer(tmp_path / "run", model, callbacks=[Merges()], restore_best=False)
    trainer.fit()
    newest = max((tmp_path / "run" / "checkpoints").glob("step-*")) / "model.safetensors"
    assert newest.parent.name == "step-000000006"
    assert same(read_weights(newest), model.state_dict())
    assert any("c_attn.base_layer.weight" in name for name in load_file(newest))
