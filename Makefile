# `make demo` and `make test` work as the first command on a machine with Python >= 3.12.
PYTHON ?=
BIN := .venv/bin
# Not compiled to bytecode: most modules are never imported, and it takes as long as all else.
INSTALL := $(BIN)/pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt
# But what a start imports is, what JAX and Numba import at their first use with it: where Python
# may not write bytecode (PYTHONDONTWRITEBYTECODE), each process compiles these 1600 files again.
START := import jax, numba, jax_engine.llm; \
	jax.jit(jax.numpy.abs).lower(0); numba.njit('int64()')(lambda: 0)
# More than cores: tests often wait for processes that they have started. A process needs 1.5 GB.
CORES := $(shell getconf _NPROCESSORS_ONLN)
JOBS ?= $(shell expr $(CORES) + 2 \& $(CORES) \< 6 \| 8)
MINUTES ?= 30

.PHONY: help demo test test-all coverage thorough lint format docs mutation aot vllm-settings clean
.DELETE_ON_ERROR:

help:
	@echo "make demo      complete a few prompts with SmolLM2 (downloads 93 MB the first time)"
	@echo "make test      the tests, with a tenth of the cases, few random examples and no slow ones; SEED=1 has other cases"
	@echo "make test-all  all cases; HYPOTHESIS_PROFILE=dev|ci|thorough (dev by default)"
	@echo "make coverage  the oracle's hand-written examples: 100 % of lines and branches of reference/"
	@echo "make thorough  rounds of random tests for MINUTES=30, added to a record; see docs/correctness.md"
	@echo "make lint      ruff, format check, spelling, mypy --strict"
	@echo "make docs      the documentation into site/; a dead link or heading is an error"
	@echo "               DOCS_QUICK=1 runs no cell, shows what it printed last, and says so"
	@echo "make mutation  plant bugs and see that tests catch them; takes up where it stopped (hours)"
	@echo "make vllm-settings  note the settings of the newest vLLM; tests then name those without a row"
	@echo "make aot       compile the kernels and the engine's step for GPUs, without one; AOT_ARGS=..."

# One stamp for each set of packages: `run` is what the engine needs, the others are extras.
.venv/.installed-run: pyproject.toml constraints.txt
	@PYTHON="$(PYTHON)" scripts/make_venv
	@echo "installing jax-engine into .venv (about a minute the first time)"
	@$(INSTALL) --editable .
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -c "$(START)"
	@touch $@

.venv/.installed-%: .venv/.installed-run
	@echo "installing the $* extra into .venv"
	@$(INSTALL) --editable ".[$*]"
	@touch $@

demo: .venv/.installed-run
	@$(BIN)/python examples/demo.py

# Three runs, which share no test: the oracle's examples, its properties, and all the rest.
# No reordering: files with few tests, put last, are the longest, and would leave one process alone.
PARALLEL := --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder
PROPERTIES := -m hypothesis $(PARALLEL) tests/reference reference
REST := $(PARALLEL) --ignore=tests/reference --ignore=reference
# A share of the cases of tests with parameters, few random examples, and no slow tests.
SEED ?= 0
# The slowest are named at the end: `slow` marks what takes five seconds.
SHARE := --share 10 --share-seed $(SEED) -m "not slow" --durations 50 --durations-min 5
test: export HYPOTHESIS_PROFILE ?= few
test: coverage
	$(BIN)/python -m pytest $(PROPERTIES)
	$(BIN)/python -m pytest $(REST) $(SHARE)

test-all: coverage
	$(BIN)/python -m pytest $(PROPERTIES)
	$(BIN)/python -m pytest $(REST)

# Only what is written by hand, so that no line hangs on what Hypothesis happens to draw. The tracer
# slows JAX: nothing else runs under it.
coverage: .venv/.installed-test
	$(BIN)/python -m pytest tests/reference reference -m "not hypothesis" --cov --cov-report=term

# One part at a time: its minutes are those of one core.
thorough: .venv/.installed-test
	$(BIN)/python -m tests.thorough --minutes $(MINUTES)

lint: .venv/.installed-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/mypy

format: .venv/.installed-lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/.installed-docs
# Not --quiet: it keeps warnings from being counted, and so from failing.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

mutation: .venv/.installed-test
	@status=0; \
	$(BIN)/python -m tests.mutation --jobs $(JOBS) || status=1; \
	$(BIN)/python -m tests.mutation --generated --budget 60 --jobs $(JOBS) || status=1; \
	$(BIN)/python -m tests.mutation --table; \
	exit $$status

# Apart from .venv, whose JAX would find the CUDA plugin there and look for a GPU at each start.
.venv-aot/.installed: constraints-aot.txt
	@PYTHON="$(PYTHON)" scripts/make_venv .venv-aot
	@echo "installing the CUDA compilers into .venv-aot (1.5 GB, half a minute)"
	@.venv-aot/bin/pip install --quiet --disable-pip-version-check --no-deps --requirement $<
	@touch $@

# In a folder of its own: where JAX found AMD's plugin, each process would look for such a GPU.
.venv-aot/.installed-rocm: .venv-aot/.installed constraints-rocm.txt
	@if [ "$$(uname -sm)" = "Linux x86_64" ]; then \
		echo "installing the ROCm compilers into .venv-aot/rocm (0.5 GB)"; \
		.venv-aot/bin/pip install --quiet --disable-pip-version-check --no-deps --upgrade \
			--target .venv-aot/rocm --requirement constraints-rocm.txt; \
	fi
	@touch $@

aot: .venv-aot/.installed-rocm
	.venv-aot/bin/python -m pallas_kernels.aot --cases jax_engine.worker.aot_cases \
		--cases jax_engine.worker.aot_mesh_cases $(AOT_ARGS)

# Reads 40 MB of sources from the package index, and runs none of them.
vllm-settings: .venv/.installed-test
	$(BIN)/python -m scripts.vllm_settings $(VLLM_ARGS)

clean:
	rm -rf .venv .venv-aot build dist site .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache
