"""What is built of this tree holds all of it, and works where it is installed."""

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from brim import __version__

ROOT = Path(__file__).parents[1]
PARTS = ("src", "tests", "benchmarks", "examples", "docs", ".github")
FILES = (
    "pyproject.toml", "README.md", "README.zh-CN.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE",
    "CITATION.cff", "Makefile", "constraints.txt", "mkdocs.yml",
)  # fmt: skip
# A training by what is installed, without an extra: nothing of it is imported from anywhere else.
TRAINING = """
import sys
import torch, brim
result = brim.Trainer(torch.nn.Linear(4, 1), (torch.randn(64, 4), torch.randn(64, 1)), loss_fn=torch.nn.MSELoss(),
                      epochs=2, device="cpu").fit()
print(brim.__file__, result.steps, "transformers" in sys.modules)
"""


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_an_extra_for_whatever_not_everybody_needs():
    extras = project()["optional-dependencies"]
    assert {"hf", "tensorboard", "wandb", "mlflow", "lightning", "parquet", "docs", "dev"} <= set(extras)
    assert {named.partition(">")[0] for named in extras["parquet"]} == {"pandas", "pyarrow"}  # the forecaster's files
    needed = " ".join(project()["dependencies"])
    assert all(name not in needed for name in ("transformers", "lightning", "wandb", "mlflow", "mkdocs"))


def test_all_that_the_tests_need_is_pinned():
    pinned = {line.partition("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    extras = project()["optional-dependencies"]
    named = [*project()["dependencies"], *extras["dev"], *extras["docs"], *extras["bench"]]
    names = {requirement.partition(">")[0].partition("[")[0].lower() for requirement in named}
    unpinned = {"datasets", "pandas", "peft"}  # which leave their own requirements open too
    assert names - pinned <= unpinned


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of sdist and wheel, the wheel made of the sdist, as ``python -m build`` does it."""
    for package in ("build", "hatchling"):
        pytest.importorskip(package)
    tree = tmp_path_factory.mktemp("tree")
    for part in PARTS:
        shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, tree)
    out = tree / "dist"
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, tree]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package(built):
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    files = (path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert held == {path.relative_to(ROOT / "src").as_posix() for path in files if "egg-info" not in str(path)}
    assert "brim/py.typed" in held


@pytest.mark.slow
def test_the_sdist_holds_what_its_tests_need(built):
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "src/brim/__init__.py",
        "tests/conftest.py",
        "benchmarks/figures.toml",
        "docs/memory.md",
        ".github/workflows/tests.yml",
        *FILES,
    } <= held


@pytest.mark.slow
def test_what_is_installed_of_the_wheel_trains(built, tmp_path):
    target = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", target]
    subprocess.run([*pip, next(built.glob("*.whl"))], check=True)
    environment = {**os.environ, "PYTHONPATH": str(target)}
    shown = subprocess.check_output([target / "bin" / "brim", "--version"], env=environment, text=True)
    assert shown == f"brim {__version__}\n"
    printed = subprocess.check_output([sys.executable, "-c", TRAINING], env=environment, cwd=tmp_path, text=True)
    where, steps, has_transformers = printed.split()[-3:]
    assert Path(where).is_relative_to(target)
    assert (int(steps), has_transformers) == (4, "False")


def test_the_citation_names_the_version_that_is_here():
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
