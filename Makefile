# Two commands do everything: `make demo` and `make test`. The rest is for those who work on the project.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Tests start hundreds of processes: each would compile all of the source anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test check fmt bench sim crash soak docs lock clean
.DEFAULT_GOAL := help

help: ## what there is
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

setup: $(READY) ## make .venv with everything that the other targets need

$(READY): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Hermes Peer needs Python 3.11 or newer: make PYTHON=python3.12")'
	@echo "setting up $(VENV) (once, about a minute)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements.lock
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps -e .
	@touch $@

demo: $(READY) ## the main job: an audit over a line that keeps breaking, then by processes that get killed
	@$(BIN)/hermes-peer demo $(ARGS)

test: $(READY) ## all tests
	@$(BIN)/python -m pytest -n 4 --dist worksteal $(ARGS)

check: $(READY) ## style, types, floors, house rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check -q .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo 2>/dev/null | tail -n 4 || ($(BIN)/lint-imports; exit 1)
	@$(BIN)/python -m pytest tests/house

fmt: $(READY) ## format
	@$(BIN)/ruff check --fix -q . ; $(BIN)/ruff format -q .

bench: $(READY) ## beside the rivals, in one run (needs a few more packages, installed apart)
	@$(MAKE) -s $(VENV)-bench/.ready
	@$(VENV)-bench/bin/python -m bench $(ARGS)

$(VENV)-bench/.ready: bench/requirements.txt pyproject.toml
	@echo "setting up $(VENV)-bench (once)"
	@test -x $(VENV)-bench/bin/python || $(PYTHON) -m venv $(VENV)-bench
	@$(VENV)-bench/bin/python -m pip install -q --disable-pip-version-check -r bench/requirements.txt
	@$(VENV)-bench/bin/python -m pip install -q --disable-pip-version-check -e '.[speed]'
	@touch $@

SEEDS ?= 20000
sim: $(READY) ## the simulator over 20,000 seeds (SEEDS=…)
	@$(BIN)/python -m hermes_peer.testing.simulator --seeds $(SEEDS) --jobs 2 $(ARGS)

soak: $(READY) ## the long forms: every byte offset, 20 s stops, all planted bugs, 400 power cuts, 3 silent minutes
	@HERMES_FAULT_FULL=1 HERMES_PEER_SIM=all HERMES_CUTS=400 HERMES_TEST_SOAK=1 \
		$(BIN)/python -m pytest tests/fault tests/testing tests/journal tests/doors $(ARGS)

crash: $(READY) ## real processes killed with SIGKILL, 200 times at random and at every failpoint; then 200 orderly ends
	@$(BIN)/python -m tests.fault.crash $(ARGS)
	@$(BIN)/python -m tests.fault.crash --orderly $(ARGS)

docs: $(READY) ## the generated tables of the spec
	@$(BIN)/python -m tools.spec_tables

lock: $(READY) ## requirements.lock from what is installed
	@$(BIN)/python tools/lock.py

clean: ## everything that make made
	rm -rf $(VENV) $(VENV)-bench .mypy_cache .ruff_cache .import_linter_cache .hypothesis .demo
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
