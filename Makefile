# Two commands on a fresh machine: `make demo` and `make test`. Both set up .venv by themselves.
PYTHON ?= python3
TORCH  := 2.13.0
BIN    := .venv/bin

.PHONY: demo test bench docs lint clean

demo: .venv/ready
	$(BIN)/spectralgrad compare

test: .venv/ready lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadgroup

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/ready
	$(BIN)/python -m benchmarks

docs: .venv/ready
	$(BIN)/pip install --quiet -e '.[docs]' 'torch==$(TORCH)'
	$(BIN)/mkdocs build --strict

# torch is pinned and installed first, so that nothing pulls a larger build of it.
.venv/ready: pyproject.toml Makefile
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check 'torch==$(TORCH)' numpy
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]' 'torch==$(TORCH)'
	touch $@

clean:
	rm -rf .venv build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache
