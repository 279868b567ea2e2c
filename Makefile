# Two commands on a fresh machine: `make demo` and `make test`. Both set up .venv by themselves.
PYTHON ?= python3
TORCH  := 2.13.0
BIN    := .venv/bin
PIP    := --quiet --disable-pip-version-check

.PHONY: demo test mutants bench docs lint clean

demo: .venv/lab
	$(BIN)/spectralgrad compare

test: .venv/ready lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadgroup

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Mistakes made on purpose in the core's mathematics, and whether a test notices; e.g. make mutants ARGS='--sample 0 roots.py'.
mutants: .venv/ready
	$(BIN)/python -m tools.mutants $(ARGS)

bench: .venv/ready
	$(BIN)/python -m benchmarks

docs: .venv/ready
	$(BIN)/pip install $(PIP) -e '.[docs]' 'torch==$(TORCH)'
	$(BIN)/mkdocs build --strict

# torch is pinned and installed first, so that nothing pulls a larger build of it. `make demo` needs the lab alone.
.venv/lab: pyproject.toml Makefile
	@echo 'Installing torch $(TORCH) into .venv: a minute or two.'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install $(PIP) 'torch==$(TORCH)' numpy
	@echo 'Installing spectralgrad, which compiles its kernel: a minute.'
	$(BIN)/pip install $(PIP) -e '.[lab]' 'torch==$(TORCH)'
	touch $@

.venv/ready: .venv/lab
	@echo 'Installing what the tests need.'
	$(BIN)/pip install $(PIP) -e '.[dev]' 'torch==$(TORCH)'
	touch $@

clean:
	rm -rf .venv build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache
