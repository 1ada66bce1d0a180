PYTHON ?= python3
BIN := .venv/bin
# What else to tell pip, such as PIP_ARGS="--extra-index-url …" with the address of PyTorch's wheels without CUDA
PIP_ARGS ?=

.PHONY: demo test check coverage slow lowest bench whole-paper paper-cost docs clean

demo: .venv/ready  ## set up, then run the main job
	$(BIN)/unsee forget demo --forget airplane,automobile,bird,cat --out runs/demo --overwrite
	@echo 'next: $(BIN)/unsee studio opens a page to watch, judge and try runs'

test: .venv/ready  ## set up, then lint, types and tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest

check: test

coverage: .venv/ready  ## the same tests, a third slower, with the lines they leave out
	$(BIN)/pytest --cov=unsee --cov-report=term:skip-covered --cov-fail-under=95

slow: .venv/ready  ## the long checks
	$(BIN)/pytest -m slow

lowest: .venv-lowest/ready  ## the tests on the lowest versions that pyproject.toml allows
	.venv-lowest/bin/python -m pytest -W default

bench: .venv/ready  ## speed, as ratios
	$(BIN)/unsee bench

whole-paper: .venv/ready  ## every table and figure once, on a random CLIP of ViT-B/16's size; peak memory
	$(BIN)/python -m benchmarks.whole_paper runs/whole-paper

paper-cost: .venv/ready  ## what the paper's tables and figures cost with CLIP ViT-B/16
	$(BIN)/python -m benchmarks.paper_cost

docs: .venv/docs-ready  ## the documentation site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

.venv/docs-ready: .venv/ready
	$(BIN)/pip install --quiet $(PIP_ARGS) --constraint constraints.txt --editable '.[docs]'
	touch .venv/docs-ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet $(PIP_ARGS) --constraint constraints.txt --editable '.[dev]'
	touch .venv/ready

.venv-lowest/ready: pyproject.toml constraints.txt tests/lowest.py
	$(PYTHON) -m venv --clear .venv-lowest
	.venv-lowest/bin/python tests/lowest.py > .venv-lowest/constraints.txt
	.venv-lowest/bin/pip install --quiet $(PIP_ARGS) --constraint .venv-lowest/constraints.txt --editable '.[dev]'
	touch .venv-lowest/ready

clean:
	rm -rf .venv .venv-lowest runs build dist site
