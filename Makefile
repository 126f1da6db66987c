# make run: set up, get the model, serve the page.  make test: the whole suite.  The README has the rest.
PYTHON ?= python3
# The CPU build of torch, without CUDA's gigabytes: make setup TORCH_INDEX=https://download.pytorch.org/whl/cpu
TORCH_INDEX ?=
# make bench BENCH="--quick --dtype bfloat16"
BENCH ?=

PY := .venv/bin/python
CODE := explorer tests benchmarks app.py

.PHONY: setup run test quick check format bench gpu-check model browser clean

setup: .venv/installed

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed: make PYTHON=python3.12 ..." >&2; exit 2; }
	@$(PYTHON) -m venv .venv || \
	  { rm -rf .venv; echo "Python's venv module is missing: on Debian, apt-get install python3-venv" >&2; exit 2; }

.venv/installed: requirements.txt requirements-dev.txt constraints.txt | .venv/bin/python
	$(PY) -m pip install --disable-pip-version-check -c constraints.txt \
	  $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) -r requirements-dev.txt
	@touch $@

model: setup
	@$(PY) -m explorer.fetch

run: setup model
	@$(PY) app.py

test: setup model browser
	$(PY) -m pytest

quick: setup
	$(PY) -m pytest -m "not real and not browser and not cuda"

check: setup
	$(PY) -m ruff format --check $(CODE)
	$(PY) -m ruff check $(CODE)
	$(PY) -m mypy
	.venv/bin/lint-imports

format: setup
	$(PY) -m ruff format $(CODE)
	$(PY) -m ruff check --fix $(CODE)

bench: setup model
	$(PY) -m benchmarks.engine --out out/engine.json $(BENCH)

# Status 1: an output is wrong; 2: no CUDA device, so nothing was checked.
gpu-check: setup
	$(PY) -m benchmarks.gpu_check

# The browser tests drive an installed Chromium; Debian's is installed when it is missing and this user may.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || { \
	  root=; [ "$$(id -u)" = 0 ] || root="sudo -n"; \
	  command -v apt-get >/dev/null && $$root true 2>/dev/null && \
	  $$root apt-get update -qq && \
	  $$root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; \
	} || { echo "The browser tests need Chromium: install the package chromium, or run make quick." >&2; exit 2; }

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache out
