# Each target sets up all it needs, on a fresh machine too: a virtual environment in .venv with
# the project and its extras installed. Set PYTHON to choose the interpreter (3.11 or newer).
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Bytecode is kept even where the machine says otherwise: tests start many processes, each of which
# would compile the library again.
unexport PYTHONDONTWRITEBYTECODE

# The targets that most people need come first; make help lists all of them in this order.
.DEFAULT_GOAL := help
.PHONY: help demo test test-long bench docs lint tests house coverage mutants laws fuzz faults docs-check paper paper-quick peers-table distributions-table baselines-table tuning-table tuning-study nearness-study plots release-check lock audit test-minimal clean

# Bytecode is left to the first import: the demonstration needs a fraction of what is installed.
.venv/demo-ready: pyproject.toml
	@echo "Setting up .venv: the project and what its demonstration needs"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is required; set PYTHON=..."; exit 1; }
	$(PYTHON) -m venv .venv
	$(PIP) --no-compile --editable '.[demo]'
	@touch $@

.venv/ready: .venv/demo-ready
	@echo "Adding the whole command line and the test tools"
	$(PIP) --editable '.[test]'
	@touch $@

.venv/bench-ready: .venv/ready
	@echo "Adding the peers to compare with: crepes and MAPIE"
	$(PIP) --editable '.[bench]'
	@touch $@

.venv/peers-ready: .venv/bench-ready
	@echo "Adding models of quantiles and of spreads to compare with"
	$(PIP) --editable '.[peers]'
	@touch $@

.venv/docs-ready: .venv/bench-ready
	@echo "Adding what builds the site: Sphinx, its theme and its gallery"
	$(PIP) --editable '.[docs]'
	@touch $@

##@ every day

demo: .venv/demo-ready  ## adaptive intervals on an example: a table and a figure, in seconds
	$(BIN)/calliper demo

test: .venv/ready  ## lint and tests, side by side; test-long runs the slow tests
	$(MAKE) --jobs 2 lint tests

test-long: .venv/ready  ## slow tests: killed processes, browsers, threads, many draws
	OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -n auto -m long

bench: .venv/bench-ready  ## speed, relative to bare neighbour searches and to other libraries in the same run
	$(BIN)/python -m studies.benchmarks

docs: .venv/docs-ready  ## build the site in build/site
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -b html docs build/site

help:  ## list these targets
	@sed -nE 's/^##@ (.*)/\n\1/p; s/^([a-z-]+):.*## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 22

##@ checks: stress tests and measurements

lint: .venv/ready  ## style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Several test processes share the cores; threads that wait must sleep, not spin.
tests: .venv/ready  ## the tests of make test, without lint
	OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -n auto -m 'not long'

house: .venv/ready  ## size of the code: lines, modules, files entered by a call, constants
	$(BIN)/python -m checks.house

coverage: .venv/ready  ## check that the tests of the numerical core run all its lines and branches
	$(BIN)/python -m checks.mutants --coverage

mutants: .venv/ready  ## mutation testing of the numerical core for another half hour; checks/mutants/mutants.md
	$(BIN)/python -m checks.mutants --minutes $(or $(MINUTES),30)

laws: .venv/ready  ## try to break every guarantee for another 55 minutes, on two cores; checks/promises/promises.md
	OMP_NUM_THREADS=1 $(BIN)/python -m checks.promises --minutes $(or $(MINUTES),55)

fuzz: .venv/ready  ## fuzz files, tables and calls: MINUTES=... (20) or INPUTS=... of each kind
	PYTHONPATH=tests:. OMP_NUM_THREADS=1 $(BIN)/python -m checks.fuzzing $(if $(INPUTS),--inputs $(INPUTS),--minutes $(or $(MINUTES),20))

faults: .venv/ready  ## kill, full disk, Ctrl-C … at every step of every write (minutes)
	$(BIN)/python checks/faults/sweep.py

docs-check: docs  ## spelling, links, notebooks, and the site in a browser: themes, phone, desktop
	$(BIN)/codespell docs examples src README.md CONTRIBUTING.md CHANGELOG.md
	CALLIPER_SITE=build/site $(BIN)/python -m pytest tests/site

##@ studies: evidence for the claims

paper: .venv/ready  ## the paper on its five tasks and nine tables: records, tables, figures (an hour)
	OMP_NUM_THREADS=1 $(BIN)/python -m studies.experiments.deutschmann2024.run

paper-quick: .venv/ready  ## the same at reduced size in minutes; checks the direction of the claims
	OMP_NUM_THREADS=1 $(BIN)/python -m studies.experiments.deutschmann2024.run --quick

peers-table: .venv/peers-ready  ## compare with MAPIE, crepes and quantile models; CALLIPER_DATA names the data folder
	OMP_NUM_THREADS=1 $(BIN)/python -m studies.experiments.peers

distributions-table: .venv/bench-ready  ## compare CRPS with crepes; CALLIPER_DATA names the data folder
	$(BIN)/python -m studies.experiments.distributions.study

baselines-table: .venv/ready  ## compare with the paper's 1-D rows for MADSplit and LVD (minutes)
	$(BIN)/python -m studies.experiments.baselines.one_dimensional

tuning-table: .venv/ready  ## compare with the paper's table on kernel tuning (a quarter of an hour)
	$(BIN)/python -m studies.experiments.tuning.paper_table

tuning-study: .venv/ready  ## which criterion tunes best; CALLIPER_DATA names the data folder
	$(BIN)/python -m studies.experiments.tuning.study
	$(BIN)/python -m studies.experiments.tuning.summary

nearness-study: .venv/ready  ## compare spaces and methods; CALLIPER_DATA names the data folder
	$(BIN)/python -m studies.experiments.nearness.study
	$(BIN)/python -m studies.experiments.nearness.summary

plots: .venv/ready  ## draw the figures docs/images/plot-*.png of the pages
	$(BIN)/python docs/make_plots.py

##@ release

.venv/release-ready: .venv/demo-ready
	@echo "Adding what builds and checks a release"
	$(PIP) --editable '.[release]'
	@touch $@

release-check: .venv/release-ready  ## build, inspect, install and try what would be published
	$(BIN)/python -m checks.release.check

lock: .venv/release-ready  ## update requirements-dev.lock: every package by version and hash
	$(BIN)/python -m checks.release.lock

audit: .venv/release-ready  ## known vulnerabilities of the locked packages; says so if there is no network
	$(BIN)/python -m checks.release.audit

.venv-minimal/ready: pyproject.toml checks/release/minimal.py
	@echo "Setting up .venv-minimal: the lowest versions that are allowed"
	$(PYTHON) -m venv --clear .venv-minimal
	$(PYTHON) -m checks.release.minimal > .venv-minimal/lowest.txt
	.venv-minimal/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint .venv-minimal/lowest.txt --editable '.[test-core]'
	@touch $@

test-minimal: .venv-minimal/ready  ## the core tests with the lowest versions that are allowed
	OMP_WAIT_POLICY=passive .venv-minimal/bin/python -m pytest -n auto @checks/release/core-tests.txt

clean:  ## remove the environment and caches
	rm -rf .venv .venv-minimal .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist docs/gallery docs/reference
