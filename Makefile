# Everything a fresh machine with Python >= 3.11 and make needs. `make vision` and `make test` set up .venv by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= auto
# By a name, because `call` would take the comma for its own.
DEV := cpu,dev,jobs-test,browser

.PHONY: vision test test-all lint results docs docs-serve tutorials pictures bench release-check clean

# neural-tangents comes last and without its dependencies: it declares TensorFlow (2 GB), which the part used here never
# imports, and while it is there pip reports that as an error after everything else that it installs.
define install
	$(BIN)/python -m pip uninstall -qq --yes neural-tangents
	$(BIN)/python -m pip install --quiet --editable '$(1)'
	$(BIN)/python -m pip install --quiet --no-deps 'neural-tangents>=0.6.5,<0.7'
endef

# Two stamps, so that a newcomer who only runs an experiment does not wait for the developers' tools.
$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "jaxsens needs Python >= 3.11, found " + sys.version'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(call install,.[cpu])
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(call install,.[$(DEV)])
	@touch $@

vision: $(VENV)/.installed
	$(BIN)/python -m jaxsens.run --exp vision

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder -m 'not slow'

test-all: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The pages of docs/results from what experiments/*/recorded holds, and the tables of
# benchmarks/README.md from benchmarks/results.
results: $(VENV)/.installed
	$(BIN)/python -m jaxsens.record
	$(BIN)/python -m benchmarks.page

$(VENV)/.installed-docs: $(VENV)/.installed
	$(call install,.[docs])
	@touch $@

# The site. Not --quiet: mkdocs then counts no warning, and --strict never fails.
# NO_MKDOCS_2_WARNING: the theme advertises its successor in every build.
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "site/index.html"

# Runs the notebooks of docs/tutorials and keeps what they show; the site shows what they hold.
tutorials: $(VENV)/.installed-docs
	$(BIN)/python -m tools.tutorials

docs-serve: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

# What docs/pictures holds: drawn from trained models, and from the import statements.
pictures: $(VENV)/.installed
	$(BIN)/python -m tools.pictures
	$(BIN)/python -m tools.import_graph

bench: $(VENV)/.installed
	$(call install,.[bench])
	$(BIN)/python -m benchmarks.run --suite sensitivity

# Wheel and sdist, installed elsewhere: see docs/developers/release.md.
release-check: $(VENV)/.installed-dev
	$(BIN)/python -m tools.release_check

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
