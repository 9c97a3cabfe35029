# Two commands do everything: `make demo` and `make test`. `make help` lists the rest.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
SECONDS ?= 600
SEED    ?= 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test soak sabotage bench check format lock clean

help: ## Show this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

setup: $(STAMP) ## Make .venv with every dependency and `ebb` in .venv/bin

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Ebbtide needs Python 3.11 or newer; this is %s. Try: make setup PYTHON=python3.12" % sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup ## Build a lake, plan, explain, apply, verify and report (the main job)
	$(BIN)/ebb demo

test: setup ## Run every check, and every test but the long ones of make soak
	$(BIN)/python -m tests.setup
	$(MAKE) --no-print-directory check
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist worksteal -m "not long"

soak: setup ## Run the long tests, then the world machine for SECONDS=600 from SEED=1
	$(BIN)/python -m pytest -m long
	$(BIN)/python -m tests.soak --seconds $(SECONDS) --seed $(SEED)

sabotage: setup ## Break Ebbtide in many ways and see that the tests notice each
	$(BIN)/python -m tests.sabotage

bench: setup ## Measure: the start of small runs, memory, incremental plans, the anti-join, listing, judging and applying buckets, planning for registries
	$(BIN)/python -m bench.start
	$(BIN)/python -m bench.memory
	$(BIN)/python -m bench.incremental
	$(BIN)/python -m bench.subtraction
	$(BIN)/python -m bench.listing
	$(BIN)/python -m bench.bucket
	$(BIN)/python -m bench.bucket_apply
	$(BIN)/python -m bench.bucket_whole
	$(BIN)/python -m bench.registry

check: setup ## Lint, formatting, types, import layers, docstrings, prose
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/interrogate --quiet src tests
	$(BIN)/python -m pytest -q --no-header --durations=0 tests/unit/test_prose.py

format: setup ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: setup ## Pin all dependencies again from pyproject.toml
	$(BIN)/uv pip compile pyproject.toml --extra dev --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 --output-file requirements.lock

clean: ## Remove what was built
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
