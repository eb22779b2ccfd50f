# make app: everything a newcomer needs. make test: everything CI runs. Both need Python 3.11 to 3.14 and make.
PYTHON ?= python3
PORT ?= 8501
WORKSPACE ?= data/workspace
VENV := .venv
comma := ,
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# $(call install,OPTIONS OF UV,OPTIONS OF PIP,WHAT). uv takes a fifth of pip's processor time. It does not read pip's
# settings, so where they name the only index that can be reached, pip goes on.
install = $(PIP) install --constraint constraints.txt uv && { \
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt $(1) --editable '$(3)' \
	|| { echo "uv could not install it; pip tries"; $(PIP) install --constraint constraints.txt $(2) --editable '$(3)'; }; }
WORKERS ?= $(shell expr $$(nproc 2>/dev/null || echo 2) + 1)

# Where it is set, as in many images, every process would compile anew all that it imports: 2.2 s instead of 0.5 for each
# command that the tests start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: app test test-long test-scale test-costs golden golden-check lint format demo reproduce docs dist lock resolve system clean

app: $(VENV)/installed
	@exec $(BIN)/cimemories app --port $(PORT) --workspace $(WORKSPACE)

PYTEST := $(BIN)/python -m pytest
PARALLEL := -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test: $(VENV)/installed-dev system
	$(PYTEST) $(PARALLEL)

# What takes too long for each change: many kills, soaks, wide worlds, real installs, and many more examples of the
# tests by hypothesis. Where all pass, this and test-scale write tests/last_run_*.txt, to be committed: CI says by them
# when they last did.
test-long: $(VENV)/installed-dev system
	CIMEMORIES_RECORD_RUN=tests/last_run_long.txt $(PYTEST) $(PARALLEL) -m "long or hypothesis" --hypothesis-profile wide

# Work over many machines (docs/scale.md), on a cluster of two nodes on this one. Apart from the long tests, since it
# installs Ray, which is 200 MB.
test-scale: $(VENV)/installed-ray system
	CIMEMORIES_RECORD_RUN=tests/last_run_scale.txt $(PYTEST) tests/scale

# tests/costs.txt: the processor time of each test file.
test-costs: $(VENV)/installed-dev system
	CIMEMORIES_RECORD_COSTS=1 $(PYTEST) $(PARALLEL)

# Records numbers, exports and reports of three small worlds in tests/golden/*.json: after a change that is meant to
# change them, and reviewed with `git diff`.
golden: $(VENV)/installed-dev
	PYTHONPATH=tests $(BIN)/python -m golden.record

# Compares with what was recorded, on SQLite and PostgreSQL, in another time zone and order of hashes: 2 min of a
# processor. Without PostgreSQL's server programs it says so and compares on SQLite alone.
golden-check: $(VENV)/installed-dev
	TZ=Asia/Kathmandu PYTHONHASHSEED=1 PYTHONPATH=tests $(BIN)/python -m golden.record --check

lint: $(VENV)/installed-dev resolve
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --num-workers $(WORKERS)

format: $(VENV)/installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Writes data/demo/ anew; needed after a change of seeds or prompts.
demo: $(VENV)/installed
	$(BIN)/python -m cimemories.demo

# The paper's tables and figures on the simulator, small, in data/reproduce/results (docs/reproduce.md).
reproduce: $(VENV)/installed
	$(BIN)/python examples/reproduce/reproduce.py

# The documentation as a website, in docs/site/; fails at links that lead nowhere.
docs: $(VENV)/installed-dev
	$(BIN)/python docs/website.py

# The sdist and the wheel, in dist/, checked. The version is the tag's (hatch-vcs).
dist: $(VENV)/installed-dev
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl

# What the image installs, with hashes; needed after a change of the app's dependencies or of constraints.txt.
lock: $(VENV)/installed-dev
	$(BIN)/uv pip compile pyproject.toml --extra memory --extra team --constraint constraints.txt --output-file deploy/requirements.txt --quiet \
		--universal --python-version 3.11 --generate-hashes --no-annotate --no-emit-index-url --no-emit-find-links \
		--custom-compile-command 'make lock'

# A dry run: with these exact versions the extras install together, on every system and from the oldest Python on. Not
# vllm, which has an environment of its own. uv ends with 1 where versions conflict and with 2 where it cannot reach a
# package index, which says nothing about them.
resolve: $(VENV)/installed-dev
	@UV_HTTP_RETRIES=1 $(BIN)/uv pip compile pyproject.toml --constraint constraints.txt --universal --quiet \
		--output-file /dev/null --python-version 3.11 --extra inspect --extra mcp --extra memory --extra team --extra ray \
		--extra letta --extra graphiti --extra dev \
		|| { [ $$? -eq 2 ] && echo "not checked whether the extras install together"; }

# Chromium and PostgreSQL for the tests that use the real ones; without root and apt those tests skip and say so.
system:
	@sh tests/system-packages.sh

# Of some versions in constraints.txt, scipy's among them, there is no wheel for Python 3.15: pip would compile them.
$(VENV)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14) and "Python 3.11 to 3.14 is needed; this is " + sys.version.split()[0] + ". Name another with make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

# With the extra `memory`, which is small: the form of a new run offers its memory system first.
$(VENV)/installed: pyproject.toml constraints.txt | $(VENV)/python
	@echo "installing into $(VENV), once"
	@$(call install,--compile-bytecode,,.[memory])
	@touch $@

# In one go, not after the above: it would all be resolved twice. Uncompiled: tests import a part of it only.
$(VENV)/installed-dev: pyproject.toml constraints.txt | $(VENV)/python
	@echo "installing the app, and what tests and linters need, into $(VENV), once"
	@$(call install,,--no-compile,.[dev])
	@touch $(VENV)/installed $@

$(VENV)/installed-ray: $(VENV)/installed-dev
	@$(call install,,--no-compile,.[dev$(comma)ray])
	@touch $@

clean:
	rm -rf $(VENV) dist docs/site docs/.cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
