# Everything a developer does here, by name. Python 3.11+, a C++ compiler and make are all it needs.

PYTHON ?= python3
BIN := .venv/bin
TOOLS := .venv-tools/bin
LOCKS := deploy/requirements
ARGS ?=
# Processes of the tests, each with a database server of its own. A file's tests stay in one of them, in their order.
JOBS ?= 3
PURE_TESTS := tests/policy tests/run tests/prompt tests/test_prompt.py tests/conversation tests/events tests/agents

.DEFAULT_GOAL := help

help: ## Show this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

install: ## Make .venv with what running needs (done by run)
	@$(PYTHON) deploy/install.py

install-dev: ## Make .venv with what tests and checks need too (done by the others)
	@$(PYTHON) deploy/install.py --dev

run: install ## Install and start the service with an embedded Postgres and the default model
	@exec $(BIN)/runwright serve $(ARGS)

test: install-dev ## Run all tests, or some: make test ARGS='tests/run -k fold'; JOBS=0: in one process
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

lint: install-dev ## Check style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: install-dev ## Repair style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: install-dev ## Check types
	$(BIN)/mypy

imports: install-dev ## Check that rooms import downwards only
	$(BIN)/lint-imports

docs: install-dev ## Draw the parts of docs/ that are drawn from the code
	PYTHONPATH=. $(BIN)/python docs/draw.py

coverage: install-dev ## Hold the branches of the rooms without I/O at 100 %
	@rm -f .coverage .coverage.*
	$(BIN)/coverage run -m pytest -q $(PURE_TESTS)
	$(BIN)/coverage combine -q
	$(BIN)/coverage report --skip-covered --fail-under=100 \
	    --include='app/policy/*,app/run/*,app/prompt/*,app/conversation/*,app/events/*,app/agents/*'

openapi: install-dev ## Write openapi.yaml anew from the app
	@new=$$(mktemp) && trap 'rm -f "$$new"' EXIT && \
	$(BIN)/python -m app openapi > "$$new" && cat "$$new" > openapi.yaml

openapi-check: install-dev ## Check that openapi.yaml is what the app says
	@new=$$(mktemp) && trap 'rm -f "$$new"' EXIT && \
	$(BIN)/python -m app openapi > "$$new" && \
	{ diff -u openapi.yaml "$$new" || { echo "openapi.yaml differs from the app; run: make openapi"; exit 1; }; }

migrations-check: install-dev ## Check that the migrations make the tables that the models describe
	$(BIN)/python -m app migrate --check

check: lint types imports openapi-check migrations-check test ## All checks and tests: what a commit must pass

chaos: install-dev ## Disturb a service under load and audit it: CHAOS_SECONDS=60, CHAOS_SEED= plays one again
	$(BIN)/python -m tests.chaos $(ARGS)

bench: install-dev ## Run every benchmark, one after the other
	@set -e; for file in benchmarks/*.py; do \
	    [ -e "$$file" ] || continue; echo "== $$file"; PYTHONPATH=. $(BIN)/python "$$file"; \
	done

tools: $(TOOLS)/uv ## Make .venv-tools with the linters of shell and Dockerfile and what writes the locks

$(TOOLS)/uv: $(LOCKS)/tools.lock
	$(PYTHON) -m venv --clear .venv-tools
	$(TOOLS)/python -m pip install -q --only-binary :all: --require-hashes -r $(LOCKS)/tools.lock
	@touch $@

# A package's sdist or data file that is installed by itself is locked by itself. runtime comes before dev, which is
# held to its versions.
COMPILE := pip compile -q --universal --python-version 3.11 --generate-hashes --no-header \
	--no-emit-index-url --no-emit-find-links $(UPGRADE)

lock: $(TOOLS)/uv ## Write the locks anew from *.in; UPGRADE=--upgrade takes newer versions
	@set -e; cd $(LOCKS); uv=$(CURDIR)/$(TOOLS)/uv; \
	for name in llama model; do $$uv $(COMPILE) --no-deps $$name.in -o $$name.lock; done; \
	for name in build tools runtime dev adk; do $$uv $(COMPILE) $$name.in -o $$name.lock; done

clean: ## Remove what the checks and builds leave; keeps the .venv folders, the database and the wheel cache
	rm -rf build ./*.egg-info .coverage* htmlcov .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +

.PHONY: help install install-dev run test lint format types imports docs openapi openapi-check migrations-check check \
	chaos bench coverage tools lock clean
