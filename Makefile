# `make` alone prints this help. Everything is installed into .venv from constraints.txt: what running needs by `make run`,
# the tools of developers by whatever needs them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
TOOLS  := $(VENV)/.tools
PIP    := $(BIN)/python -m pip install -q --disable-pip-version-check --no-compile -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help run test test-fast lint torture golden bench bench-shapes bench-100m bench-1b bench-nightly bench-ingest bench-kernels bench-compare bench-ray system page-shots coverage docs fixtures clean

help: ## Print this help
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "scorelake needs Python 3.11 or newer: make PYTHON=python3.11"; exit 1; }
	@echo "installing scorelake into $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) -e .
	@touch $@

$(TOOLS): $(STAMP)
	@echo "installing the tools of developers into $(VENV) ..."
	@$(PIP) -e '.[dev]'
	@touch $@

run: $(STAMP) ## Score the bundled lake and show its leaderboard
	@$(BIN)/scorelake score fixtures/lake --out out
	@$(BIN)/scorelake show out
	@$(BIN)/scorelake page out --html out/leaderboard.html
	@echo; echo "To look at: out/leaderboard.html. The tables are in out/leaderboard.duckdb. Next: $(BIN)/scorelake compare out model-01 model-00, or README.md for your own attempts."

test: $(TOOLS) lint ## Lint, then run every test
	$(BIN)/pytest

test-fast: $(TOOLS) ## Run the tests of daily work, without the slow ones
	$(BIN)/pytest -m "not slow"

system: ## Install Debian's Chromium, its driver and PostgreSQL for the tests that use them, where that is possible
	@if command -v chromedriver >/dev/null && ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then echo "Chromium and PostgreSQL are here"; \
	elif command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
		apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium chromium-driver fonts-dejavu postgresql >/dev/null \
		|| echo "Chromium and PostgreSQL could not be installed: their tests are skipped"; \
	else echo "no Chromium or no PostgreSQL, and this user may not install them: their tests are skipped"; fi

page-shots: $(TOOLS) ## Screenshots of the page in Chromium, wide, on a phone and dark, into out/shots
	$(BIN)/python tests/shots.py out/shots

lint: $(TOOLS) ## ruff (rules and format) and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

torture: $(TOOLS) ## Kill, starve and damage the job, and recount random lakes, for about half an hour
	KILLS=200 PUBLICATIONS=100 LAKES=300 DAMAGED=10000 STATES=150 HISTORIES=500 INGEST_KILLS=100 $(BIN)/pytest --timeout 0 tests/test_torture.py tests/test_differential.py tests/test_state.py tests/ingest/test_histories.py

bench-kernels: $(TOOLS) ## Kernels against scorio in the same process
	$(PIP) -e '.[bench]'
	$(BIN)/python benchmarks/kernels.py

docs: $(TOOLS) ## Run the commands and the notebook that README and docs/ show, and write what they print now
	$(BIN)/python tests/pages.py
	$(BIN)/python tests/api.py

fixtures: $(TOOLS) ## Make the bundled lake and the golden tables again
	$(BIN)/python fixtures/make.py

bench-compare: $(TOOLS) ## All pairs at once against a plain numpy loop
	$(BIN)/python benchmarks/compare.py --ragged

coverage: $(TOOLS) ## Simulate intervals, claims, ranks and estimates into docs/ (minutes)
	$(BIN)/python benchmarks/intervals.py
	$(BIN)/python benchmarks/ranks.py
	$(BIN)/python benchmarks/estimates.py

bench: $(TOOLS) ## 10M attempts end to end against DuckDB and Polars, about a minute
	$(BIN)/python benchmarks/lake.py 10m

bench-shapes: $(TOOLS) ## Every shape of lake, 10M attempts each, some minutes
	$(BIN)/python benchmarks/lake.py shapes

bench-100m: $(TOOLS) ## 100M attempts in five shapes, half an hour and 6 GB of disk
	$(BIN)/python benchmarks/lake.py 100m

bench-1b: $(TOOLS) ## 1B attempts, half an hour and 5 GB of disk
	$(BIN)/python benchmarks/lake.py 1b --repeats 1 --systems scorelake duckdb duckdb_job

golden: $(TOOLS) ## Compare all tables of 25 lakes with an earlier revision: make golden BASE=v0.1
	$(BIN)/python benchmarks/golden.py $(BASE)

bench-ingest: $(TOOLS) ## A 1 GB file of every format that ingest streams: time and memory, half an hour and 2 GB of disk
	$(BIN)/python benchmarks/ingest.py

bench-nightly: $(TOOLS) ## 1,000 files: nothing new, one in a hundred new, and how fast commands start
	$(BIN)/python benchmarks/nightly.py

bench-ray: $(TOOLS) ## The same cores with and without Ray, 10M and 100M attempts, some minutes
	$(BIN)/python benchmarks/cluster.py

clean: ## Remove the environment and everything generated
	rm -rf $(VENV) out .pytest_cache .mypy_cache .ruff_cache .hypothesis dist
