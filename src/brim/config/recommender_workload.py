"""The workload ``recommender``: training, planning and measuring what its configuration describes."""

import time
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from brim.config.recommender import READ_ONCE, DataSection, ModelSection, RecommenderConfig
from brim.engine import Result, Trainer
from brim.engine.distributed.ranks import Ranks
from brim.errors import ConfigError, RunFolderError, to_stderr
from brim.hardware import choose_device, inventory
from brim.record import RunFolder, write_report
from brim.record.report.recommendations import RECOMMENDATIONS
from brim.record.run_folder import RESULT
from brim.workloads.outcome import JobFacts, Outcome
from brim.workloads.recommender import (
    BPR,
    EASE,
    AtomicDataset,
    EmbeddedDataset,
    EvalDataLoader,
    GPT2RecommenderEnhanced,
    HistoryLoader,
    HistoryRecommender,
    Interactions,
    LinearRecommender,
    LinearSettings,
    ML1MDataset,
    Popularity,
    RecommenderDataset,
    TrainDataLoader,
)
from brim.workloads.recommender.linear.solved_run import keep_solved
from brim.workloads.recommender.losses import negatives_for
from brim.workloads.recommender.serving.examples import example_people
from brim.workloads.recommender.stages import Stage, Stages, staged_optimizer
from brim.workloads.sections import job_of, show_config, trainer_arguments, without_effect

MOST_ITEMS_FOR_EASE = 5000  # it inverts a matrix of items by items: eight seconds for 3,600 on two cores


@dataclass(frozen=True)
class RecommenderData:
    """A data set and the interactions of its splits, which several trainers may share."""

    dataset: RecommenderDataset
    train: Interactions
    validation: Interactions
    test: Interactions


class RecommenderWorkload:
    """The recommender that ``config`` describes. Its data is read once, when it is first needed."""

    def __init__(self, config: RecommenderConfig) -> None:
        self.config = config

    @cached_property
    def data(self) -> RecommenderData:
        return read_data(self.config.data)

    def read(self) -> JobFacts:
        """Read the data, and tell what is measured."""
        assert self.data
        return JobFacts(self.config.train_ds.batch_size)

    def build_trainer(self, whole_batches: bool = False, **changes: Any) -> Trainer:
        """The trainer, but for ``changes`` of its arguments; ``whole_batches`` leaves out a shorter last one."""
        of_people = self.config.model.name == "history"
        samples = len(torch.unique(self.data.train.users)) if of_people else len(self.data.train)
        config = with_whole_batches(self.config, samples) if whole_batches else self.config
        return build_trainer(config, self.data, **changes)

    def run(self, resume: str | Path | None = None) -> Outcome:
        """Train and test. Of several ranks the first compares and writes."""
        if self.config.model.name == "linear":
            return self._solve(resume)
        trainer = self.build_trainer()
        trainer.config = show_config(self.config)
        model = self.config.model
        if model.name != "bpr" and model.control is None and model.gpt2 == "tiny":
            trainer.journal.say(
                "gpt2=tiny: a small GPT-2 with random weights reads the texts, for running offline", "model"
            )
        why = "the recommender makes its batches on the device, without workers"
        for sentence in (*self.data.dataset.notes, *without_effect(self.config, why)):
            trainer.journal.warn(sentence, "data")
        reads = trainer.model if isinstance(trainer.model, GPT2RecommenderEnhanced) else None
        if reads is not None:
            reads.build_cache(partial(trainer.journal.say, kind="model"))
        result = trainer.fit(resume=resume)
        if reads is not None and reads.texts_read.encoded:
            trainer.journal.say(str(reads.texts_read), "model")
        table = {_row_name(model): result.metrics}
        if trainer.ranks.is_first and result.run.exists():  # fast_dev_run leaves none
            _compare(trainer, self.data, result, table)
        trainer.ranks.barrier()  # nobody ends while another is at work: a launcher would take that for a failure
        return Outcome(result, table, self._columns(result))

    def _columns(self, result: Result) -> tuple[str, ...]:
        columns = [f"{metric}@{k}" for metric in ("recall", "ndcg") for k in self.config.eval_ds.k]
        return (*columns, *[name for name in result.metrics if name.startswith("mrr")][:1])

    def _solve(self, resume: str | Path | None) -> Outcome:
        """The closed form, and its run folder."""
        config, began = self.config, time.perf_counter()
        asked: Any = config.trainer
        for sentence in self.data.dataset.notes:
            to_stderr(f"warning: {sentence}")
        if resume is not None or not Ranks.from_environment().is_alone:
            raise ConfigError("model.name=linear is solved at once by one process: leave --resume and --ranks out")
        device = choose_device(asked.device, inventory()).device
        torch.manual_seed(asked.seed)
        model = solve_model(config.model, self.data.dataset, self.data.train, device)
        size = config.test_ds.batch_size or config.eval_ds.batch_size
        test = EvalDataLoader(
            self.data.test, self.data.train, size, device, config.eval_ds.k, also_mask=self.data.validation
        )
        result, table = keep_solved(
            model, test, self.data.dataset, _baselines(self.data.train), _row_name(config.model), show_config(config),
            asked.run_dir, began,
        )  # fmt: skip
        return Outcome(result, table, self._columns(result))

    def plan_job(self) -> dict[str, Any]:
        """The arguments of `brim.plan` for this training."""
        model = build_model(largest_stage(self.config), self.data.dataset, self.data.train)
        return job_of(model, self.config.train_ds.batch_size, self.config.trainer)

    def cache_choice(self) -> tuple[bool | None, str]:
        """Whether encodings are kept on the device, and why."""
        return cache_choice(self.config)


def _compare(trainer: Trainer, data: RecommenderData, result: Result, table: dict[str, dict[str, float]]) -> None:
    """Add the baselines to the table, and the table to the run folder."""
    trainer.test_data.ranks = Ranks()  # the others wait: all users are ranked here
    for name, baseline in _baselines(data.train).items():
        table[name] = trainer.test_data.evaluate(baseline.to(trainer.device))
    folder = RunFolder.open(result.run)
    try:
        folder.write_json(RESULT, {**folder.read_json(RESULT), "table": table})
        people = [person.as_json() for person in example_people(trainer.model, data.dataset)]
        folder.write_json(RECOMMENDATIONS, {"people": people})
    except (RunFolderError, OSError) as error:  # a full disk; the caller has the table
        trainer.journal.warn(f"the table of metrics is not in the run folder: {error}")
    write_report(folder)


def with_whole_batches(config: RecommenderConfig, samples: int) -> RecommenderConfig:
    """Without the shorter last batch of an epoch, unless there is less than one batch."""
    drop_last = config.train_ds.drop_last or samples >= config.train_ds.batch_size
    return config.model_copy(update={"train_ds": config.train_ds.model_copy(update={"drop_last": drop_last})})


def build_trainer(config: RecommenderConfig, data: RecommenderData, **changes: Any) -> Trainer:
    """The trainer that ``config`` describes, but for ``changes`` of its keyword arguments."""
    arguments = {**trainer_arguments(config.trainer), **changes}
    if config.stages:
        arguments = {**arguments, **_staged(config)}
    device, k = arguments["device"], config.eval_ds.k
    train_loader = build_train_loader(config, data.train, device)
    sizes = [section.batch_size or config.eval_ds.batch_size for section in (config.valid_ds, config.test_ds)]
    valid_loader = EvalDataLoader(data.validation, data.train, sizes[0], device, k)
    test_loader = EvalDataLoader(data.test, data.train, sizes[1], device, k, also_mask=data.validation)
    torch.manual_seed(arguments["seed"])
    model = build_model(config.model, data.dataset, data.train)
    if config.stages:
        stages = Stages(model, stages_of(config), arguments["patience"])  # type: ignore[arg-type]
        arguments |= {"callbacks": [*arguments.get("callbacks", ()), stages], "patience": None}
    return Trainer(model, train_loader, valid_loader, test_loader, **arguments)


def _staged(config: RecommenderConfig) -> dict[str, Any]:
    """The arguments of the trainer that stages decide."""
    trainer: Any = config.trainer
    return {
        "epochs": sum(stage.epochs for stage in config.stages),
        "optimizer": staged_optimizer(trainer.optimizer, trainer.lr),
    }


def stages_of(config: RecommenderConfig) -> list[Stage]:
    """The stages, with what they leave empty filled in."""
    model, trainer = config.model, config.trainer
    stages = []
    for one in config.stages:
        lr: float = one.lr if one.lr is not None else trainer.lr  # type: ignore[attr-defined]
        stages.append(
            Stage(
                one.epochs,
                model.use_cache if one.use_cache is None else one.use_cache,
                model.freeze_gpt2 if one.freeze_gpt2 is None else one.freeze_gpt2,
                lr,
                one.encoder_lr if one.encoder_lr is not None else lr,
            )
        )
    return stages


def build_train_loader(config: RecommenderConfig, train: Interactions, device: Any) -> TrainDataLoader | HistoryLoader:
    asked, model = config.train_ds, config.model
    if model.name == "history":
        return HistoryLoader(train, asked.batch_size, model.hidden_share, asked.shuffle, device, asked.drop_last)
    negatives = negatives_for(model.loss or "bpr")
    return TrainDataLoader(train, asked.batch_size, asked.shuffle, device, asked.drop_last, negatives=negatives)


def read_data(section: DataSection) -> RecommenderData:
    dataset = build_dataset(section)
    return RecommenderData(dataset, *(dataset.get_split_data(split) for split in ("train", "validation", "test")))


def build_dataset(section: DataSection) -> RecommenderDataset:
    if section.name == "embedded":
        return EmbeddedDataset(section.n_users, section.n_items, section.split_ratio, section.seed)
    if section.path is None:
        raise ConfigError(
            f"data.name={section.name} needs data.path=FOLDER; `brim data ml-1m` says how to get MovieLens-1M"
        )
    kind = {"ml-1m": ML1MDataset, "recbole": AtomicDataset}[section.name]
    return kind(section.path, section.split_ratio, section.min_rating, section.seed, section.split_files)


def build_model(section: ModelSection, dataset: RecommenderDataset, train: Interactions) -> nn.Module:
    n_users, n_items = dataset.get_user_num(), dataset.get_item_num()
    if section.name == "linear":
        raise ConfigError(
            "model.name=linear is solved in closed form: there is no training to plan or to time; brim train solves it"
        )
    if section.name == "history":
        return HistoryRecommender.of(
            train, dataset, section.embed_dim, section.temperature, section.popularity, section.gpt2, section.control,
            pooling=section.pooling, encodings_dir=section.encodings_dir,
        )  # fmt: skip
    if section.name == "bpr":
        return BPR(n_users, n_items, section.embed_dim, section.loss or "bpr")
    return GPT2RecommenderEnhanced(
        n_users,
        n_items,
        section.embed_dim,
        dataset,
        use_cache=section.use_cache,
        freeze_gpt2=section.freeze_gpt2,
        gpt2=section.gpt2,
        hidden_dim=section.hidden_dim,
        pooling=section.pooling,
        lora=section.lora,
        encodings_dir=section.encodings_dir,
        loss=section.loss or "bpr",
        tokens_at_once=section.tokens_at_once,
    )


def solve_model(
    section: ModelSection, dataset: RecommenderDataset, train: Interactions, device: torch.device
) -> LinearRecommender:
    settings = LinearSettings(
        section.regularisation, section.denoising, section.user_power, section.discount, section.text_weight
    )
    return LinearRecommender.of(
        train, dataset, settings, section.gpt2, section.control, pooling=section.pooling,
        encodings_dir=section.encodings_dir, device=device,
    )  # fmt: skip


def _row_name(section: ModelSection) -> str:
    if section.name in READ_ONCE and section.control is not None:
        return {"ids": f"{section.name} (ids)", "random": f"{section.name} (random vectors + ids)"}[section.control]
    prefix = f"{section.name}, " if section.name in READ_ONCE else ""
    return "BPR (ids)" if section.name == "bpr" else f"{prefix}text + ids (gpt2={section.gpt2})"


def _baselines(train: Interactions) -> dict[str, nn.Module]:
    baselines: dict[str, nn.Module] = {"popularity": Popularity(train)}
    if train.n_items <= MOST_ITEMS_FOR_EASE:
        baselines["EASE"] = EASE(train)
    return baselines


def largest_stage(config: RecommenderConfig) -> ModelSection:
    """The model as it is in the stage that takes the most memory: with the encoder trained, or texts encoded."""
    stages = [
        {"use_cache": stage.use_cache, "freeze_gpt2": stage.freeze_gpt2}
        for stage in (stages_of(config) if config.stages else [])
    ]
    largest = min(stages, key=lambda stage: (stage["freeze_gpt2"], stage["use_cache"]), default={})
    return config.model.model_copy(update=largest)


def cache_choice(config: RecommenderConfig) -> tuple[bool | None, str]:
    """Whether encodings are kept on the device, and why."""
    if config.model.name in READ_ONCE:
        return None, "no cache: texts are encoded once, before training"
    if config.model.name != "gpt2":
        return None, "no cache: this model reads no texts"
    if largest_stage(config).use_cache:
        return True, "cached encodings: computed once and kept on the card, as the configuration says"
    return False, "no cache: every step encodes its texts, as the configuration says"
