# make quickstart   set everything up, then train the miniature image generator; settings in
#                   ARGS="seed=1 output_dir=runs/seed1" go to the run
# make test         the same environment, then the test suite
# Paths stay relative, so the checkout may lie in a folder with spaces in its name.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed

.PHONY: quickstart test lint types clean

quickstart: $(STAMP)
	$(PY) -m mmrl.rl config=configs/rl/quickstart.yaml $(ARGS)

test: $(STAMP)
	$(PY) -m pytest

lint: $(STAMP)
	$(PY) -m ruff check .

types: $(STAMP)
	$(PY) -m pyright

# An interrupted set-up leaves no stamp and is completed by the next call.
$(STAMP): pyproject.toml constraints.txt
	@"$(PYTHON)" -c 'import sys; sys.version_info >= (3, 10) or sys.exit("mmrl needs Python 3.10 or newer, this is %d.%d; name another one: make PYTHON=python3.11" % sys.version_info[:2])'
	@$(PY) -m pip --version >/dev/null 2>&1 || "$(PYTHON)" -m venv $(VENV)
	$(PY) -m pip install -q -c constraints.txt -e ".[dev]"
	@touch $(STAMP)

clean:
	rm -rf $(VENV) build *.egg-info
