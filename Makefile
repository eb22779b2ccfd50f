# make app: everything a newcomer needs. make test: everything CI runs. Both need Python 3.11 or newer and make.
PYTHON ?= python3
PORT ?= 8501
WORKSPACE ?= data/workspace
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
WORKERS ?= $(shell expr $$(nproc 2>/dev/null || echo 2) + 1)

# Where it is set, as in many images, every process would compile anew all that it imports: 2.2 s instead of 0.5 for each
# command that the tests start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: app test lint format demo system clean

app: $(VENV)/installed
	@exec $(BIN)/cimemories app --port $(PORT) --workspace $(WORKSPACE)

test: $(VENV)/installed-dev system
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --num-workers $(WORKERS)

format: $(VENV)/installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Writes data/demo/ anew; needed after a change of seeds or prompts.
demo: $(VENV)/installed
	$(BIN)/python -m cimemories.demo

# Chromium and PostgreSQL for the tests that use the real ones; without root and apt those tests skip and say so.
system:
	@sh tests/system-packages.sh

$(VENV)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; this is " + sys.version.split()[0] + ". Name another with make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/installed: pyproject.toml constraints.txt | $(VENV)/python
	@echo "installing into $(VENV), once"
	$(PIP) install --constraint constraints.txt --editable .
	@touch $@

# In one go, not after the above: pip would resolve all of it twice. Uncompiled: tests import a part of it only.
$(VENV)/installed-dev: pyproject.toml constraints.txt | $(VENV)/python
	@echo "installing the app, and what tests and linters need, into $(VENV), once"
	$(PIP) install --no-compile --constraint constraints.txt --editable '.[dev]'
	@touch $(VENV)/installed $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
