# Every target sets up what it needs; a fresh machine needs only make, Python 3.10 or newer and a package index.
#   make demo       replay an agent session, each turn checked against the reference
#   make test       everything continuous integration checks
#   make examples   each example, and whether it prints what the documentation shows
#   make docs       the documentation, into docs/_build/html
#   make campaign   the long differential tests
#   make release    what is published, into dist/, if it works in clean environments
#   make format     rewrite the code in the project's style
#   make clean      remove all that the other targets made
# Another interpreter: make test PYTHON=python3.13
# The release with others, too: make release WITH="python3.10 python3.13"

PYTHON ?= python3
BIN := .venv/bin
# Stamps, not the folder: they exist only once an installation has succeeded.
READY := .venv/.ready

.PHONY: demo test lint types unit examples docs campaign release format clean

demo: .venv/.demo
	@$(BIN)/toktier demo

test: lint types unit docs

lint: $(READY)
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet .

types: $(READY)
	$(BIN)/mypy --strict

# A file is for one process: its tests share what they have built, and the blocks of a page their names.
unit: $(READY)
	$(BIN)/pytest -n logical --maxprocesses 8 --dist loadfile

# Among what `unit` runs, too.
examples: $(READY)
	$(BIN)/pytest tests/test_examples.py

docs: $(READY)
	$(BIN)/sphinx-build --quiet -W --keep-going -b html docs docs/_build/html

campaign: $(READY)
	$(BIN)/python -m tests.campaign

release: .venv/.release
	$(BIN)/python -m tests.release $(addprefix --python=,$(WITH))

format: $(READY)
	$(BIN)/ruff check --quiet --fix .
	$(BIN)/ruff format --quiet .

clean:
	rm -rf .venv build dist docs/_build .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

.venv/.demo: EXTRAS = cli
$(READY): EXTRAS = test,docs
.venv/.release: EXTRAS = release
.venv/.demo $(READY) .venv/.release: pyproject.toml
	@echo "Setting up .venv with '.[$(EXTRAS)]' (once; a minute or two) ..."
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -e '.[$(EXTRAS)]'
	@touch $@
