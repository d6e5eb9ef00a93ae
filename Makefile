# make train: a training run on this machine.   make test: the tests, in minutes.   make test-all: with the slow ones.
# make check: linters, types and figures.   make docs: the site.   make bench, make bench-gpu: measurements.
# Everything happens in .venv, with the versions pinned in constraints.txt.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# pip takes the constraints from the environment, so that they hold for build requirements too.
export PIP_CONSTRAINT := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# Files are handed out in the order of their collection, the longest first (tests/conftest.py), so that no worker is left
# with them at the end.
PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder
# Ends tests that hang, where the system has the command. No test has a limit of its own: what a busy machine needs is not
# known.
within = $(if $(shell command -v timeout),timeout --foreground --kill-after=60 $(1))

# One worker for each core, and one thread in each: threads of several workers that wait for one another on the same cores
# took most of the time.
test test-all: export OMP_NUM_THREADS := 1
# Bytecode is kept, whatever the shell says: every worker and every process that a test starts would compile all anew.
test test-all: export PYTHONDONTWRITEBYTECODE :=

.PHONY: train test test-all check docs bench bench-gpu soak clean

train: $(VENV)/.installed
	$(BIN)/brim train

test: $(VENV)/.installed-dev
	$(call within,40m) $(PYTEST) -m "not slow"

test-all: $(VENV)/.installed-dev
	$(call within,120m) $(PYTEST)

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python benchmarks/figures.py

# Everything that fits on this machine; some hours. One of them: make bench ONLY="overhead feed".
bench: $(VENV)/.installed-bench
	$(BIN)/python benchmarks/run_all.py cpu $(if $(ONLY),--only $(ONLY))
	$(BIN)/python benchmarks/page.py

bench-gpu: $(VENV)/.installed-bench
	$(BIN)/python benchmarks/run_all.py gpu $(if $(ONLY),--only $(ONLY))
	$(BIN)/python benchmarks/page.py

# Warnings end it: links, anchors, pages that the navigation lacks, arguments that a docstring has and a function has not.
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# Kills, faults and random configurations for up to an hour, then memory that runs out on one of several ranks for some
# minutes, then the doctor on scripts with a fault each; not part of the tests, which hold short versions of both.
soak: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/soak.py --json benchmarks/results/soak.json
	$(BIN)/python benchmarks/rank_soak.py --json benchmarks/results/rank-soak.json
	$(BIN)/python benchmarks/doctor.py --again --json benchmarks/results/doctor.json

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "brim needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/pip install --quiet --editable ".[hf]"
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/pip install --quiet --editable ".[dev]"
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/pip install --quiet --editable ".[docs]"
	@touch $@

$(VENV)/.installed-bench: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/pip install --quiet --editable ".[dev,bench]"
	@touch $@ $(VENV)/.installed $(VENV)/.installed-dev

clean:
	rm -rf $(VENV) build dist site .mypy_cache .ruff_cache .hypothesis
