# The two commands for a fresh clone are `make demo` and `make test`. Both create .venv if it does not exist.
PYTHON ?= python3
TORCH  := 2.13.0
BIN    := .venv/bin
PIP    := --quiet --disable-pip-version-check

OTHER  := .venv-torch-$(VERSION)

.PHONY: demo test test-torch test-neon test-processors mutants bench docs lint style types suite clean

demo: .venv/lab
	$(BIN)/spectralgrad compare

test: style
	$(MAKE) --jobs=2 types suite

suite: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadgroup

# Run the tests with another version of torch, e.g. `make test-torch VERSION=2.15.0`. The installation takes several GB
# and about ten minutes.
test-torch: $(OTHER)/ready
	OMP_NUM_THREADS=1 $(OTHER)/bin/python -m pytest -q -n 2 --dist loadgroup

# The kernel's code for ARM processors, compiled by aarch64-linux-gnu-g++ and run by qemu-aarch64 (on Debian the packages
# g++-aarch64-linux-gnu and qemu-user). It takes one or two minutes.
test-neon: .venv/ready
	SPECTRALGRAD_TEST_NEON=1 $(BIN)/python -m pytest -q -rs tests/test_instruction_sets.py

# The examples and the numerical tests as other processors would compute them, in 19 combinations of settings,
# about two minutes each. Arguments are passed in ARGS: `make test-processors ARGS=--few` makes two runs.
test-processors: .venv/ready
	$(BIN)/python -m tools.processors $(ARGS)

lint: style types

style: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/ready
	$(BIN)/mypy

# Mutation tests: do the tests notice small mistakes in the mathematics? Arguments are passed in ARGS, e.g.
# make mutants ARGS='--sample 0 square_root.py'
mutants: .venv/ready
	$(BIN)/python -m tools.mutants $(ARGS)

bench: .venv/ready
	$(BIN)/spectralgrad bench --report bench-results

docs: .venv/lab
	$(BIN)/pip install $(PIP) -e '.[docs]' 'torch==$(TORCH)'
	$(BIN)/mkdocs build --strict

# torch is pinned in the same call, so that no dependency installs a larger build of it. Each target installs everything in
# one call, because every call compiles the kernel again. `make demo` needs .venv/lab only, the tests .venv/ready.
.venv/lab: pyproject.toml lab/pyproject.toml Makefile
	@echo 'Installing torch $(TORCH) and spectralgrad into .venv and compiling the kernel; this takes a minute or two.'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install $(PIP) -e . -e ./lab 'torch==$(TORCH)'
	touch $@

.venv/ready: pyproject.toml lab/pyproject.toml Makefile
	@echo 'Installing torch $(TORCH), spectralgrad and the packages for the tests into .venv; this takes about two minutes.'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install $(PIP) -e '.[dev]' -e './lab[cluster]' 'torch==$(TORCH)'
	touch .venv/lab $@

$(OTHER)/ready: pyproject.toml lab/pyproject.toml Makefile
	$(if $(VERSION),,$(error VERSION is not set. For example: make test-torch VERSION=2.15.0))
	@echo 'Installing torch $(VERSION) into $(OTHER); this takes several GB and about ten minutes.'
	$(PYTHON) -m venv $(OTHER)
	$(OTHER)/bin/pip install $(PIP) -e '.[dev]' -e './lab[cluster]' 'torch==$(VERSION)'
	touch $@

clean:
	rm -rf .venv .venv-torch-* build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache
