# One entry for a person: `make help`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
STAMP  := $(VENV)/.made
WORKERS ?= 2
PLUGINS := $(patsubst %/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml))

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all crash lint format bench clean

help: ## show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## virtual environment with pinned versions, and the jars of broker and connector
	@$(BIN)/validator jars

$(STAMP): pyproject.toml constraints.txt $(PLUGINS:%=%/pyproject.toml)
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is %d.%d: try make PYTHON=python3.12" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --constraint constraints.txt editables hatchling setuptools wheel # what builds us and pyspark
	$(PIP) install --quiet --constraint constraints.txt --no-build-isolation --editable '.[spark,dev]' $(PLUGINS:%=--editable ./%)
	@touch $@

demo: setup ## broker, Spark job, simulated relay chain, live verdicts, summary
	$(BIN)/validator demo

test: setup ## every test, two files at a time (ten minutes on two cores); WORKERS=
	$(BIN)/python -m pytest -n $(WORKERS)

test-all: setup ## the same with all repetitions of those that repeat themselves with other seeds
	VALIDATOR_TESTS=all $(BIN)/python -m pytest -n $(WORKERS)

KILLS ?= 220
SEED  ?= 1

crash: setup ## kill driver, workers and broker over 200 times (an hour), and compare after each; SEED=, KILLS=
	$(BIN)/python -m tests.crash --seed $(SEED) --kills $(KILLS)

lint: setup ## ruff, mypy --strict, import-linter, spelling and phrases
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/python -m tests.tidy.words

format: setup ## let ruff write the format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup $(STAMP).bench ## measure, print a table and write JSON
	$(BIN)/python -m benchmarks

$(STAMP).bench: $(STAMP)
	$(PIP) install --quiet --constraint constraints.txt --no-build-isolation --editable '.[spark,bench]'
	@touch $@

clean: ## remove what make made (jars stay in the user's cache)
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
