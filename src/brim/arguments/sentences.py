"""What to do instead of arguments that Lightning, transformers, Accelerate, Composer and Keras have, and brim has not.

Each is a part of one sentence: how it is written here, or why it is not needed.
"""

_LOADER = "the batch is the loader's: brim.Loader(data, batch_size=...) or a torch DataLoader"
_ALL_GPUS = f"{_LOADER}, counted over all GPUs together"
_RANKS = "one is device='cuda:0'; for several start a process for each: torchrun --nproc-per-node=N script.py"
_WARM_UP = "it is the schedule's: scheduler=brim.Schedule('linear', warmup=100)"
_WARM_UP_SHARE = "it is the schedule's: scheduler=brim.Schedule('linear', warmup=0.1), a share of the run"
_CURVE = "hand over the schedule itself: scheduler=brim.Schedule('cosine', warmup=100), or a function of the optimizer"
_BAR = "the bar is shown in a terminal only, and stays away elsewhere"
_KEPT = "checkpoints are always written, so that every run can go on; see checkpoint_every= and keep="
_WHOLE = "checkpoints are whole, so that a run can go on; fit(save_model=True) writes the weights alone"
_CHECKPOINT_FILES = "checkpoints have their names in the run folder, and none is overwritten; see run_dir="
_RESUME = "fit(resume=...) goes on with everything: weights, optimizer, schedule, order of samples, random numbers"
_WEIGHTS = "load weights into the model before you hand it over; fit(resume=...) is for a run that goes on"
_NO_TOKENIZER = "the trainer needs none; tokenize in the data set or in its collate_fn"
_NO_NETWORK = "brim speaks to no network; call model.push_to_hub(...) after fit"
_EXCHANGE = "not needed: ranks exchange gradients in brim's own way, and a parameter without a gradient is left alone"
_FSDP = "it is strategy='fsdp', under torchrun, which needs no more"
_SHARDING = "sharding over GPUs is strategy='fsdp', under torchrun"
_NOT_SPLIT = "models are not cut into layers or matrices here; sharding over GPUs is strategy='fsdp', under torchrun"
_WEIGHED = "not needed: parts of a batch are weighed by what the loss is a mean over, tokens too"
_TIMEOUT = "not needed: ranks that wait for each other end with one sentence where one of them is lost"
_OPTIMIZER = "hand over the optimizer itself, as optimizer=lambda parameters: ..."
_ARGUMENTS = "there is no object of arguments: each is one of Trainer's own"
_BEFORE = "there are none; change the model or the data before, or write a brim.Callback"
_LINES = "a run says its lines on stderr, by the first rank, and keeps them in log.txt of its run folder"
_SETTINGS = "not needed: config.yaml of the run folder holds every setting, and loggers= get them too"
_MEANS = "a line of metrics.jsonl has the mean over its steps, and log_every= says how many these are"
_OUTPUTS = "not needed: metrics= is added up batch by batch, and no outputs are kept; trainer.predict joins them"
_METRIC = "a metric is a function of (outputs, batch), and takes of both what it needs: metrics={'name': function}"
_OWN_TOOLS = "use torch's own tools around fit, such as torch.profiler; metrics.jsonl has where the time of steps goes"
_LIGER = "apply it to the model before you hand it over; logits='chunked' saves the memory of the logits"
_GENERATE = "call model.generate(...) in a brim.Callback, whose on_evaluate is handed the trainer"
_TRACKER = "it is the logger's own: hand it over ready-made, as loggers=..."
_CALLS = "call trainer.fit(), trainer.evaluate() and trainer.predict(...)"
_MIXED = "mix in the loss, where model.training: loss_fn=lambda model, batch: ...; or in the collate_fn of the loader"
_MODELS = "it is the model's own: hand it to what builds the model"
_SAMPLER = "give a torch DataLoader with a sampler of your own"


def _of_loader(name: str) -> str:
    return f"it is the loader's: brim.Loader(data, {name}=...) or a torch DataLoader"


def _of_optimizer(name: str, optimizer: str = "AdamW") -> str:
    return f"it is the optimizer's own: optimizer={{'name': '{optimizer}', '{name}': ...}}"


# Arguments of the trainer where there is none, in a loop of one's own.
OWN_LOOP: dict[str, str] = {
    "scheduler": "a schedule is the trainer's, or the loop's own: call scheduler.step() after step(batch)",
    "gradient_accumulation_steps": "several batches go into one step: step(first, second)",
    "lr": "it is the optimizer's, or Trainer(lr=...)'s: torch.optim.AdamW(model.parameters(), lr=...)",
    "epochs": "it is Trainer(epochs=...)'s; a loop of your own counts them itself",
    "max_steps": "it is Trainer(max_steps=...)'s; a loop of your own counts them itself",
    "device": "it computes where the model is: model.to(device)",
    "callbacks": "they are Trainer(callbacks=[...])'s; a loop of your own calls what it wants",
    "memory": "it limits brim.largest_batch and brim.plan, not what is forecast",
}

SENTENCES: dict[str, str] = {
    # batches
    "per_device_train_batch_size": _ALL_GPUS,
    "per_device_eval_batch_size": _ALL_GPUS,
    "per_gpu_train_batch_size": _ALL_GPUS,
    "per_gpu_eval_batch_size": _ALL_GPUS,
    "train_batch_size": _ALL_GPUS,
    "global_batch_size": _LOADER,
    "batch_size": _LOADER,
    "split_batches": "not needed: the loader's batch is that of all ranks together, and each gets its share",
    "dispatch_batches": "not needed: each rank reads its share of every batch by itself",
    "auto_find_batch_size": "micro_batch='auto', the default, finds what fits, and the batch stays what it is",
    "auto_scale_batch_size": "micro_batch='auto', the default, finds what fits, and the batch stays what it is",
    "shuffle": _of_loader("shuffle"),
    "num_workers": _of_loader("num_workers"),
    "workers": _of_loader("num_workers"),
    "dataloader_num_workers": _of_loader("num_workers"),
    "drop_last": _of_loader("drop_last"),
    "dataloader_drop_last": _of_loader("drop_last"),
    "pin_memory": _of_loader("pin_memory"),
    "dataloader_pin_memory": _of_loader("pin_memory"),
    "dataloader_persistent_workers": _of_loader("persistent_workers"),
    "dataloader_prefetch_factor": _of_loader("prefetch_factor"),
    "dataloader_multiprocessing_context": _of_loader("multiprocessing_context"),
    "dataloader_in_order": "not needed: brim.Loader keeps the order, and a torch DataLoader has its own in_order",
    "dataloader_config": "it is the loader's: brim.Loader(data, ...) or a torch DataLoader, as you make it",
    "collate_fn": _of_loader("collate_fn"),
    "data_collator": _of_loader("collate_fn"),
    "datamodule": "hand its loaders to the trainer: Trainer(model, dm.train_dataloader(), dm.val_dataloader())",
    "reload_dataloaders_every_n_epochs": "data is looked at anew in each epoch",
    "use_distributed_sampler": "each rank gets its share of every batch by itself",
    "train_dataloader_label": "there is one set to train on; several to evaluate have names: eval_data={'clean': a}",
    "spin_dataloaders": _RESUME,
    "limit_predict_batches": "hand over less: trainer.predict takes any iterable of batches",
    "x": "data is one argument: (x, y)",
    "y": "data is one argument: (x, y)",
    "validation_split": "split the data, and hand the second part over as eval_data=",
    "sampler": "give a torch DataLoader with that sampler instead",
    "batch_sampler": "give a torch DataLoader with that sampler instead",
    "group_by_length": f"it is the loader's: {_SAMPLER}",
    "train_sampling_strategy": f"it is the loader's: brim.Loader(data, shuffle=...), or {_SAMPLER}",
    "length_column_name": f"it is the loader's: {_SAMPLER}",
    "sortish_sampler": f"it is the loader's: {_SAMPLER}",
    "transform": "transforms are the data set's own, before or in its __getitem__",
    "remove_unused_columns": "the model gets what the batches hold; take columns out of the data",
    "label_names": "the model gets what the batches hold; call the column 'labels'",
    "ignore_data_skip": "not needed: fit(resume=...) goes on with the next sample, without reading those before it",
    # machine
    "devices": _RANKS,
    "gpus": _RANKS,
    "n_gpu": _RANKS,
    "local_rank": "not needed: torchrun tells each process its rank",
    "tpu_cores": "TPUs are not supported; device= is 'cuda', 'cpu', 'mps' or 'auto'",
    "tpu_num_cores": "TPUs are not supported; device= is 'cuda', 'cpu', 'mps' or 'auto'",
    "num_nodes": "start torchrun --nnodes=N --nproc-per-node=M script.py on each machine",
    "accelerator": "it is device= here: 'cuda', 'cpu', 'mps' or 'auto'",
    "device_placement": "not needed: the trainer puts the model and every batch on device=",
    "fsdp": "it is strategy='fsdp', under torchrun",
    "fsdp_config": _FSDP,
    "fsdp_plugin": _FSDP,
    "fsdp_auto_wrap": _FSDP,
    "deepspeed": _SHARDING,
    "deepspeed_config": _SHARDING,
    "deepspeed_plugin": _SHARDING,
    "deepspeed_plugins": _SHARDING,
    "torch_tp_plugin": _NOT_SPLIT,
    "megatron_lm_plugin": _NOT_SPLIT,
    "parallelism_config": _NOT_SPLIT,
    "mp_parameters": _NOT_SPLIT,
    "ddp_find_unused_parameters": "ranks need no such setting: a parameter without a gradient is left alone",
    "ddp_bucket_cap_mb": _EXCHANGE,
    "ddp_broadcast_buffers": _EXCHANGE,
    "ddp_static_graph": _EXCHANGE,
    "ddp_sync_strategy": _EXCHANGE,
    "ddp_backend": "not needed: it is NCCL between GPUs, gloo between CPUs, or what your own process group has",
    "ddp_timeout": _TIMEOUT,
    "dist_timeout": _TIMEOUT,
    "sync_batchnorm": "call nn.SyncBatchNorm.convert_sync_batchnorm(model) before you hand the model over",
    "average_tokens_across_devices": _WEIGHED,
    "accumulate_train_batch_on_tokens": _WEIGHED,
    "fp16": "it is precision='16-mixed'",
    "bf16": "it is precision='bf16-mixed'",
    "tf32": "it is precision='tf32'",
    "fp16_full_eval": "evaluations compute in the precision of the training: precision='16-mixed'",
    "bf16_full_eval": "evaluations compute in the precision of the training: precision='bf16-mixed'",
    "fp16_opt_level": "it is precision='16-mixed', which is torch's own",
    "fp16_backend": "it is precision='16-mixed', which is torch's own",
    "half_precision_backend": "it is precision='16-mixed' or precision='bf16-mixed', which are torch's own",
    "precision_config": "it is precision= here, which needs no more",
    "benchmark": "set torch.backends.cudnn.benchmark = True in the script",
    "profiler": "use torch.profiler around fit",
    "detect_anomaly": "call torch.autograd.set_detect_anomaly(True) in the script; on_nan= is about losses",
    "inference_mode": "evaluation is always without gradients",
    "use_liger_kernel": _LIGER,
    "liger_kernel_config": _LIGER,
    "use_cache": "it is the model's own: model.config.use_cache = False before you hand it over",
    "torch_empty_cache_steps": "not needed: memory is given back where it runs short",
    "gradient_checkpointing_kwargs": "checkpointing= needs none: it is torch's without re-entrance",
    "rng_types": "not needed: every generator is kept in checkpoints and goes on with fit(resume=...)",
    "kwargs_handlers": _ARGUMENTS,
    "accelerator_config": _ARGUMENTS,
    # how long, and how
    "max_duration": "it is epochs=3 for '3ep', and max_steps=100 for '100ba'",
    "min_delta": "every better evaluation counts for patience=, however little better it is",
    "early_stopping_threshold": "every better evaluation counts for patience=, however little better it is",
    "max_time": "write a brim.Callback whose on_step_end calls trainer.stop('time is over')",
    "min_epochs": "it is epochs= here, and only patience= ends a run earlier",
    "min_steps": "it is max_steps= here, and only patience= ends a run earlier",
    "weight_decay": _of_optimizer("weight_decay"),
    "betas": _of_optimizer("betas"),
    "adam_beta1": _of_optimizer("betas"),
    "adam_beta2": _of_optimizer("betas"),
    "eps": _of_optimizer("eps"),
    "adam_epsilon": _of_optimizer("eps"),
    "momentum": _of_optimizer("momentum", "SGD"),
    "no_decay": _of_optimizer("no_decay"),
    "layer_decay": _of_optimizer("layer_decay"),
    "optim_args": "they are the optimizer's own: optimizer={'name': 'AdamW', 'weight_decay': ...}",
    "optim_target_modules": _OPTIMIZER,
    "optimizer_cls_and_kwargs": "it is optimizer={'name': 'AdamW', ...}, or a function of the parameters",
    "adafactor": "it is optimizer='Adafactor', torch's",
    "warmup_steps": _WARM_UP,
    "num_warmup_steps": _WARM_UP,
    "warmup_epochs": f"{_WARM_UP}, in optimizer steps",
    "warmup_ratio": _WARM_UP_SHARE,
    "lr_scheduler_kwargs": _CURVE,
    "scale_schedule_ratio": _CURVE,
    "step_scheduler_with_optimizer": "it does: scheduler_every='step', or 'epoch' to step with epochs",
    "gradient_clip_algorithm": "clip_norm= clips by norm, the only way there is",
    "clip_value": "clip_norm= clips by norm, the only way there is",
    "gradient_accumulation_plugin": "it is gradient_accumulation_steps= here, which needs no more",
    "label_smoothing_factor": "it is the criterion's: loss_fn=nn.CrossEntropyLoss(label_smoothing=...)",
    "label_smoothing": "it is the criterion's: loss_fn=nn.CrossEntropyLoss(label_smoothing=...)",
    "smoothing": "it is the criterion's: loss_fn=nn.CrossEntropyLoss(label_smoothing=...)",
    "mixup": _MIXED,
    "mixup_fn": _MIXED,
    "mixup_alpha": _MIXED,
    "cutmix": _MIXED,
    "cutmix_alpha": _MIXED,
    "class_weight": "it is the criterion's: loss_fn=nn.CrossEntropyLoss(weight=...)",
    "neftune_noise_alpha": "register a forward hook that adds the noise on model.get_input_embeddings()",
    "peft_config": "wrap the model before: peft.get_peft_model(model, config)",
    "generator": "the order is a function of seed= and epoch; a torch DataLoader with a generator is taken as it is",
    "drop_path": _MODELS,
    "dropout": _MODELS,
    "num_classes": _MODELS,
    "img_size": "it is the data set's own: a transform resizes, and the model is built for it",
    "model_init": "make the model, and a Trainer for it; each trial has its own",
    "algorithms": _BEFORE,
    "algorithm_passes": _BEFORE,
    "plugins": _BEFORE,
    "args": _ARGUMENTS,
    "do_train": _CALLS,
    "do_eval": _CALLS,
    "do_predict": _CALLS,
    # evaluations
    "num_sanity_val_steps": "call trainer.evaluate() before fit to try the evaluation",
    "eval_on_start": "call trainer.evaluate(eval_data) before fit",
    "eval_delay": "evaluations begin with the first epoch; eval_every= says how often they come",
    "prediction_loss_only": _OUTPUTS,
    "eval_do_concat_batches": _OUTPUTS,
    "eval_use_gather_object": _OUTPUTS,
    "eval_accumulation_steps": _OUTPUTS,
    "batch_eval_metrics": _OUTPUTS,
    "include_for_metrics": _METRIC,
    "include_inputs_for_metrics": _METRIC,
    "preprocess_logits_for_metrics": _METRIC,
    "predict_with_generate": _GENERATE,
    "generation_max_length": _GENERATE,
    "generation_num_beams": _GENERATE,
    "generation_config": _GENERATE,
    # numbers that are logged
    "prog_bar": "the bar shows the loss, the rate and the speed; the number is in metrics.jsonl",
    "on_step": _MEANS,
    "on_epoch": _MEANS,
    "sync_dist": "numbers are averaged over ranks by themselves",
    "rank_zero_only": "numbers are averaged over ranks, and written by the first one",
    "logging_strategy": "log_every= counts optimizer steps; every epoch has a line in log.txt besides",
    "logging_first_step": "not needed: the first step has a line of its own in metrics.jsonl",
    "logging_nan_inf_filter": "nothing is filtered: on_nan= says what a loss that is not finite does",
    "log_on_each_node": _LINES,
    "log_level": _LINES,
    "log_level_replica": _LINES,
    "python_log_level": _LINES,
    "log_to_console": _LINES,
    "console_stream": _LINES,
    "console_log_interval": _LINES,
    "log_traces": _LINES,
    "include_num_input_tokens_seen": "write them down in the loss: trainer.log('tokens', ...)",
    "include_tokens_per_second": "metrics.jsonl has samples_per_second; write tokens down with trainer.log(...)",
    "skip_memory_metrics": "not needed: what memory is in use is in metrics.jsonl, and costs no time",
    "project": _TRACKER,
    "trackio_space_id": _TRACKER,
    "trackio_bucket_id": _TRACKER,
    "trackio_static_space_id": _TRACKER,
    "auto_log_hparams": _SETTINGS,
    "enable_autolog_hparams": _SETTINGS,
    # what is seen and kept
    "enable_progress_bar": _BAR,
    "progress_bar": _BAR,
    "load_progress_bar": _BAR,
    "disable_tqdm": _BAR,
    "verbose": _BAR,
    "enable_model_summary": "there is no summary to switch off",
    "barebones": "loggers=[] leaves out TensorBoard, and checkpoint_every= makes checkpoints rarer",
    "enable_checkpointing": _KEPT,
    "save_strategy": _KEPT,
    "save_metrics": "not needed: metrics are in metrics.jsonl, in result.json and in every checkpoint",
    "save_only_model": _WHOLE,
    "save_weights_only": _WHOLE,
    "save_ignore_keys": _WHOLE,
    "save_safetensors": "weights are written as safetensors: fit(save_model=True, model_path='model.safetensors')",
    "save_on_each_node": "the first rank writes, into run_dir=, which all ranks must see",
    "save_filename": _CHECKPOINT_FILES,
    "save_latest_filename": _CHECKPOINT_FILES,
    "save_overwrite": _CHECKPOINT_FILES,
    "overwrite_output_dir": _CHECKPOINT_FILES,
    "load_object_store": _RESUME,
    "load_weights_only": _WEIGHTS,
    "load_strict_model_weights": _WEIGHTS,
    "weights_only": "not needed: fit(resume=...) reads checkpoints that hold no code",
    "load_ignore_keys": _WEIGHTS,
    "load_exclude_algorithms": _RESUME,
    "load_fsdp_monolith_rank0_only": _RESUME,
    "load_monolith_rank0_only": _RESUME,
    "restore_callback_states_from_checkpoint": "not needed: state_dict of callbacks is in every checkpoint",
    "enable_jit_checkpoint": "not needed: SIGTERM writes a checkpoint, and fit(resume='auto') goes on from it",
    "project_config": "it is run_dir= here; checkpoints are kept by keep=",
    "push_to_hub": _NO_NETWORK,
    "push_to_hub_token": _NO_NETWORK,
    "push_to_hub_model_id": _NO_NETWORK,
    "push_to_hub_organization": _NO_NETWORK,
    "hub_token": _NO_NETWORK,
    "hub_private_repo": _NO_NETWORK,
    "hub_model_id": _NO_NETWORK,
    "hub_strategy": _NO_NETWORK,
    "hub_always_push": _NO_NETWORK,
    "hub_revision": _NO_NETWORK,
    "model_registry": "brim speaks to no registry; fit(save_model=True) writes the weights, to be registered by you",
    "debug": _OWN_TOOLS,
    "tokenizer": _NO_TOKENIZER,
    "processing_class": _NO_TOKENIZER,
}
