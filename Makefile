# The two commands a newcomer needs: `make run` and `make test`. Both set up what is missing first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
TEST_STAMP := $(VENV)/.ready-for-tests

.PHONY: help setup run test lint bench soak lock clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(STAMP)  ## make .venv with everything in it; nothing to do the second time

$(STAMP): requirements-dev.txt pyproject.toml deploy/system-packages.sh
	@sh deploy/system-packages.sh
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements-dev.txt
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable .
	@touch $@

$(TEST_STAMP): $(STAMP) deploy/test-packages.sh tests/clients/package-lock.json
	@sh deploy/test-packages.sh
	@$(BIN)/python -m tests.support.node npm ci --prefix tests/clients --silent --no-audit --no-fund --ignore-scripts
	@touch $@

run: setup  ## start the gateway on the embedded default
	@exec $(BIN)/holdfast serve

lint: setup  ## ruff and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

test: $(TEST_STAMP) lint  ## every test, in three processes side by side; each ends in a line of counts
	@$(BIN)/coverage erase
	@$(BIN)/python -m tests.support.side_by_side
	@$(BIN)/coverage combine --quiet
	@$(BIN)/python -m tests.support.coverage_floor

bench: $(TEST_STAMP)  ## every benchmark; each prints a ratio against a named peer
	@$(BIN)/python -m bench

soak: $(TEST_STAMP)  ## the tests' programs at full size
	@HOLDFAST_TEST_SOAK=1 $(BIN)/python -m pytest -m soak -s

lock: $(BIN)/uv  ## pin every dependency with its hashes, naming no registry
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header pyproject.toml -o requirements.txt
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header pyproject.toml --group dev -o requirements-dev.txt

$(BIN)/uv:
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv

clean:  ## remove what setup and the tests made; the data in .holdfast stays
	rm -rf $(VENV) tests/clients/node_modules .coverage .mypy_cache .ruff_cache .hypothesis
