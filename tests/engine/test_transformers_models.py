"""Models of transformers, nothing but the model handed over: in parts, each trains as in one big batch."""

import contextlib
import io
from functools import cache

import pytest
import torch
import transformers
from transformers import BatchEncoding

import brim

pytestmark = pytest.mark.usefixtures("own_folder")

STEPS, BATCH, LENGTH, VOCABULARY = 20, 8, 8, 40
GRADIENT, WEIGHTS = 1e-5, 1e-3
FULL = "CUDA out of memory. Tried to allocate 1.00 GiB"
SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
DROPLESS = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}  # parts would draw others


def bert(kind, **settings):
    return kind(transformers.BertConfig(vocab_size=VOCABULARY, **SMALL, **DROPLESS, **settings))


def gpt2():
    size = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 16, "bos_token_id": 1, "eos_token_id": 1}
    none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=VOCABULARY, **size, **none))


def t5():
    size = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2, "dropout_rate": 0.0}
    config = transformers.T5Config(vocab_size=VOCABULARY, decoder_start_token_id=0, pad_token_id=0, **size)
    return transformers.T5ForConditionalGeneration(config)


def llama():
    config = transformers.LlamaConfig(vocab_size=VOCABULARY, num_key_value_heads=1, **SMALL)
    return transformers.LlamaForCausalLM(config)


def adapted():
    peft = pytest.importorskip("peft")
    return peft.get_peft_model(llama(), peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], lora_dropout=0.0))


MODELS = {
    "gpt2": gpt2,
    "bert, tokens": lambda: bert(transformers.BertForTokenClassification, num_labels=VOCABULARY),
    "bert, masked": lambda: bert(transformers.BertForMaskedLM),
    "bert, classes": lambda: bert(transformers.BertForSequenceClassification, num_labels=5),
    "t5": t5,
    "llama": llama,
    "llama, adapted": adapted,
}


def make(name):
    torch.manual_seed(0)
    return MODELS[name]().train()


def data(name, step):
    """One optimisation batch: texts of very different lengths."""
    generator = torch.Generator().manual_seed(step)
    ids = torch.randint(3, VOCABULARY, (BATCH, LENGTH), generator=generator)
    mask = (torch.arange(LENGTH) < torch.randint(2, LENGTH + 1, (BATCH, 1), generator=generator)).long()
    labels = ids.masked_fill(mask == 0, -100)
    if name == "bert, masked":
        labels = labels.masked_fill(
            (torch.rand(labels.shape, generator=generator) > 0.3).index_fill(1, torch.tensor(0), False), -100
        )
    if name == "bert, classes":
        labels = torch.randint(0, 5, (BATCH,), generator=generator)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3)


def numbers(tensors):
    return torch.cat([tensor.detach().double().flatten() for tensor in tensors])


@cache
def reference(name):
    """The first gradient, the weights before and those after the steps of a loop written by hand."""
    model = make(name)
    trained = [p for p in model.parameters() if p.requires_grad]
    start, optimizer, first = numbers(trained), adamw(trained), None
    for step in range(STEPS):
        optimizer.zero_grad()
        model(**data(name, step)).loss.backward()
        first = numbers(p.grad for p in trained) if first is None else first
        optimizer.step()
    return first, start, numbers(trained)


class FirstGradient(brim.Callback):
    found = None

    def on_step_end(self, trainer, step, loss):
        if step == 1:
            self.found = numbers(p.grad for p in trainer.model.parameters() if p.requires_grad)


def cut(batch, parts):
    each = BATCH // parts
    return [{key: value[at * each : (at + 1) * each] for key, value in batch.items()} for at in range(parts)]


def short_of_memory(model, limit):
    forward = model.forward

    def limited(*args, **settings):
        if len(settings["labels"]) > limit:
            raise torch.OutOfMemoryError(FULL)
        return forward(*args, **settings)

    model.forward = limited


def train(name, path, loss_fn=None, kind=dict, steps=STEPS):
    """What brim makes of the same steps; and what it said."""
    model, batches, settings = make(name), [data(name, step) for step in range(steps)], {}
    if path == "accumulation":
        batches = [part for batch in batches for part in cut(batch, 4)]
        settings["gradient_accumulation_steps"] = 4
    elif path == "micro_batch":
        settings["micro_batch"] = 3
    elif path == "shortage":
        short_of_memory(model, BATCH // 2)
        settings["checkpointing"] = False
    first, said = FirstGradient(), io.StringIO()
    with contextlib.redirect_stderr(said):
        trainer = brim.Trainer(
            model, [kind(batch) for batch in batches], loss_fn=loss_fn, optimizer=adamw, device="cpu", threads=1,
            run_dir="run", callbacks=[first], checkpoint_every=10**6, **settings,
        )  # fmt: skip
        trainer.fit()
    return first.found, numbers(p for p in model.parameters() if p.requires_grad), said.getvalue()


PATHS = ("accumulation", "micro_batch", "shortage")


def cases(values):
    """Models with each of these."""
    return [(name, value) for name in MODELS for value in values]


@pytest.mark.matrix(1)
@pytest.mark.parametrize(("name", "path"), cases(PATHS))
def test_parts_of_a_batch_train_as_the_batch(name, path):
    first, weights, said = train(name, path)
    gradient, start, end = reference(name)
    assert float((first - gradient).norm() / gradient.norm()) <= GRADIENT
    assert float((weights - end).norm() / (end - start).norm()) <= WEIGHTS
    assert "another training" not in said and "cannot be told" not in said


def by_keywords(model, batch):
    return model(**batch).loss


def whole_output(model, batch):
    return model(**batch)


def without_labels(model, batch):
    labels = batch.pop("labels")
    logits = model(**batch).logits[:, :-1]
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten())


@pytest.mark.matrix(4)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("how", [by_keywords, whole_output, without_labels, BatchEncoding])
def test_however_the_loss_is_written_its_first_gradient_is_that_of_the_batch(how, path):
    if how is without_labels and path == "shortage":
        pytest.skip("memory runs out by the labels, which are not there")
    loss_fn, kind = (None, BatchEncoding) if how is BatchEncoding else (how, dict)
    first, _, said = train("gpt2", path, loss_fn, kind, steps=1)
    gradient = reference("gpt2")[0]
    assert float((first - gradient).norm() / gradient.norm()) <= GRADIENT
    assert "another training" not in said


@pytest.mark.matrix(3)
@pytest.mark.parametrize(
    ("name", "limit"),
    cases((BATCH, 2)),
)
def test_the_mean_loss_of_an_evaluation_is_that_of_all_at_once(name, limit):
    model, batches = make(name), [data(name, step) for step in range(3)]
    uneven = [part for batch in batches for part in (*cut(batch, 8)[:3], {k: v[3:] for k, v in batch.items()})]
    whole = {key: torch.cat([batch[key] for batch in batches]) for key in batches[0]}
    with torch.no_grad():
        want = float(model.eval()(**whole).loss)
    short_of_memory(model.train(), limit)
    trainer = brim.Trainer(model, uneven, device="cpu", threads=1, run_dir="run")
    assert trainer.evaluate(uneven)["loss"] == pytest.approx(want, rel=1e-5)


def test_batches_of_a_single_text_are_weighted_by_their_labels():
    batches = cut(data("gpt2", 0), BATCH)
    first = FirstGradient()
    trainer = brim.Trainer(
        make("gpt2"), batches, optimizer=adamw, device="cpu", threads=1, run_dir="run", callbacks=[first],
        gradient_accumulation_steps=BATCH,
    )  # fmt: skip
    trainer.fit()
    gradient = reference("gpt2")[0]
    assert float((first.found - gradient).norm() / gradient.norm()) <= GRADIENT


# What a model's kind does not tell


def mixtral():
    config = transformers.MixtralConfig(
        vocab_size=VOCABULARY, num_key_value_heads=1, num_local_experts=4, output_router_logits=True, **SMALL
    )
    return transformers.MixtralForCausalLM(config)


def test_an_auxiliary_loss_over_the_batch_is_warned_about_once(capsys):
    torch.manual_seed(0)
    settings = {"optimizer": adamw, "device": "cpu", "threads": 1, "run_dir": "run", "micro_batch": 4}
    brim.Trainer(mixtral(), [data("gpt2", step) for step in range(2)], **settings).fit()
    assert capsys.readouterr().err.count("another training than with the whole batch") == 1


@pytest.mark.parametrize("kind", ["multi-label", "regression"])
def test_heads_that_count_otherwise_are_exact_or_warned_about(kind, capsys):
    def made():
        torch.manual_seed(0)
        problem, width = {"multi-label": ("multi_label_classification", 5), "regression": ("regression", 1)}[kind]
        return bert(transformers.BertForSequenceClassification, num_labels=width, problem_type=problem).train()

    def batch():
        labels = torch.rand(BATCH, 5).round() if kind == "multi-label" else torch.rand(BATCH)
        return {**data("gpt2", 0), "labels": labels}

    torch.manual_seed(3)
    one, model, whole, first = batch(), made(), made(), FirstGradient()
    brim.Trainer(
        model, [one], optimizer=adamw, device="cpu", threads=1, run_dir="run", micro_batch=3, callbacks=[first]
    ).fit()
    whole(**one).loss.backward()
    want = numbers(p.grad for p in whole.parameters())
    exact = float((first.found - want).norm() / want.norm()) <= GRADIENT
    assert exact or "another training" in capsys.readouterr().err


def test_a_batch_that_is_no_dict_is_refused_in_a_sentence():
    with pytest.raises(brim.BrimError, match="dicts with 'labels'"):
        brim.Trainer(make("gpt2"), [(torch.ones(2, 3).long(),)], device="cpu", threads=1, run_dir="run").fit()


def test_a_batch_without_labels_is_refused_in_a_sentence():
    batch = {key: value for key, value in data("gpt2", 0).items() if key != "labels"}
    with pytest.raises(brim.BrimError, match="its batches need 'labels', and this one is a dict with input_ids"):
        brim.Trainer(make("gpt2"), [batch], device="cpu", threads=1, run_dir="run").fit()


def test_an_adapted_model_is_predicted_with_and_saved_as_peft_saves_it(tmp_path):
    peft = pytest.importorskip("peft")
    torch.manual_seed(0)
    base = llama()
    kept = {name: tensor.clone() for name, tensor in base.state_dict().items()}
    model = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], lora_dropout=0.0))
    batches = [data("llama", step) for step in range(3)]
    trainer = brim.Trainer(model, batches, device="cpu", threads=1, lr=0.1, run_dir=tmp_path / "run")
    trainer.fit()
    logits = trainer.predict(batches)
    assert torch.equal(logits, torch.cat([model.eval()(**batch).logits for batch in batches]).detach())
    model.save_pretrained(tmp_path / "adapter")
    fresh = llama()
    fresh.load_state_dict(kept)
    again = peft.PeftModel.from_pretrained(fresh, tmp_path / "adapter").eval()
    torch.testing.assert_close(torch.cat([again(**batch).logits for batch in batches]).detach(), logits)
