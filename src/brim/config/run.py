"""Running what a configuration describes."""

from dataclasses import dataclass
from pathlib import Path

import torch

from brim.config.load import show_config
from brim.config.recommender import RecommenderConfig
from brim.config.sections import trainer_arguments
from brim.engine import Result, Trainer
from brim.workloads.recommender import BPR, EmbeddedDataset, EvalDataLoader, Popularity, TrainDataLoader


@dataclass(frozen=True)
class Outcome:
    """A finished run, with the test metrics of its model beside those of the baselines."""

    result: Result
    table: dict[str, dict[str, float]]


def run_recommender(config: RecommenderConfig, resume: Path | None = None) -> Outcome:
    """Train and test the recommender that ``config`` describes."""
    arguments = trainer_arguments(config.trainer)
    dataset = EmbeddedDataset(config.data.n_users, config.data.n_items, config.data.split_ratio, config.data.seed)
    train, validation, test = (dataset.get_split_data(split) for split in ("train", "validation", "test"))
    device, k = arguments["device"], config.eval_ds.k
    train_loader = TrainDataLoader(
        train, config.train_ds.batch_size, config.train_ds.shuffle, device, config.train_ds.drop_last
    )
    valid_loader = EvalDataLoader(validation, train, config.eval_ds.batch_size, device, k)
    test_loader = EvalDataLoader(test, train, config.eval_ds.batch_size, device, k, also_mask=validation)
    torch.manual_seed(arguments["seed"])
    model = BPR(dataset.get_user_num(), dataset.get_item_num(), config.model.embed_dim)
    trainer = Trainer(model, train_loader, valid_loader, test_loader, **arguments)
    trainer.config = show_config(config)
    result = trainer.fit(resume=resume)
    popularity = test_loader.evaluate(Popularity(train).to(trainer.device))
    return Outcome(result, {"BPR": result.metrics, "popularity": popularity})
