"""What Lightning, transformers, Accelerate, Composer and Keras call things, and what to write here.

A renamed argument is one word; where it is not an argument here, one of the :mod:`sentences` says what to write.
"""

from collections.abc import Collection

from brim.arguments.sentences import OWN_LOOP, SENTENCES

RENAMED: dict[str, str] = {
    # how long
    "max_epochs": "epochs", "num_train_epochs": "epochs", "num_epochs": "epochs", "n_epochs": "epochs",
    "epoch": "epochs", "nb_epochs": "epochs", "max_iters": "max_steps", "num_steps": "max_steps",
    "total_steps": "max_steps", "num_training_steps": "max_steps", "max_train_steps": "max_steps",
    # gradients
    "gradient_clip_val": "clip_norm", "max_grad_norm": "clip_norm", "grad_clip": "clip_norm",
    "clip_grad": "clip_norm", "clip_grad_norm": "clip_norm", "gradient_clip_norm": "clip_norm", "clipnorm": "clip_norm",
    "accumulation_steps": "gradient_accumulation_steps", "grad_accum_steps": "gradient_accumulation_steps",
    "gradient_accumulation": "gradient_accumulation_steps", "accumulate_grad": "gradient_accumulation_steps",
    "grad_accum": "gradient_accumulation_steps",
    # the rate and what follows it
    "learning_rate": "lr", "optim": "optimizer", "optimizers": "optimizer", "optimiser": "optimizer",
    "opt": "optimizer", "sched": "scheduler",
    "lr_scheduler": "scheduler", "lr_scheduler_type": "scheduler", "schedulers": "scheduler", "schedule": "scheduler",
    "step_schedulers_every_batch": "scheduler_every", "lr_scheduler_interval": "scheduler_every",
    # data
    "train_dataset": "train_data", "train_dataloader": "train_data", "train_dataloaders": "train_data",
    "train_loader": "train_data", "trainloader": "train_data", "train_ds": "train_data", "training_data": "train_data",
    "eval_dataset": "eval_data", "eval_dataloader": "eval_data", "val_dataloader": "eval_data",
    "val_dataloaders": "eval_data", "val_loader": "eval_data", "valid_loader": "eval_data", "val_data": "eval_data",
    "valid_data": "eval_data", "validation_data": "eval_data", "val_dataset": "eval_data", "valid_ds": "eval_data",
    "test_dataset": "test_data", "test_dataloader": "test_data", "test_dataloaders": "test_data",
    "test_loader": "test_data", "test_ds": "test_data", "dataloaders": "data", "dataloader": "data", "dataset": "data",
    "loader": "data", "predict_dataloaders": "data",
    "limit_val_batches": "limit_eval_batches", "limit_test_batches": "limit_eval_batches",
    "eval_subset_num_batches": "limit_eval_batches", "validation_steps": "limit_eval_batches",
    "train_subset_num_batches": "limit_train_batches", "steps_per_epoch": "limit_train_batches",
    # loss
    "criterion": "loss_fn", "loss": "loss_fn", "compute_loss_func": "loss_fn", "loss_function": "loss_fn",
    "loss_func": "loss_fn",
    # places and notes
    "default_root_dir": "run_dir", "output_dir": "run_dir", "log_dir": "run_dir", "logging_dir": "run_dir",
    "save_folder": "run_dir", "project_dir": "run_dir", "run_name": "run_dir", "work_dir": "run_dir",
    "log_every_n_steps": "log_every", "logging_steps": "log_every", "save_steps": "checkpoint_every",
    "every_n_train_steps": "checkpoint_every", "save_interval": "checkpoint_every", "save_total_limit": "keep",
    "save_top_k": "keep_best", "save_num_checkpoints_to_keep": "keep",
    "eval_steps": "eval_every", "eval_interval": "eval_every", "check_val_every_n_epoch": "eval_every",
    "val_check_interval": "eval_every", "eval_strategy": "eval_every", "evaluation_strategy": "eval_every",
    "early_stopping_patience": "patience", "early_stopping": "patience",
    "ckpt_path": "resume", "resume_from_checkpoint": "resume", "load_path": "resume", "autoresume": "resume",
    "checkpoint": "resume", "callback": "callbacks", "random_state": "seed", "data_seed": "seed",
    "seed_everything": "seed",
    # machine
    "use_cpu": "device", "no_cuda": "device", "cpu": "device", "use_mps_device": "device",
    "gradient_checkpointing": "checkpointing",
    "activation_checkpointing": "checkpointing", "torch_compile": "compile", "microbatch_size": "micro_batch",
    "device_train_microbatch_size": "micro_batch", "full_determinism": "deterministic",
    "deterministic_mode": "deterministic", "torch_compile_backend": "compile", "torch_compile_mode": "compile",
    "compile_config": "compile", "dynamo_backend": "compile", "dynamo_plugin": "compile", "torchdynamo": "compile",
    "channels_last": "memory_format", "amp": "precision", "mixed_precision": "precision", "use_amp": "precision",
}  # fmt: skip

# How it is written where the value is another thing than there: 500 of eval_steps would be as many epochs.
VALUES: dict[str, str] = {
    "eval_steps": "eval_every='500 steps'",
    "val_check_interval": "eval_every='500 steps', in optimizer steps",
    "eval_interval": "eval_every=1 for '1ep', eval_every='100 steps' for '100ba'",
    "eval_strategy": "eval_every=1 for 'epoch', eval_every='500 steps' for 'steps' and eval_steps=500",
    "evaluation_strategy": "eval_every=1 for 'epoch', eval_every='500 steps' for 'steps' and eval_steps=500",
    "save_interval": "checkpoint_every=100 for '100ba'; without it there is one an epoch",
    "save_steps": "checkpoint_every=500, in optimizer steps",
    "use_cpu": "device='cpu'",
    "no_cuda": "device='cpu'",
    "cpu": "device='cpu'",
    "use_mps_device": "device='mps'",
    "amp": "precision='auto', bf16 or fp16 by the GPU",
    "use_amp": "precision='auto', bf16 or fp16 by the GPU",
    "mixed_precision": "precision='16-mixed' for 'fp16', precision='bf16-mixed' for 'bf16'",
    "step_schedulers_every_batch": "scheduler_every='step' for True, scheduler_every='epoch' for False",
    "lr_scheduler_interval": "scheduler_every='step' or 'epoch'",
    "torch_compile_backend": "compile={'backend': 'inductor'}",
    "torch_compile_mode": "compile={'mode': 'max-autotune'}",
    "compile_config": "compile={'mode': 'max-autotune'}",
    "dynamo_backend": "compile={'backend': 'inductor'}",
    "dynamo_plugin": "compile={'backend': 'inductor', 'mode': 'max-autotune'}",
    "torchdynamo": "compile={'backend': 'inductor'}",
    "optimizers": "optimizer=..., and scheduler= beside it",
    "greater_is_better": "mode='max' for True, mode='min' for False, beside monitor=",
    "load_best_model_at_end": "restore_best=True, which is the default",
    "compute_loss_func": "loss_fn=lambda model, batch: ..., which calls the model itself",
    "early_stopping": "patience=3, evaluations without a better one",
    "ema_decay": "ema=0.999, the decay",
    "model_ema": "ema=0.999, the decay",
    "model_ema_decay": "ema=0.999, the decay",
    "channels_last": "memory_format='channels_last'",
    "compute_metrics": "metrics='accuracy', or metrics={'name': function} of (outputs, batch), called for each batch",
}

_METRICS = (
    "it is Trainer(metrics=...)'s, and trainer.evaluate(data, metrics=...)'s; a loop of your own computes its own"
)
# Another name where the call has such an argument, and what is said where it has none.
PERHAPS: dict[str, tuple[str, str]] = {
    "compute_metrics": ("metrics", _METRICS),
    "eval_metrics": ("metrics", _METRICS),
    "metric": ("metrics", _METRICS),
    "metrics": ("metrics", _METRICS),
    "monitor": ("monitor", "eval_data says so, in its attribute monitor"),
    "mode": ("mode", "eval_data says so, in its attribute higher_is_better"),
    "metric_for_best_model": ("monitor", "eval_data says so, in its attribute monitor"),
    "greater_is_better": ("mode", "eval_data says so, in its attribute higher_is_better"),
    "load_best_model_at_end": ("restore_best", "fit always leaves the model with its best weights by eval_data"),
    "ema": ("ema", "keep a torch.optim.swa_utils.AveragedModel in a brim.Callback"),
    "model_ema": ("ema", "keep a torch.optim.swa_utils.AveragedModel in a brim.Callback"),
    "model_ema_decay": ("ema", "keep a torch.optim.swa_utils.AveragedModel in a brim.Callback"),
    "ema_decay": ("ema", "keep a torch.optim.swa_utils.AveragedModel in a brim.Callback"),
    "logger": ("loggers", "what a run measures is in metrics.jsonl of its run_dir="),
    "log_with": ("loggers", "what a run measures is in metrics.jsonl of its run_dir="),
    "report_to": ("loggers", "what a run measures is in metrics.jsonl of its run_dir="),
}


def name_here(name: str, known: Collection[str]) -> str | None:
    """What another trainer's argument is called here, where there is such a one among ``known``.

    >>> name_here("max_epochs", {"epochs"})
    'epochs'
    """
    renamed = RENAMED.get(name) or PERHAPS.get(name, ("", ""))[0]
    return renamed if renamed in known else None


def written_here(name: str, here: str) -> str:
    """How the argument ``here`` is written in its place.

    >>> written_here("eval_steps", "eval_every"), written_here("max_epochs", "epochs")
    ("eval_every='500 steps'", 'epochs= here')
    """
    return VALUES.get(name, f"{here}= here")


def advice_on(name: str) -> str | None:
    """What to do instead, where another trainer's argument is none here.

    >>> advice_on("fp16")
    "it is precision='16-mixed'"
    """
    return SENTENCES.get(name) or PERHAPS.get(name, ("", None))[1] or OWN_LOOP.get(RENAMED.get(name, name))


def other_names() -> list[str]:
    """All names of other trainers' that are known.

    >>> "max_epochs" in other_names()
    True
    """
    return [*RENAMED, *SENTENCES, *PERHAPS]
