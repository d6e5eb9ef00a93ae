"""What Lightning, transformers, Composer and Keras call things, and what to write here.

A renamed argument is one word; where it is not an argument here, a sentence says what to write.
"""

from collections.abc import Collection

RENAMED: dict[str, str] = {
    # how long
    "max_epochs": "epochs", "num_train_epochs": "epochs", "num_epochs": "epochs", "n_epochs": "epochs",
    "epoch": "epochs", "nb_epochs": "epochs", "max_iters": "max_steps", "num_steps": "max_steps",
    "total_steps": "max_steps", "num_training_steps": "max_steps", "max_train_steps": "max_steps",
    # gradients
    "gradient_clip_val": "clip_norm", "max_grad_norm": "clip_norm", "grad_clip": "clip_norm",
    "clip_grad_norm": "clip_norm", "gradient_clip_norm": "clip_norm", "clipnorm": "clip_norm",
    "accumulation_steps": "gradient_accumulation_steps", "grad_accum_steps": "gradient_accumulation_steps",
    "gradient_accumulation": "gradient_accumulation_steps", "accumulate_grad": "gradient_accumulation_steps",
    # the rate and what follows it
    "learning_rate": "lr", "optim": "optimizer", "optimizers": "optimizer", "optimiser": "optimizer",
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
    "save_folder": "run_dir", "run_name": "run_dir", "work_dir": "run_dir",
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
    "use_cpu": "device", "no_cuda": "device", "gradient_checkpointing": "checkpointing",
    "activation_checkpointing": "checkpointing", "torch_compile": "compile", "microbatch_size": "micro_batch",
    "device_train_microbatch_size": "micro_batch", "parallelism_config": "strategy",
    "full_determinism": "deterministic",
    "amp": "precision", "mixed_precision": "precision", "use_amp": "precision",
}  # fmt: skip

_LOADER = "the batch is the loader's: brim.Loader(data, batch_size=...) or a torch DataLoader"
_ALL_GPUS = f"{_LOADER}, counted over all GPUs together"
_RANKS = "one is device='cuda:0'; for several start a process for each: torchrun --nproc-per-node=N script.py"
_WARM_UP = "it is the schedule's: scheduler=brim.Schedule('linear', warmup=100)"
_BAR = "the bar is shown in a terminal only, and stays away elsewhere"
_KEPT = "checkpoints are always written, so that every run can go on; see checkpoint_every= and keep="
_METRICS = "hand over eval_data that has monitor, higher_is_better and evaluate(model)"
_NO_TOKENIZER = "the trainer needs none; tokenize in the data set or in its collate_fn"


def _of_loader(name: str) -> str:
    return f"it is the loader's: brim.Loader(data, {name}=...) or a torch DataLoader"


def _of_optimizer(name: str, optimizer: str = "AdamW") -> str:
    return f"it is the optimizer's own: optimizer={{'name': '{optimizer}', '{name}': ...}}"


SENTENCES: dict[str, str] = {
    # batches
    "per_device_train_batch_size": _ALL_GPUS,
    "per_device_eval_batch_size": _ALL_GPUS,
    "train_batch_size": _ALL_GPUS,
    "global_batch_size": _LOADER,
    "batch_size": _LOADER,
    "auto_find_batch_size": "micro_batch='auto', the default, finds what fits, and the batch stays what it is",
    "auto_scale_batch_size": "micro_batch='auto', the default, finds what fits, and the batch stays what it is",
    "shuffle": _of_loader("shuffle"),
    "num_workers": _of_loader("num_workers"),
    "dataloader_num_workers": _of_loader("num_workers"),
    "drop_last": _of_loader("drop_last"),
    "dataloader_drop_last": _of_loader("drop_last"),
    "pin_memory": _of_loader("pin_memory"),
    "dataloader_pin_memory": _of_loader("pin_memory"),
    "collate_fn": _of_loader("collate_fn"),
    "data_collator": _of_loader("collate_fn"),
    "datamodule": "hand its loaders to the trainer: Trainer(model, dm.train_dataloader(), dm.val_dataloader())",
    "reload_dataloaders_every_n_epochs": "data is looked at anew in each epoch",
    "use_distributed_sampler": "each rank gets its share of every batch by itself",
    "x": "data is one argument: (x, y)",
    "y": "data is one argument: (x, y)",
    "validation_split": "split the data, and hand the second part over as eval_data=",
    # machine
    "devices": _RANKS,
    "gpus": _RANKS,
    "n_gpu": _RANKS,
    "tpu_cores": "TPUs are not supported; device= is 'cuda', 'cpu', 'mps' or 'auto'",
    "num_nodes": "start torchrun --nnodes=N --nproc-per-node=M script.py on each machine",
    "accelerator": "it is device= here: 'cuda', 'cpu', 'mps' or 'auto'",
    "fsdp": "it is strategy='fsdp', under torchrun",
    "fsdp_config": "it is strategy='fsdp', under torchrun, which needs no more",
    "deepspeed": "sharding over GPUs is strategy='fsdp', under torchrun",
    "ddp_find_unused_parameters": "ranks need no such setting: a parameter without a gradient is left alone",
    "sync_batchnorm": "call nn.SyncBatchNorm.convert_sync_batchnorm(model) before you hand the model over",
    "fp16": "it is precision='16-mixed'",
    "bf16": "it is precision='bf16-mixed'",
    "tf32": "it is precision='tf32'",
    "benchmark": "set torch.backends.cudnn.benchmark = True in the script",
    "profiler": "use torch.profiler around fit",
    "detect_anomaly": "call torch.autograd.set_detect_anomaly(True) in the script; on_nan= is about losses",
    "inference_mode": "evaluation is always without gradients",
    # how long, and how
    "max_duration": "it is epochs=3 for '3ep', and max_steps=100 for '100ba'",
    "min_delta": "every better evaluation counts for patience=, however little better it is",
    "early_stopping_threshold": "every better evaluation counts for patience=, however little better it is",
    "transform": "transforms are the data set's own, before or in its __getitem__",
    "max_time": "write a brim.Callback whose on_step_end calls trainer.stop('time is over')",
    "min_epochs": "it is epochs= here, and only patience= ends a run earlier",
    "weight_decay": _of_optimizer("weight_decay"),
    "betas": _of_optimizer("betas"),
    "adam_beta1": _of_optimizer("betas"),
    "adam_beta2": _of_optimizer("betas"),
    "eps": _of_optimizer("eps"),
    "adam_epsilon": _of_optimizer("eps"),
    "momentum": _of_optimizer("momentum", "SGD"),
    "warmup_steps": _WARM_UP,
    "num_warmup_steps": _WARM_UP,
    "warmup_ratio": _WARM_UP,
    "gradient_clip_algorithm": "clip_norm= clips by norm, the only way there is",
    "no_decay": _of_optimizer("no_decay"),
    "layer_decay": _of_optimizer("layer_decay"),
    "label_smoothing_factor": "it is the criterion's: loss_fn=nn.CrossEntropyLoss(label_smoothing=...)",
    "label_smoothing": "it is the criterion's: loss_fn=nn.CrossEntropyLoss(label_smoothing=...)",
    "min_steps": "it is max_steps= here, and only patience= ends a run earlier",
    "sampler": "give a torch DataLoader with that sampler instead",
    "batch_sampler": "give a torch DataLoader with that sampler instead",
    "group_by_length": "it is the loader's: give a torch DataLoader with a sampler of your own",
    "plugins": "there are none; change the model or the data before, or write a brim.Callback",
    "algorithms": "there are none; change the model or the data before, or write a brim.Callback",
    "class_weight": "it is the criterion's: loss_fn=nn.CrossEntropyLoss(weight=...)",
    "clip_value": "clip_norm= clips by norm, the only way there is",
    # numbers that are logged
    "prog_bar": "the bar shows the loss, the rate and the speed; the number is in metrics.jsonl",
    "on_step": "a line of metrics.jsonl has the mean over its steps, and log_every= says how many these are",
    "on_epoch": "a line of metrics.jsonl has the mean over its steps, and log_every= says how many these are",
    "sync_dist": "numbers are averaged over ranks by themselves",
    "rank_zero_only": "numbers are averaged over ranks, and written by the first one",
    # what is seen and kept
    "enable_progress_bar": _BAR,
    "progress_bar": _BAR,
    "disable_tqdm": _BAR,
    "verbose": _BAR,
    "enable_model_summary": "there is no summary to switch off",
    "enable_checkpointing": _KEPT,
    "save_strategy": _KEPT,
    "num_sanity_val_steps": "call trainer.evaluate() before fit to try the evaluation",
    "remove_unused_columns": "the model gets what the batches hold; take columns out of the data",
    "label_names": "the model gets what the batches hold; call the column 'labels'",
    "tokenizer": _NO_TOKENIZER,
    "processing_class": _NO_TOKENIZER,
    "args": "there is no object of arguments: each is one of Trainer's own",
    "push_to_hub": "brim speaks to no network; call model.push_to_hub(...) after fit",
}

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
    "ema_decay": ("ema", "keep a torch.optim.swa_utils.AveragedModel in a brim.Callback"),
    "logger": ("loggers", "what a run measures is in metrics.jsonl of its run_dir="),
    "report_to": ("loggers", "what a run measures is in metrics.jsonl of its run_dir="),
}


def name_here(name: str, known: Collection[str]) -> str | None:
    """What another trainer's argument is called here, where there is such a one among ``known``.

    >>> name_here("max_epochs", {"epochs"})
    'epochs'
    """
    renamed = RENAMED.get(name) or PERHAPS.get(name, ("", ""))[0]
    return renamed if renamed in known else None


def advice_on(name: str) -> str | None:
    """What to do instead, where another trainer's argument is none here.

    >>> advice_on("fp16")
    "it is precision='16-mixed'"
    """
    return SENTENCES.get(name) or PERHAPS.get(name, ("", None))[1]


def other_names() -> list[str]:
    """All names of other trainers' that are known.

    >>> "max_epochs" in other_names()
    True
    """
    return [*RENAMED, *SENTENCES, *PERHAPS]
