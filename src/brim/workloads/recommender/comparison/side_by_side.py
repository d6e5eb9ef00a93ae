"""Popularity, EASE, ids, text + ids and random + ids, side by side on one data set."""

import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from brim.workloads.recommender.baselines import EASE, Popularity
from brim.workloads.recommender.comparison.cold_items import AmongItems, GenrePopularity, GenreTaste, hold_out_items
from brim.workloads.recommender.comparison.fitting import Fitted, Tell, fit, linear_rows, solve, tuned_ease
from brim.workloads.recommender.comparison.judge import NDCG, RARE, RECALL, Judge, only_items
from brim.workloads.recommender.comparison.rows import Interval, Row, difference_interval
from brim.workloads.recommender.comparison.settings import MODELS, ComparisonSettings
from brim.workloads.recommender.dataset import RecommenderDataset
from brim.workloads.recommender.interactions import SPLITS, Interactions
from brim.workloads.recommender.linear import LinearSettings
from brim.workloads.recommender.loaders import EvalDataLoader

MOST_ITEMS_FOR_EASE = 10_000  # it inverts a matrix of items by items
TEXT = "text + ids"
EASE_ROW, TUNED_EASE = "EASE 250", "EASE tuned"
# Published by RecBole-GNN (results/general/ml-1m.md) for ratings of at least 3 stars, split 8:1:1; not run here.
LIGHTGCN = {NDCG: 0.2538, "recall@10": 0.1861}
PUBLISHED = "LightGCN, published by RecBole-GNN"
PUBLISHED_SPLIT = (6039, 3628, 674_674, 80_902, 80_902)  # people, items, and pairs of RecBole's split of that


@dataclass
class Comparison:
    """The rows so far, by part, and what the bars come to at the end."""

    warm: list[Row] = field(default_factory=list)
    cold: list[Row] = field(default_factory=list)
    above: dict[str, Interval] = field(default_factory=dict)  # of text + ids, on held-out items
    bars: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        parts: dict[str, Any] = {}
        if self.warm:
            parts["warm"] = {row.name: row.as_json() for row in self.warm}
        if self.bars:
            parts["bars"] = self.bars
        if self.cold:
            parts["cold"] = {row.name: row.as_json() for row in self.cold} | {
                f"{TEXT} above {name}": asdict(interval) for name, interval in self.above.items()
            }
        return parts


OnRow = Callable[[str, Row, Comparison], object]


def compare(
    dataset: RecommenderDataset,
    encodings: Tensor,
    settings: ComparisonSettings,
    tell: Tell = lambda sentence: None,
    on_row: OnRow = lambda part, row, comparison: None,
) -> Comparison:
    """Train and rank everything.

    Args:
        dataset: its splits and its items.
        encodings: of the items' texts (:func:`item_encodings`).
        settings: which models, how often, how.
        tell: hears what is being done.
        on_row: hears of each row when it is there: the part, the row, and all so far.
    """
    comparison = Comparison()
    train, validation, test = splits = [dataset.get_split_data(name) for name in SPLITS]
    if "warm" in settings.parts:

        def add(row: Row) -> None:
            comparison.warm.append(row)
            on_row("warm", row, comparison)

        _compare_warm(Judge(train, validation, test, settings.device), encodings, settings, tell, add)
        comparison.bars = bars_of(comparison.warm, settings.seeds)
    if "cold" in settings.parts:
        _compare_cold(dataset, splits, encodings, settings, tell, comparison, on_row)
    return comparison


def _compare_warm(
    judge: Judge, encodings: Tensor, settings: ComparisonSettings, tell: Tell, add: Callable[[Row], None]
) -> None:
    tell("popularity")
    add(Row.of("popularity", judge.slices(Popularity(judge.train))))
    if judge.train.n_items <= MOST_ITEMS_FOR_EASE:
        tell("EASE")
        add(Row.of(EASE_ROW, judge.slices(EASE(judge.train, 250.0)), "regularisation 250"))
        ease, chosen = tuned_ease(judge)
        add(Row.of(TUNED_EASE, judge.slices(ease), f"regularisation {chosen:g}, chosen", chosen=chosen))
        del ease
    add(published_row(judge))
    if settings.kind == "linear":
        for row in linear_rows(judge, settings, encodings, tell):
            add(row)
        return
    for seed in range(settings.seeds):
        for name in settings.models:
            add(_tuned_row(judge, name, seed, settings, encodings, tell))


def published_row(judge: Judge) -> Row:
    """LightGCN as published, with a word on whether it is of these pairs."""
    pairs = [len(torch.unique(loader.relevant.rows * judge.train.n_items + loader.relevant.items))
             for loader in (judge.validation, judge.test)]  # fmt: skip
    here = (judge.train.n_users, judge.train.n_items, len(judge.train), *pairs)
    same = here == PUBLISHED_SPLIT
    note = "as published, for this protocol" if same else "as published for MovieLens-1M, not for these pairs"
    value = LIGHTGCN[NDCG]
    return Row(PUBLISHED, {NDCG: Interval(value, value, value)}, note, {**LIGHTGCN, "same split": same})


def _tuned_row(judge: Judge, name: str, seed: int, settings: ComparisonSettings, encodings: Tensor, tell: Tell) -> Row:
    """The model whose temperature ranks the validation split best, and what the others came to."""
    tried: dict[float, dict[str, float]] = {}
    best: tuple[Fitted, float, dict[str, Tensor]] | None = None
    for temperature in settings.temperatures:
        fitted = fit(judge, name, temperature, seed, settings, encodings, tell)
        values = judge.slices(fitted.model)
        means = {metric: float(each.mean()) for metric, each in values.items()}
        tried[temperature] = {"validation": fitted.validation, "epochs": fitted.epochs, **means}
        if best is None or fitted.validation > best[0].validation:
            best = fitted, temperature, values
    assert best is not None  # there is at least one temperature
    chosen, values = best[1], best[2]
    return Row.of(f"{name}, seed {seed}", values, f"temperature {chosen:g}", chosen=chosen, tried=tried)


def bars_of(rows: list[Row], seeds: int) -> dict[str, Any]:
    """What text does: beside EASE, ids and random vectors, in every seed; nothing where one of them is missing."""
    found = {row.name: row.metrics for row in rows}
    if EASE_ROW not in found or any(f"{name}, seed {seed}" not in found for name in MODELS for seed in range(seeds)):
        return {}

    def values(name: str, metric: str) -> list[float]:
        return [found[f"{name}, seed {seed}"][metric].mean for seed in range(seeds)]

    text, ids, control = (values(name, NDCG) for name in (TEXT, "ids", "random + ids"))
    bars: dict[str, Any] = {
        "above EASE 250 in every seed": min(text) > found[EASE_ROW][NDCG].mean,
        "above tuned EASE in every seed": min(text) > found[TUNED_EASE][NDCG].mean,
        "above ids in every seed": all(a > b for a, b in zip(text, ids, strict=True)),
        "above random by more than the spread": min(text) > max(control),
    }
    if all(RARE in found[f"{name}, seed 0"] for name in MODELS):
        rare = {name: statistics.mean(values(name, RARE)) for name in MODELS}
        bars["rare"] = rare
        if rare["ids"]:  # else there is nothing to be compared with
            bars["rare, text to ids"] = rare[TEXT] / rare["ids"]
    return bars


def _compare_cold(
    dataset: RecommenderDataset,
    splits: list[Interactions],
    encodings: Tensor,
    settings: ComparisonSettings,
    tell: Tell,
    comparison: Comparison,
    on_row: OnRow,
) -> None:
    """A tenth of the items in no split of training; whoever watched one, in any split, is to be ranked those."""
    cold, (train, validation, test) = hold_out_items(splits)
    everything = Interactions(
        torch.cat([split.users for split in splits]), torch.cat([split.items for split in splits]), train.n_users,
        train.n_items,
    )  # fmt: skip
    judge = Judge(train, validation, test, settings.device)
    # Nobody has a training pair with a cold item, so nothing is masked among them.
    among = EvalDataLoader(only_items(everything, cold), train, device=settings.device)
    baselines: dict[str, nn.Module] = {}
    if any(movie.genres for movie in dataset.movies):
        baselines["popularity of genres"] = GenrePopularity(train, dataset.movies)
        baselines["taste for genres"] = GenreTaste(train, dataset.movies)
    else:
        tell("held-out items: none has a genre, so there is no row of genres")
    each: dict[str, Tensor] = {}

    def rank(name: str, model: nn.Module) -> None:
        found = among.evaluate_each(AmongItems(model, cold, train.n_items).to(settings.device).eval())
        each[name] = found[NDCG]
        row = Row.of(name, {NDCG: found[NDCG], RECALL: found[RECALL]}, f"{len(cold)} held-out items")
        comparison.cold.append(row)
        on_row("cold", row, comparison)

    for name, baseline in baselines.items():
        tell(f"held-out items: {name}")
        rank(name, baseline)
    # All of them are alike to ids alone. In the order of the files, in which popular items often come first, they would
    # rank well.
    for name in (name for name in settings.models if name != "ids"):
        if settings.kind == "linear":
            tell(f"held-out items: {name}")
            rank(name, solve(judge, name, LinearSettings(), 0, encodings))
        else:
            rank(name, fit(judge, name, settings.cold_temperature, 0, settings, encodings, _held_out(tell)).model)
    if TEXT in each:
        comparison.above = {name: difference_interval(each[TEXT], each[name]) for name in baselines}


def _held_out(tell: Tell) -> Tell:
    return lambda sentence: tell(f"held-out items: {sentence}")
