"""Recommendations for everybody, in a Parquet file: a row for each person and item."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brim.errors import ConfigError, DataError
from brim.whole_files import written_aside
from brim.workloads.recommender.serving.catalogue import Catalogue
from brim.workloads.recommender.serving.rankings import rankings_of_all


def export_all(model: nn.Module, catalogue: Catalogue, out: str | Path, k: int = 10, include_seen: bool = False) -> int:
    """Write the ``k`` best items of every person to ``out``; returns how many rows it has. Whole or not at all.

    Args:
        model: ranks all items.
        catalogue: the data set that it was trained on.
        out: a file; one that is there is replaced.
        k: items for each person.
        include_seen: whether items that a person has seen may be among them.

    Columns: ``user_id`` and ``item_id`` as in the data set, ``rank`` from 1, ``title``, ``score``.
    """
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigError("a Parquet file needs pyarrow; install it with pip install 'brim[parquet]'") from error
    out = Path(out)
    schema = arrow.schema(
        [
            ("user_id", arrow.from_numpy_dtype(catalogue.dataset.user_ids.dtype)),
            ("rank", arrow.int32()),
            ("item_id", arrow.from_numpy_dtype(catalogue.dataset.item_ids.dtype)),
            ("title", arrow.string()),
            ("score", arrow.float32()),
        ]
    )
    users = torch.arange(catalogue.dataset.get_user_num())
    rows = 0
    try:
        with written_aside(out) as aside, parquet.ParquetWriter(aside, schema) as writer:
            for block in rankings_of_all(model, users, k, None if include_seen else catalogue.seen):
                table = arrow.table(_columns(catalogue, *block), schema=schema)
                writer.write_table(table)
                rows += len(table)
    except OSError as error:
        raise DataError(f"cannot write {out}: {error.strerror or error}; name another file with --out") from error
    return rows


def _columns(catalogue: Catalogue, users: Tensor, items: Tensor, scores: Tensor) -> dict[str, Any]:
    """A row for each item that is recommended: somebody who has seen nearly everything has fewer."""
    person, place = (scores > -torch.inf).nonzero(as_tuple=True)
    chosen = items[person, place].tolist()
    user_ids, item_ids = catalogue.dataset.user_ids, catalogue.dataset.item_ids
    return {
        "user_id": user_ids[users[person].numpy()],
        "rank": (place + 1).tolist(),
        "item_id": item_ids[chosen],
        "title": [catalogue.movie(row).title for row in chosen],
        "score": scores[person, place].tolist(),
    }
