# make run    the proxy in front of SIDECALL_UPSTREAM, or of a scripted upstream that needs no key
# make test   the tests        make lint   formatting, types, layout        make lock   new versions of the packages
# make schemas   the JSON Schemas in docs/schemas, and docs/reference.md, from the models
# make index   policies/README.md, from the policies
# make image   the container image and what is in it
# make test-kubernetes   the chart in helm/, with the tools that scripts/kubernetes-tools can get (make test-chart), and
#                        the image, built for real and run (make test-image)
# All that is needed is Python 3.11 or later with its venv module; packages come from the lock files.

PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check
LOCKED := $(INSTALL) --require-hashes --only-binary :all:
UV := $(BIN)/uv --no-config pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--only-binary :all: --no-emit-index-url --no-emit-find-links --no-emit-build-options \
	--custom-compile-command "make lock"

# What the image can do beyond a plain installation; what is not configured is not imported.
IMAGE_EXTRAS := --extra mcp

.PHONY: run test test-kubernetes test-chart test-image image lint lock schemas reference index clean

run: .venv/installed
	@scripts/run

test: .venv/installed-dev
	$(BIN)/pytest -n auto

test-kubernetes: test-chart test-image

test-chart: .venv/installed-dev
	@scripts/kubernetes-tools
	SIDECALL_TOOLS=$(CURDIR)/.venv/tools $(BIN)/pytest -n 2 --dist loadfile tests/kubernetes

test-image: .venv/installed-dev
	@scripts/test-image

image:
	scripts/image sidecall:latest

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest tests/test_layout.py

.venv/installed: requirements.lock requirements-build.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Python 3.11 or later is needed")'
	$(PYTHON) -m venv .venv
	$(LOCKED) -r requirements-build.lock -r requirements.lock
	$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

.venv/installed-dev: .venv/installed requirements-dev.lock
	$(LOCKED) -r requirements-dev.lock
	@touch $@

lock: .venv/installed
	$(INSTALL) uv
	echo 'setuptools>=77' | $(UV) --upgrade - -o requirements-build.lock
	$(UV) --upgrade pyproject.toml -o requirements.lock
	$(UV) --upgrade --extra test --extra lint -c requirements.lock pyproject.toml -o requirements-dev.lock
	$(UV) --upgrade $(IMAGE_EXTRAS) -c requirements-dev.lock pyproject.toml -o requirements-image.lock

schemas reference: .venv/installed
	$(BIN)/sidecall schema > docs/schemas/sidecall.schema.json
	for name in config policy test; do $(BIN)/sidecall schema $$name > docs/schemas/$$name.schema.json || exit 1; done
	$(BIN)/python -c 'from proxy.authoring.reference import reference; print(reference(), end="")' > docs/reference.md

index: .venv/installed
	$(BIN)/python -c 'from pathlib import Path; from proxy.authoring.index import index, read_library; print(index(read_library(Path("policies"), {})), end="")' > policies/.README.md
	mv policies/.README.md policies/README.md

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
