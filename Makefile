# One command sets up (make setup), one checks (make check), one tests (make test).
# Needs Python >= 3.11 with venv, make and git. Everything lands in .venv; remove it with make clean.

PYTHON  ?= python3
WORKERS ?= 2
# Passed on to pytest: make test ARGS='-k fence'
ARGS    ?=
# Passed on to uv: make lock UV_ARGS=--upgrade
UV_ARGS ?=

VENV   := .venv
BIN    := $(VENV)/bin
# Twice quiet: only errors. Once leaves a warning for each package wherever an index of the machine lacks it.
PIP    := $(BIN)/python -m pip --quiet --quiet --disable-pip-version-check --no-input
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# In CI a skipped test is a failed one: nothing there may be left out unseen.
ifneq ($(strip $(CI)),)
PYTEST += --fail-on-skip
endif

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test test-crash check format lock bench docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

setup: $(VENV)/.ready ## make .venv with the locked packages and this project

demo: setup ## watch a person being erased, and the proof checked
	@$(BIN)/expunge demo

test: setup ## run the tests but for the long ones (ARGS= for pytest)
	@if [ -z "$$EXPUNGE_LOCOMO" ]; then \
	  echo "EXPUNGE_LOCOMO is not set: the acceptance tests on the LoCoMo conversations are left out."; \
	  echo "To run them, set it to the path of locomo.jsonl."; \
	fi
	$(PYTEST) -m "not crash" $(ARGS)

test-crash: setup ## run the kills and all that takes long (ARGS= for pytest)
	$(PYTEST) -m crash --timeout=600 $(ARGS)

check: setup ## format, lint, types, import layers, reference docs: all without changing a file
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tools/docs.py --check
	$(BIN)/python tools/erasing.py --check
	$(BIN)/python tools/subject_request.py --check

format: setup ## format the code and apply the safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup ## measure against hand-written SQL on the same driver
	$(BIN)/python -m bench

docs: setup ## make the reference docs from the code
	$(BIN)/python tools/docs.py
	$(BIN)/python tools/erasing.py
	$(BIN)/python tools/subject_request.py

# Does not ask for setup: that fails for as long as the lock lacks what pyproject.toml asks for.
lock: $(VENV)/.locked ## remake requirements.lock from pyproject.toml (UV_ARGS=--upgrade for newer versions)
	$(BIN)/uv pip compile --no-config --quiet --universal --python-version 3.11 --generate-hashes --extra dev \
	  --custom-compile-command "make lock" $(UV_ARGS) pyproject.toml -o requirements.lock

clean: ## remove .venv, caches and builds
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Made afresh, so that what left the lock leaves the environment too.
$(VENV)/.locked: requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  found=$$($(PYTHON) --version 2>/dev/null) || found="not found, or does not run"; \
	  echo "Expunge needs Python 3.11 or newer; $(PYTHON): $$found."; \
	  echo "Name another one: make setup PYTHON=python3.12"; \
	  exit 1; \
	} >&2
	@echo "making $(VENV) from requirements.lock"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(PIP) install --require-hashes -r requirements.lock
	@touch $@

# `pip check` says so when pyproject.toml asks for something that the lock does not have.
$(VENV)/.ready: $(VENV)/.locked pyproject.toml
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m pip --disable-pip-version-check check >$(VENV)/.pip-check 2>&1 || { \
	  cat $(VENV)/.pip-check; \
	  echo "requirements.lock is behind pyproject.toml: make lock"; \
	  exit 1; \
	} >&2
	@touch $@
