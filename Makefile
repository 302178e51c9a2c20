# Plain pip and the standard venv module are enough for everything here, `make lock` excepted (that one needs uv).
PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python

.PHONY: venv lock
.DEFAULT_GOAL := venv

venv: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet -c requirements.lock -e '.[dev,models]'
	touch $@

lock:
	uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-emit-find-links --no-annotate \
		--custom-compile-command 'make lock' --extra dev --extra models --upgrade --output-file requirements.lock pyproject.toml
