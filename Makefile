# Sets up a fresh machine: `make demo` trains and compares, `make test` passes the tests.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEMO ?= runs/demo
MODELS := vit matvit mod mone

.PHONY: demo test lint env
env: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[test,notebook]'
	touch $@

# Run it again after an interruption: finished models are kept, the others go on.
demo: env
	@for model in $(MODELS); do \
	  $(BIN)/mone train --config=embedded/$$model --workdir=$(DEMO)/$$model || exit 1; done
	$(BIN)/mone sweep $(addprefix $(DEMO)/,$(MODELS)) --output=$(DEMO)/sweep

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

test: lint
	$(BIN)/python -m pytest -n 2 -m "not debian"
