# The two commands a newcomer needs: `make run` and `make test`. Both set up what is missing first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
TEST_STAMP := $(VENV)/.ready-for-tests
# Of `make stress`: how often, for how many minutes in all; SEED for the first run, TESTS instead of the whole suite.
RUNS ?= 4
MINUTES ?= 240
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
NPM := $(BIN)/python -m tests.support.node npm
NPM_CI := $(NPM) ci --loglevel=error --no-audit --no-fund --ignore-scripts
PAGE := gateway/page/index.html
AGENTS := .agents
AGENTS_STAMP := $(AGENTS)/.ready
WEB_STAMP := web/node_modules/.ready
# What the page is made of. Directories count, too: one changes when a file in it goes. The page is as old as the moment
# when its building began: what changes while it is built is newer.
WEB_SOURCES := $(shell find web/*/src web/*/public -print 2>/dev/null) \
	$(wildcard web/package.json web/tsconfig*.json web/*/package.json web/*/tsconfig*.json web/*/index.html web/*/*.ts)

.PHONY: help setup page wheel run test agents test-agents stress lint bench soak lock clean images pictures tables archive

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 13

setup: $(STAMP)  ## make .venv with everything in it; nothing to do the second time

$(STAMP): requirements-build.txt requirements-dev.txt pyproject.toml deploy/system-packages.sh
	@sh deploy/system-packages.sh
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) --require-hashes -r requirements-build.txt
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements-dev.txt
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

$(TEST_STAMP): $(STAMP) deploy/test-packages.sh tests/clients/package-lock.json
	@sh deploy/test-packages.sh
	@$(NPM_CI) --prefix tests/clients
	@touch $@

ifneq ($(wildcard web/package.json),)
page: $(PAGE)  ## build the page, if something of it has changed

$(WEB_STAMP): web/package-lock.json | $(STAMP)
	@$(NPM_CI) --prefix web --fetch-retries=1 --fetch-retry-mintimeout=1000 --fetch-timeout=30000
	@touch $@

$(PAGE): $(WEB_STAMP) $(WEB_SOURCES)
	@touch web/node_modules/.began
	@$(NPM) run build --prefix web --silent
	@test -f $@ && touch -r web/node_modules/.began $@
else
page:
	@echo "There is no web/package.json here, so there is no page to build."
endif

wheel: $(STAMP) page  ## the page and everything else as a wheel, in dist/
	@$(BIN)/python -m hatchling build --target wheel --directory dist

run: setup  ## build the page if it must, start the gateway on the embedded default
	@$(MAKE) --silent page || echo "The page could not be built, see above; the gateway starts all the same. To try again: make page" >&2
	@exec $(BIN)/holdfast serve

lint: setup  ## ruff, mypy, and which module may import which
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo --no-cache

test: $(TEST_STAMP) page lint  ## every test, five processes side by side; each ends in a line of counts
	@$(BIN)/python -m tests.support.side_by_side
	@$(BIN)/python -m tests.support.coverage_floor

agents: $(AGENTS_STAMP)  ## install the real agents for tests, at the versions of the catalogue: 1.4 GB, minutes

$(AGENTS_STAMP): $(STAMP) gateway/agents/catalogue.py $(wildcard gateway/agents/install/locks/*)
	@HOLDFAST_AGENTS_DIR=$(AGENTS) $(BIN)/python -m tests.support.real_agents
	@touch $@

test-agents: $(TEST_STAMP) $(AGENTS_STAMP) page  ## the tests with real agents, offline, on a model that is built in
	@HOLDFAST_TEST_AGENTS=$(AGENTS) $(BIN)/python -m pytest tests/agents

stress: $(TEST_STAMP) page  ## every test, RUNS times or for MINUTES, beside a busy loop on every core; lists what failed
	@$(BIN)/python -m tests.support.stress --runs $(RUNS) --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) -- $(TESTS)

bench: $(TEST_STAMP) page  ## every benchmark against a named peer; writes docs/performance.md, and what got worse
	@$(BIN)/python -m bench --write
	@$(BIN)/python -m bench --compare

soak: $(TEST_STAMP)  ## the tests' programs at full size, and the images, built
	@HOLDFAST_TEST_SOAK=1 $(BIN)/python -m pytest -m soak -s -o faulthandler_timeout=0
	@$(BIN)/python -m tests.support.images

images: $(STAMP)  ## build the images of deploy/, and run a session with them
	@$(BIN)/python -m tests.support.images

pictures: $(TEST_STAMP) page  ## take the README's pictures anew, of the real console
	@$(BIN)/python -m tests.support.pictures

tables: setup  ## write the tables of docs/ anew that are made from the code: routes, settings, metrics, close codes, nacks
	@$(BIN)/python -m tests.support.tables

archive: setup  ## add the code of COMMIT to tests/releases/: the next versions must take over what it leaves
	@$(BIN)/python -m tests.support.releases $(or $(COMMIT),HEAD)

lock: $(BIN)/uv  ## pin every dependency with its hashes, naming no registry
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header pyproject.toml -o requirements-run.txt
	@(printf '# Made by "make lock": Holdfast, at the versions of requirements-run.txt. docs/decisions/0016-platforms.md\n.\n'; \
	  sed -nE 's/^([a-z0-9].*[^ ]) *\\$$/\1/p' requirements-run.txt) > requirements.txt
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header pyproject.toml --group dev -o requirements-dev.txt
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --group build -c requirements-dev.txt -o requirements-build.txt
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --group page -c requirements-dev.txt -o requirements-page.txt

$(BIN)/uv:
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --require-hashes -r requirements-build.txt

clean:  ## remove what setup and the tests made; the data in .holdfast stays
	rm -rf $(VENV) $(AGENTS) tests/clients/node_modules web/node_modules gateway/page dist .artefacts .coverage .mypy_cache .ruff_cache .hypothesis
