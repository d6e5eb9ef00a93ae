"""Packages that not everybody has: a test that needs one which is not installed is skipped with a reason."""

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

# Packages by the name they are imported by, with what installs them.
OPTIONAL = {
    "PIL": "brim[images]",
    "accelerate": "brim[bench]",
    "datasets": "datasets",
    "huggingface_hub": "brim[hf]",
    "lightning": "brim[lightning]",
    "mkdocs": "brim[docs]",
    "mlflow": "brim[mlflow]",
    "optuna": "optuna",
    "pandas": "pandas",
    "peft": "brim[lora]",
    "pyarrow": "brim[parquet]",
    "tensorboard": "brim[tensorboard]",
    "tokenizers": "brim[hf]",
    "torchmetrics": "torchmetrics",
    "transformers": "brim[hf]",
    "wandb": "brim[wandb]",
    "webdataset": "webdataset",
}


def lacking(error: BaseException) -> str | None:
    """Why a test cannot be run, where a package that is not here ended it: the import failed, or brim said so of it."""
    for cause in _causes(error):
        package = (cause.name or "").partition(".")[0] if isinstance(cause, ModuleNotFoundError) else ""
        if package in OPTIONAL and not _is_installed(package):
            return f'needs {package}: pip install "{OPTIONAL[package]}"'
    return None


def skip_where_told(output: str) -> None:
    """Skip the test where a command ended with the sentence that asks for a package which is not installed."""
    for package, install in OPTIONAL.items():
        if f'pip install "{install}"' in output and not _is_installed(package):
            pytest.skip(f"needs {package}")


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ValueError:  # a test has taken its place
        return True


def _causes(error: BaseException) -> Iterator[BaseException]:
    now: BaseException | None = error
    while now is not None:
        yield now
        now = now.__cause__
