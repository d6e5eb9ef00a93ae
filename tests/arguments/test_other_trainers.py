import inspect
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from torch import nn

import brim
from brim.arguments.known import known_arguments
from brim.arguments.other_trainers import PERHAPS, RENAMED, VALUES, advice_on, name_here, other_names
from brim.errors import ConfigError

OWN = set(inspect.signature(brim.Trainer).parameters)
ALL = OWN.union(
    *(inspect.signature(call).parameters for call in (brim.Loader, brim.Trainer.fit, brim.Trainer.predict)),
    {"warmup"},  # of brim.Schedule
)
ROOT = Path(__file__).resolve().parents[2]
GENERIC = "it is not a known name of another trainer's either"


def refused(name):
    with pytest.raises(ConfigError) as caught:
        brim.Trainer(None, None, **{name: 1})
    return str(caught.value)


def test_more_than_sixty_names_of_other_trainers_are_known():
    assert len(set(other_names())) > 150
    assert len(set(other_names())) == len(other_names())  # each in one table


def test_no_name_is_an_argument_of_the_trainer_itself():
    assert [name for name in other_names() if name in OWN and name not in PERHAPS] == []


def test_what_it_is_called_here_is_an_argument():
    assert {name: here for name, here in RENAMED.items() if here not in ALL} == {}


@pytest.mark.parametrize("name", PERHAPS)
def test_what_may_be_there_is_named_only_where_it_is(name):
    here, otherwise = PERHAPS[name]
    assert name_here(name, {here}) == here
    assert name_here(name, set()) is None
    assert advice_on(name) == otherwise


def test_the_trainer_has_a_sentence_for_every_one_of_them():
    for name in set(other_names()) - OWN:
        with pytest.raises(ConfigError, match=name) as caught:
            brim.Trainer(None, None, **{name: 1})
        assert GENERIC not in str(caught.value), name


def test_every_public_call_of_the_trainer_is_checked():
    for call in (brim.Trainer.__init__, brim.Trainer.fit, brim.Trainer.evaluate, brim.Trainer.predict):
        assert call.__code__ is known_arguments(lambda: None).__code__


# Every argument of the trainers that people come from

# Composer's, as of 0.32: it is not installed here.
COMPOSER = """
model train_dataloader train_dataloader_label train_subset_num_batches spin_dataloaders max_duration algorithms
algorithm_passes optimizers schedulers scale_schedule_ratio step_schedulers_every_batch eval_dataloader eval_interval
eval_subset_num_batches callbacks loggers run_name progress_bar log_to_console console_stream console_log_interval
log_traces auto_log_hparams load_path load_object_store load_weights_only load_strict_model_weights load_progress_bar
load_ignore_keys load_exclude_algorithms save_folder save_filename save_latest_filename save_overwrite save_interval
save_weights_only save_ignore_keys save_num_checkpoints_to_keep save_metrics autoresume parallelism_config device
precision precision_config device_train_microbatch_size accumulate_train_batch_on_tokens seed deterministic_mode
dist_timeout ddp_sync_strategy profiler python_log_level compile_config fsdp_config fsdp_auto_wrap deepspeed_config
load_fsdp_monolith_rank0_only load_monolith_rank0_only grad_accum
"""
# Of transformers 4, which many scripts are written for.
OLDER = """
evaluation_strategy warmup_ratio logging_dir overwrite_output_dir no_cuda use_mps_device tpu_num_cores fp16_backend
fp16_opt_level half_precision_backend adafactor group_by_length save_safetensors include_inputs_for_metrics
include_tokens_per_second dispatch_batches split_batches torchdynamo mp_parameters push_to_hub_token
push_to_hub_model_id push_to_hub_organization per_gpu_train_batch_size per_gpu_eval_batch_size tokenizer
predict_with_generate generation_max_length generation_num_beams generation_config sortish_sampler
"""


def arguments_of(library):
    if library == "transformers":
        from transformers import Trainer, TrainingArguments

        return [*inspect.signature(TrainingArguments).parameters, *inspect.signature(Trainer).parameters]
    if library == "lightning":
        from lightning.pytorch import Trainer

        return [*inspect.signature(Trainer).parameters, *inspect.signature(Trainer.fit).parameters]
    if library == "accelerate":
        from accelerate import Accelerator

        return list(inspect.signature(Accelerator).parameters)
    return {"composer": COMPOSER, "older transformers": OLDER}[library].split()


@pytest.mark.parametrize("library", ["transformers", "lightning", "accelerate", "composer", "older transformers"])
def test_every_argument_of_the_trainers_that_people_come_from_has_one_sentence(library):
    foreign = {name for name in arguments_of(library) if name not in OWN and name != "self"}
    assert len(foreign) > 15
    answers = {name: refused(name) for name in foreign}
    assert {
        name: told
        for name, told in answers.items()
        if "\n" in told or not told.startswith(f"Trainer has no argument {name}: ")
    } == {}
    # A name of theirs is no misspelling of one of ours: what a guess by likeness would find is another thing.
    assert {name: told for name, told in answers.items() if "did you mean" in told} == {}


@pytest.mark.parametrize("library", ["transformers", "lightning", "accelerate", "composer", "older transformers"])
def test_none_of_them_is_met_with_the_generic_sentence(library):
    """Say what a new one is here, in RENAMED or in SENTENCES; other versions than the pinned one may have some."""
    foreign = {name for name in arguments_of(library) if name not in OWN and name != "self"}
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    if library in pins and version(library) != pins[library]:
        pytest.skip(f"the names of {library} {pins[library]} are known, and this is {version(library)}")
    assert {name for name in foreign if GENERIC in refused(name)} == set()


def test_a_name_that_nobody_knows_gets_a_sentence_too():
    told = refused("quantum_entanglement_level")
    assert GENERIC in told and told.count("\n") == 0


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("max_steps", -1, "max_steps=-1 must be a whole number of at least 1 or None"),
        ("limit_train_batches", 0.1, "limit_train_batches=0.1 must be a whole number"),
        ("overfit_batches", 0.0, "overfit_batches=0.0 must be a whole number"),
        ("fast_dev_run", 7, "fast_dev_run=7 is not known; use True, False"),
        ("deterministic", "warn", "deterministic='warn' must be True or False"),
        ("precision", "64-true", "hand over model.double()"),
        ("precision", "amp_bf16", "precision='amp_bf16' is not known"),
        ("strategy", "deepspeed_stage_2", "strategy='deepspeed_stage_2' is not known"),
        ("strategy", "ddp_find_unused_parameters_true", "strategy='ddp_find_unused_parameters_true' is not known"),
        ("device", "gpu", "device='gpu' is not a device; use 'cuda'"),
        ("seed", None, "seed=None must be a whole number"),
        ("gradient_accumulation_steps", 0, "gradient_accumulation_steps=0 must be a whole number"),
    ],
)
def test_where_the_name_is_the_same_and_the_value_is_theirs_it_is_refused_in_one_sentence(name, value, said):
    x = torch.randn(4, 2)
    with pytest.raises(ConfigError) as caught:
        brim.Trainer(nn.Linear(2, 1), (x, x[:, :1]), **{"loss_fn": nn.MSELoss(), "device": "cpu", name: value})
    assert said in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", VALUES)
def test_where_a_value_is_another_thing_here_the_value_is_shown(name):
    here = RENAMED.get(name) or PERHAPS[name][0]
    assert VALUES[name].startswith(f"{here}=") and f"it is {VALUES[name]}" in refused(name)


def test_what_is_shown_can_be_written_so():
    x = torch.randn(4, 2)
    shown = {"eval_every": "500 steps", "precision": "auto", "compile": {"backend": "inductor", "mode": "max-autotune"}}
    shown |= {"scheduler_every": "epoch", "ema": 0.999, "loggers": []}
    trainer = brim.Trainer(nn.Linear(2, 1), (x, x[:, :1]), (x, x[:, :1]), loss_fn=nn.MSELoss(), device="cpu", **shown)
    assert {name: getattr(trainer.settings, name) for name in ("eval_every", "ema")} == {
        "eval_every": "500 steps", "ema": 0.999,
    }  # fmt: skip
