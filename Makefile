# The two commands for a fresh clone are `make demo` and `make test`. Both create .venv if it does not exist.
PYTHON ?= python3
TORCH  := 2.13.0
BIN    := .venv/bin
PIP    := --quiet --disable-pip-version-check
BUILD  := python spectralgrad/native/build.py
PYTEST := -m pytest -q -n 2 --dist loadgroup

CPP     = $(wildcard spectralgrad/native/src/*.[ch]pp spectralgrad/native/src/*/*.hpp tests/native/*.[ch]pp)
OTHER  := .venv-torch-$(VERSION)

.PHONY: demo kernel test test-all test-slow test-torch test-matrix test-neon test-processors mutants bench docs wheels lint style types suite clean

demo: .venv/lab
	-@$(BIN)/$(BUILD)
	$(BIN)/spectralgrad compare

# The tests that find most mistakes, in a few minutes. test-slow runs all others, test-all both.
test: style
	$(MAKE) --jobs=2 types suite

test-all: test
	$(MAKE) test-slow

test-slow: kernel
	OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) -m 'not fast'

suite: kernel
	OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST)

# The kernel of the present sources; nothing is compiled if there is one. A compiler that fails is an error. The tests
# run in all instruction sets that the machine has, so it is compiled for all; users and `make demo` need the best only.
kernel: .venv/ready
	@SPECTRALGRAD_BUILD=all $(BIN)/$(BUILD)

# Run the tests with another version of torch, e.g. `make test-torch VERSION=2.15.0`. The installation takes several GB
# and about ten minutes. PYTHON is the interpreter of the new environment, ARGS are arguments of pytest.
test-torch: $(OTHER)/ready
	SPECTRALGRAD_BUILD=all $(OTHER)/bin/$(BUILD)
	OMP_NUM_THREADS=1 $(OTHER)/bin/python $(PYTEST) -m '' $(ARGS)

# The library's fast tests with the oldest and the newest torch and three between them, one after another, and a table
# of the results. It continues where it was interrupted. Versions are passed in ARGS.
test-matrix:
	$(PYTHON) -m tools.matrix $(ARGS)

# The kernel's code for ARM processors, compiled by aarch64-linux-gnu-g++ and run by qemu-aarch64 (on Debian the packages
# g++-aarch64-linux-gnu and qemu-user). It takes one or two minutes.
test-neon: kernel
	SPECTRALGRAD_TEST_NEON=1 $(BIN)/python -m pytest -q -rs -m '' tests/test_instruction_sets.py

# The examples and the numerical tests as other processors would compute them, in 19 combinations of settings,
# about two minutes each. Arguments are passed in ARGS: `make test-processors ARGS=--few` makes two runs.
test-processors: kernel
	$(BIN)/python -m tools.processors $(ARGS)

lint: style types

style: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(CPP)

types: .venv/ready
	$(BIN)/mypy

# Mutation tests: do the tests notice small mistakes in the mathematics? Arguments are passed in ARGS, e.g.
# make mutants ARGS='--sample 0 square_root.py'
mutants: kernel
	$(BIN)/python -m tools.mutants $(ARGS)

bench: kernel
	$(BIN)/spectralgrad bench --report bench-results

docs: .venv/lab
	$(BIN)/pip install $(PIP) -e '.[docs]' 'torch==$(TORCH)'
	$(BIN)/mkdocs build --strict

# The wheels of a release for four platforms and their checks, in dist/; ten minutes. On Debian the packages qemu-user,
# libc6-arm64-cross and wine64 run what was built for other platforms. `python -m tools.wheels` has more checks.
wheels: .venv/lab
	$(BIN)/pip install $(PIP) -e '.[wheels]' 'torch==$(TORCH)'
	$(BIN)/python -m tools.wheels build
	$(BIN)/python -m tools.wheels check

# torch is pinned in the same call, so that no dependency installs a larger build of it. `make demo` needs .venv/lab only,
# the tests .venv/ready. Nothing is compiled twice: object files are kept in the user's cache folder.
.venv/lab: pyproject.toml lab/pyproject.toml Makefile
	@echo 'Installing torch $(TORCH) and spectralgrad into .venv and compiling the kernel; this takes a minute or two.'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install $(PIP) -e . -e ./lab 'torch==$(TORCH)'
	touch $@

.venv/ready: pyproject.toml lab/pyproject.toml Makefile
	@echo 'Installing torch $(TORCH), spectralgrad and the packages for the tests into .venv; this takes about two minutes.'
	$(PYTHON) -m venv .venv
	SPECTRALGRAD_BUILD=all $(BIN)/pip install $(PIP) -e '.[dev]' -e './lab[cluster]' 'torch==$(TORCH)'
	touch .venv/lab $@

$(OTHER)/ready: pyproject.toml lab/pyproject.toml Makefile
	$(if $(VERSION),,$(error VERSION is not set. For example: make test-torch VERSION=2.15.0))
	@echo 'Installing torch $(VERSION) into $(OTHER); this takes several GB and about ten minutes.'
	$(PYTHON) -m venv $(OTHER)
	$(OTHER)/bin/pip install $(PIP) -e '.[dev]' -e './lab[cluster]' 'torch==$(VERSION)'
	touch $@

clean:
	rm -rf .venv .venv-torch-* build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache
