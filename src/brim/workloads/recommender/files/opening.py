"""A data set from a folder, by what is in it."""

from pathlib import Path

from brim.errors import ConfigError, DataError
from brim.workloads.recommender.dataset import RecommenderDataset
from brim.workloads.recommender.files.atomic_files import AtomicDataset
from brim.workloads.recommender.files.split_files import SplitFiles
from brim.workloads.recommender.movielens import ML1MDataset


def open_dataset(
    path: str | Path, split_files: SplitFiles | None = None, min_rating: int | None = None, seed: int = 0
) -> RecommenderDataset:
    """The data set in a folder: MovieLens-1M's files, or RecBole's atomic ones.

    Args:
        path: the folder.
        split_files: the split; else every user's pairs are split at random, 8:1:1.
        min_rating: keeps ratings of at least so many stars; a split that is given says itself which pairs count.
        seed: of the random split.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}; `brim data ml-1m` says how to get MovieLens-1M")
    if split_files is not None and min_rating is not None:
        raise ConfigError(
            "min_rating chooses which pairs are split, and a given split has chosen already: leave one of both out"
        )
    if (folder / "movies.dat").exists():
        return ML1MDataset(folder, min_rating=min_rating, seed=seed, split_files=split_files)
    if any(folder.glob("*.inter")) or any(folder.glob("*.item")):
        return AtomicDataset(folder, min_rating=min_rating, seed=seed, split_files=split_files)
    raise DataError(
        f"{folder} is no data set that brim reads: it needs users.dat, movies.dat and ratings.dat of MovieLens-1M, or "
        "RecBole's atomic files NAME.inter, NAME.item and NAME.user"
    )
