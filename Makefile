# Two commands on a fresh machine: `make demo` and `make test`. Both set up .venv by themselves.
PYTHON ?= python3
TORCH  := 2.13.0
BIN    := .venv/bin
PIP    := --quiet --disable-pip-version-check

OTHER  := .venv-torch-$(VERSION)

.PHONY: demo test test-torch mutants bench docs lint style types suite clean

demo: .venv/lab
	$(BIN)/spectralgrad compare

test: style
	$(MAKE) --jobs=2 types suite

suite: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadgroup

# The suite with another torch, e.g. `make test-torch VERSION=2.15.0`: some GB and ten minutes to install.
test-torch: $(OTHER)/ready
	OMP_NUM_THREADS=1 $(OTHER)/bin/python -m pytest -q -n 2 --dist loadgroup

lint: style types

style: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/ready
	$(BIN)/mypy

# Mistakes made on purpose in the core's mathematics, and whether a test notices; e.g. make mutants ARGS='--sample 0 roots.py'.
mutants: .venv/ready
	$(BIN)/python -m tools.mutants $(ARGS)

bench: .venv/ready
	$(BIN)/spectralgrad bench grid

docs: .venv/lab
	$(BIN)/pip install $(PIP) -e '.[docs]' 'torch==$(TORCH)'
	$(BIN)/mkdocs build --strict

# torch is pinned in the same call, so that nothing pulls a larger build of it. One call, since each compiles the kernel
# anew. `make demo` needs the lab alone.
.venv/lab: pyproject.toml lab/pyproject.toml Makefile
	@echo 'Installing torch $(TORCH) and spectralgrad, which compiles its kernel, into .venv: a minute or two.'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install $(PIP) -e . -e ./lab 'torch==$(TORCH)'
	touch $@

.venv/ready: pyproject.toml lab/pyproject.toml Makefile
	@echo 'Installing torch $(TORCH), spectralgrad and what the tests need into .venv: two minutes.'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install $(PIP) -e '.[dev]' -e './lab[cluster]' 'torch==$(TORCH)'
	touch .venv/lab $@

$(OTHER)/ready: pyproject.toml lab/pyproject.toml Makefile
	$(if $(VERSION),,$(error which torch? For example: make test-torch VERSION=2.15.0))
	@echo 'Installing torch $(VERSION) into $(OTHER): some GB, ten minutes.'
	$(PYTHON) -m venv $(OTHER)
	$(OTHER)/bin/pip install $(PIP) -e '.[dev]' -e './lab[cluster]' 'torch==$(VERSION)'
	touch $@

clean:
	rm -rf .venv .venv-torch-* build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache
