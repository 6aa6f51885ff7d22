# `make help` lists all targets.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
STAMP  := $(VENV)/.made
# Much of the tests is waiting: four workers keep two cores busy.
WORKERS ?= 4
PLUGINS := $(patsubst %/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml))

.DEFAULT_GOAL := help
# Tests start hundreds of processes: without bytecode each of them would compile the program again.
unexport PYTHONDONTWRITEBYTECODE
# PYTHONPATH=build/channel-compiled runs the compiled form of Channel, for example `python -m benchmarks channel`.
COMPILED := build/channel-compiled

.PHONY: help setup dist browser demo demo-real demo-channel channel-compiled test test-all generate crash breaks fuzz mutants sbom audit lint deploy-tools format bench bench-quick docs docs-serve clean

help: ## show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Further extras of pyproject.toml, such as EXTRAS=bench,docs; registry, console and plots are there anyway.
EXTRAS ?=
comma := ,
# The lines of requirements.txt that some groups need, and how they are installed: nothing else, and no archive with another hash.
lines_of = grep -E '\# (.* )?($(1))( |$$)' requirements.txt
pinned = --quiet --no-deps --no-build-isolation --require-hashes --requirement

setup: $(STAMP) $(addprefix $(STAMP).,$(subst $(comma), ,$(EXTRAS))) ## create the virtual environment with pinned versions and hashes, fetch the jars, make the archives of classes; EXTRAS=
	@echo "setup: fetching Kafka's jars, and running a job once, so that Java starts faster"
	@$(BIN)/validator jars

$(STAMP): pyproject.toml requirements.txt $(PLUGINS:%=%/pyproject.toml)
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is %d.%d: try make PYTHON=python3.12" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	@echo "setup: making $(VENV) with pinned packages, about a minute"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(call lines_of,build) > $(VENV)/build.txt
	@$(call lines_of,run|spark|dev) > $(VENV)/run.txt
	@$(PIP) install $(pinned) $(VENV)/build.txt # what builds this project and pyspark, which has no wheel
	@echo "setup: installing Spark and the tools of the tests, then the project and its plugins"
	@$(PIP) install $(pinned) $(VENV)/run.txt
	@$(PIP) install --quiet --no-deps --no-build-isolation --no-index --editable . $(PLUGINS:%=--editable ./%)
	@$(PIP) check
	@touch $@

# Not every machine has a wheel of what drives a browser or checks deploy/: tests that need it are then skipped.
$(STAMP).browser $(STAMP).deploy: $(STAMP).%: $(STAMP)
	@$(call lines_of,$*) > $(VENV)/$*.txt
	-$(PIP) install $(pinned) $(VENV)/$*.txt
	@touch $@

$(STAMP).%: $(STAMP)
	@$(call lines_of,$*) > $(VENV)/$*.txt || { echo "EXTRAS: pyproject.toml has no extra $*" >&2; exit 2; }
	$(PIP) install $(pinned) $(VENV)/$*.txt
	@touch $@

DIST ?= dist

dist: setup ## build wheels and sources of the program and of each plugin into dist/, with the requirements of a deployment and their hashes; DIST=
	@rm -f $(DIST)/*.whl $(DIST)/*.tar.gz
	@for folder in . $(PLUGINS); do (cd $$folder && $(abspath $(BIN))/hatchling build --directory $(abspath $(DIST))) || exit; done
	@$(call lines_of,build) > $(DIST)/build.txt
	@$(call lines_of,run|spark|console|registry|plots) > $(DIST)/requirements.txt

demo: setup ## run broker, Spark job and a simulated relay chain, with live verdicts and a summary
	$(BIN)/validator demo

demo-real: setup ## play real blocks of Polkadot from a mock node over JSON-RPC through everything, with the chain as the judge
	$(BIN)/validator demo --real

demo-channel: setup ## run peers, gateway, broker and job: records over Channel, live, and the gateway killed in the middle
	$(BIN)/python examples/channel/demo.py --kill-gateway

channel-compiled: setup ## compile Channel into build/channel-compiled (needs a C compiler), run its tests on that form
	@rm -rf $(COMPILED)
	HATCH_BUILD_HOOK_ENABLE_CUSTOM=true $(PIP) install --quiet --no-build-isolation --no-deps --target $(COMPILED) ./plugins/channel
	PYTHONPATH=$(COMPILED) $(BIN)/python -m pytest -n $(WORKERS) plugins/channel

test: setup ## run the tests except long ones, four files at a time; WORKERS=
	$(BIN)/python -m pytest -n $(WORKERS) -m "not long"

test-all: setup $(STAMP).browser ## run every test, long ones too, with all repetitions under other seeds
	VALIDATOR_TESTS=all $(BIN)/python -m pytest -n $(WORKERS)

browser: setup $(STAMP).browser ## test the console in Chromium, and take the pictures of docs/console again
	VALIDATOR_SCREENSHOTS=docs/console $(BIN)/python -m pytest tests/console/test_browser.py

KILLS   ?= 220
BROKERS ?= 1
CLUSTER ?=
SEED    ?= 1

generate: setup ## write every file that is made of another one: pages of rules, records, metrics and keys, conformance suites, dashboard, chart
	$(BIN)/python -m tests.tidy.made

crash: setup ## kill driver, workers and broker over 200 times (about an hour), compare the output after each kill; SEED=, KILLS=, BROKERS=3, CLUSTER=--cluster
	$(BIN)/python -m tests.crash --seed $(SEED) --kills $(KILLS) --brokers $(BROKERS) $(CLUSTER)

breaks: setup ## break sink and store in copies of the tree, one break at a time: each must be found (minutes)
	$(BIN)/python -m tests.crash --breaks

SECONDS_MAX ?= 3600
MODULE ?=

mutants: setup ## change core, lanes, rules and sink in small ways: which changes does no test notice? MODULE=, SECONDS_MAX=, SEED=
	nice -n 15 $(BIN)/python -m tests.mutants --module '$(MODULE)' --seconds $(SECONDS_MAX) --seed $(SEED)

INPUTS ?= 1000000
TARGETS ?=

fuzz: setup ## give every decoder a million mutated inputs (a night); TARGETS=, INPUTS=, SEED=
	nice -n 19 $(BIN)/python -m tests.fuzz $(TARGETS) --inputs $(INPUTS) --seed $(SEED)

lint: setup $(STAMP).deploy ## run ruff, mypy --strict, import-linter, spelling and phrases; check the files for containers and clusters
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/python -m tests.tidy.words
	$(BIN)/python -m pytest -q -p no:cacheprovider tests/deploy/test_tools.py

sbom: setup ## write build/sbom.json: what `make setup` installs, in CycloneDX JSON
	$(BIN)/python -m tests.tidy.sbom

audit: setup ## look for known vulnerabilities with pip-audit (pip install pip-audit); fails if it could not be run
	$(BIN)/python -m pip_audit --strict --requirement requirements.txt --no-deps --disable-pip

format: setup ## format the code with ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup $(STAMP).bench ## run the benchmarks, print a table and write JSON
	$(BIN)/python -m benchmarks

bench-quick: setup $(STAMP).bench ## in five minutes, what became worse than the committed figures by more than noise (PARTS=; KEEP=--keep replaces them)
	$(BIN)/python -m benchmarks.quick $(PARTS) $(KEEP)

# Without them, the tests that render the chart with Helm are skipped. Compiling takes minutes, once.
HELM := helm.sh/helm/v3/cmd/helm@v3.22.0
KUBECONFORM := github.com/yannh/kubeconform/cmd/kubeconform@v0.7.0

deploy-tools: setup $(STAMP).deploy ## compile helm and kubeconform (needs Go, and minutes), and check the Helm chart with them
	GOBIN=$(abspath $(BIN)) go install $(HELM)
	GOBIN=$(abspath $(BIN)) go install $(KUBECONFORM)
	$(BIN)/python -m pytest -q tests/deploy/test_generated.py

docs: setup $(STAMP).docs ## build the documentation as a site into build/site; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

docs-serve: setup $(STAMP).docs ## show the documentation on a local port, and follow changes of the pages
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

clean: ## remove everything that make created (jars stay in the user's cache)
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
