"""Running what a configuration describes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from brim.config.load import show_config
from brim.config.recommender import DataSection, ModelSection, RecommenderConfig
from brim.config.sections import trainer_arguments
from brim.engine import Result, Trainer
from brim.engine.distributed.ranks import Ranks
from brim.errors import ConfigError, RunFolderError
from brim.record import RunFolder, write_report
from brim.record.run_folder import RESULT
from brim.workloads.recommender import (
    BPR,
    EASE,
    EmbeddedDataset,
    EvalDataLoader,
    GPT2RecommenderEnhanced,
    Interactions,
    ML1MDataset,
    Popularity,
    RecommenderDataset,
    TrainDataLoader,
)

MOST_ITEMS_FOR_EASE = 5000  # it inverts a matrix of items by items: eight seconds for 3,600 on two cores


@dataclass(frozen=True)
class Outcome:
    """A finished run, with the test metrics of its model beside those of the baselines."""

    result: Result
    table: dict[str, dict[str, float]]


@dataclass(frozen=True)
class RecommenderData:
    """A data set and the interactions of its splits, which several trainers may share."""

    dataset: RecommenderDataset
    train: Interactions
    validation: Interactions
    test: Interactions


def run_recommender(config: RecommenderConfig, resume: str | Path | None = None) -> Outcome:
    """Train and test the recommender that ``config`` describes. Of several ranks the first compares and writes."""
    data = read_data(config.data)
    trainer = build_trainer(config, data)
    trainer.config = show_config(config)
    if config.model.name == "gpt2" and config.model.gpt2 == "tiny":
        trainer.journal.say(
            "gpt2=tiny: a small GPT-2 with random weights reads the texts, for running offline", "model"
        )
    result = trainer.fit(resume=resume)
    table = {_row_name(config.model): result.metrics}
    if trainer.ranks.is_first:
        _compare(trainer, data, result, table)
    trainer.ranks.barrier()  # nobody ends while another is at work: a launcher would take that for a failure
    return Outcome(result, table)


def _compare(trainer: Trainer, data: RecommenderData, result: Result, table: dict[str, dict[str, float]]) -> None:
    """Add the baselines to the table, and the table to the run folder."""
    trainer.test_data.ranks = Ranks()  # the others wait: all users are ranked here
    for name, baseline in _baselines(data.train).items():
        table[name] = trainer.test_data.evaluate(baseline.to(trainer.device))
    folder = RunFolder.open(result.run)
    try:
        folder.write_json(RESULT, {**folder.read_json(RESULT), "table": table})
    except (RunFolderError, OSError) as error:  # a full disk; the caller has the table
        trainer.journal.warn(f"the table of metrics is not in the run folder: {error}")
    write_report(folder)


def build_trainer(config: RecommenderConfig, data: RecommenderData, **changes: Any) -> Trainer:
    """The trainer that ``config`` describes, but for ``changes`` of its keyword arguments."""
    arguments = {**trainer_arguments(config.trainer), **changes}
    device, k = arguments["device"], config.eval_ds.k
    train_loader = TrainDataLoader(
        data.train, config.train_ds.batch_size, config.train_ds.shuffle, device, config.train_ds.drop_last
    )
    valid_loader = EvalDataLoader(data.validation, data.train, config.eval_ds.batch_size, device, k)
    test_loader = EvalDataLoader(data.test, data.train, config.eval_ds.batch_size, device, k, also_mask=data.validation)
    torch.manual_seed(arguments["seed"])
    return Trainer(build_model(config.model, data.dataset), train_loader, valid_loader, test_loader, **arguments)


def read_data(section: DataSection) -> RecommenderData:
    dataset = build_dataset(section)
    return RecommenderData(dataset, *(dataset.get_split_data(split) for split in ("train", "validation", "test")))


def build_dataset(section: DataSection) -> RecommenderDataset:
    if section.name == "embedded":
        return EmbeddedDataset(section.n_users, section.n_items, section.split_ratio, section.seed)
    if section.path is None:
        raise ConfigError("data.name=ml-1m needs data.path=FOLDER; `brim data ml-1m` says how to get it")
    return ML1MDataset(section.path, section.split_ratio, section.min_rating, section.seed, section.split_files)


def build_model(section: ModelSection, dataset: RecommenderDataset) -> nn.Module:
    n_users, n_items = dataset.get_user_num(), dataset.get_item_num()
    if section.name == "bpr":
        return BPR(n_users, n_items, section.embed_dim)
    return GPT2RecommenderEnhanced(
        n_users,
        n_items,
        section.embed_dim,
        dataset,
        use_cache=section.use_cache,
        freeze_gpt2=section.freeze_gpt2,
        gpt2=section.gpt2,
        hidden_dim=section.hidden_dim,
    )


def _row_name(section: ModelSection) -> str:
    return "BPR (ids)" if section.name == "bpr" else f"text + ids (gpt2={section.gpt2})"


def _baselines(train: Interactions) -> dict[str, nn.Module]:
    baselines: dict[str, nn.Module] = {"popularity": Popularity(train)}
    if train.n_items <= MOST_ITEMS_FOR_EASE:
        baselines["EASE"] = EASE(train)
    return baselines
