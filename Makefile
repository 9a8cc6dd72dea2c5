# Needs only Python >= 3.11, make and the package registries. Each target is one command.
PYTHON ?= python3
VENV := .venv/bin
RUN := $(VENV)/python -m
PYTEST := $(RUN) pytest -n 2 --dist loadgroup
LOCK := $(VENV)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header
RAY ?= 2.60

.PHONY: install parts hooks test check check-ray fuzz lint ruff types workflows format bench matrix chaos demo docs screenshots
.PHONY: lock lock-dev lock-demo lock-image lock-build package notes wheel chart clean

install: .venv/.installed

.venv/.installed: requirements-dev.lock pyproject.toml
	@$(PYTHON) install.py $< && touch $@

# Only what the demo needs. The other lock file contains all of it, so either can be installed first.
.venv/.demo: requirements-demo.lock pyproject.toml
	@$(PYTHON) install.py $< && touch $@

parts: part-azurite part-axe part-chromium part-prometheus part-ray_releases

part-%: install
	$(RUN) tests.support.$* install

hooks: install
	$(VENV)/pre-commit install

test: lint check

check: parts
	$(PYTEST)

check-ray: parts
	$(VENV)/uv pip install --quiet 'ray[data,default,serve]==$(RAY).*' && $(PYTEST) -m real_ray

fuzz: install
	$(RUN) tests.fuzz $(FUZZ_TARGETS)

lint: ruff types workflows

ruff: install
	$(VENV)/ruff check . && $(VENV)/ruff format --check .

types: install
	$(VENV)/mypy

workflows: install
	$(VENV)/zizmor --offline --quiet .github

format: install
	$(VENV)/ruff check --fix . && $(VENV)/ruff format .

bench: install
	$(RUN) bench

matrix: install
	$(RUN) bench.fidelity matrix $(MATRIX_FLAGS)

# Ten minutes, and nothing is lost; CHAOS_MINUTES and CHAOS_SEED set the length and repeat a run.
chaos: install
	$(RUN) bench.chaos --write

demo: $(or $(wildcard .venv/.installed),.venv/.demo)
	$(VENV)/ray-history demo --directory .parts/demo $(DEMO_FLAGS)

docs: install
	$(RUN) tests.reference_pages

screenshots: install
	$(RUN) tests.screenshots

lock: lock-dev lock-demo lock-image lock-build

lock-dev: install
	$(LOCK) --all-extras --output-file requirements-dev.lock

lock-demo: lock-dev
	printf 'editables\nhatchling\nuv\n' | $(LOCK) - --extra demo --constraint requirements-dev.lock --output-file requirements-demo.lock

# What the image contains, and what builds its wheel.
lock-image: lock-dev
	$(LOCK) --constraint requirements-dev.lock --output-file requirements-image.lock

lock-build: lock-dev
	printf 'hatchling\n' | $(LOCK:pyproject.toml=-) --constraint requirements-dev.lock --output-file requirements-build.lock

package: notes wheel chart

notes: install
	mkdir -p dist && $(RUN) scripts.release_notes $(RELEASE) > dist/notes.md

wheel: install
	$(VENV)/hatchling build -d dist

chart:
	helm package deploy/helm/ray-history --destination dist

clean:
	rm -rf .venv .parts
