# Everything the project needs is set up by these targets; only Python >= 3.11 and the package registries are assumed.
PYTHON ?= python3
VENV := .venv/bin

.PHONY: install parts test lint format bench demo docs screenshots lock clean

install: .venv/.installed

.venv/.installed: requirements-dev.lock pyproject.toml
	@$(PYTHON) install.py $<
	@touch $@

# Only what the demo needs; all of it is in the other lock too, so whichever comes second adds to the first.
.venv/.demo: requirements-demo.lock pyproject.toml
	@$(PYTHON) install.py $<
	@touch $@

parts: install
	$(VENV)/python -m tests.support.azurite install
	$(VENV)/python -m tests.support.axe install
	$(VENV)/python -m tests.support.chromium install

test: lint parts
	$(VENV)/python -m pytest -n 2 --dist loadgroup

lint: install
	$(VENV)/ruff check .
	$(VENV)/ruff format --check .
	$(VENV)/mypy

format: install
	$(VENV)/ruff check --fix .
	$(VENV)/ruff format .

bench: install
	$(VENV)/python -m bench

demo: $(or $(wildcard .venv/.installed),.venv/.demo)
	$(VENV)/ray-history demo --directory .parts/demo $(DEMO_FLAGS)

docs: install
	$(VENV)/python -m tests.reference_pages

screenshots: install
	$(VENV)/python -m tests.screenshots

COMPILE := $(VENV)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header

lock: install
	$(COMPILE) --all-extras --output-file requirements-dev.lock
	printf 'editables\nhatchling\nuv\n' | $(COMPILE) - --extra demo --constraint requirements-dev.lock --output-file requirements-demo.lock

clean:
	rm -rf .venv .parts
