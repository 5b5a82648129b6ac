# Thin: every target is one command you could type. `make help` lists them.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# The other switches are in flows/__init__.py.
export DO_NOT_TRACK := true
export DVC_NO_ANALYTICS := true
# uv, where it is there, is faster than pip. It takes PyTorch without CUDA where there is no GPU (auto), from PyTorch's
# own index; `make run TORCH=` takes it from yours, like all else.
TORCH ?= auto
UV := $(shell command -v uv)
PIP := $(VENV)/bin/python -m pip
# Pages that a person writes; the other two are generated.
PAGES = $(filter-out docs/parameters.md recipes/README.md,$(shell git ls-files '*.md'))
PLUGINS = $(wildcard plugins/*/)
INSTALL = $(if $(UV),$(UV) pip install --python $(VENV)/bin/python $(TORCH:%=--torch-backend=%),$(PIP) install --quiet)

.PHONY: help run test services soak format lint types docs smoke vllm up down

help:            ## what there is
	@grep -E '^[a-z]+: .*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | expand -t 12

run: $(VENV)/ready      ## set up, then the pipeline of params.yaml; prints the arms
	dvc repro
	@harr report

test: $(VENV)/dev       ## set up, then the tests that run in process, in two processes
	pytest -n 2 --dist loadgroup $(COVER)

services: $(VENV)/dev   ## the tests that start servers and other processes, kill them, and take them away
	pytest -n 2 --dist loadgroup -m services $(COVER)

soak: $(VENV)/dev       ## the tests that take minutes: kills of every stage, the tour; a real vLLM has `make vllm`
	pytest -m soak

format: $(VENV)/dev     ## write what a formatter can write: code by ruff, pages by mdformat, spelling by typos
	ruff check --fix --exit-zero .
	ruff format .
	typos --write-changes || true
	@mdformat $(PAGES)

lint: $(VENV)/dev       ## ruff, spelling, who may import whom, workflows; the line length of prose is not checked
	ruff check .
	ruff format --check .
	typos
	lint-imports --no-logo
	check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/bug.yml .github/ISSUE_TEMPLATE/idea.yml
	@grep --line-number --word-regexp --ignore-case --file=.ci/words $(PAGES) | sed 's/^/a plainer word? /' || true

types: $(VENV)/dev      ## mypy
	mypy

# Not --quiet: mkdocs counts no warning then, so that --strict lets dead links pass.
docs: $(VENV)/dev       ## the site of docs/, in work/site; a dead link or anchor fails
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict
	@echo "work/site/index.html"

smoke: $(VENV)/dev      ## the whole pipeline on a tiny world, in a copy of the tree
	bash .ci/smoke

vllm: $(VENV)/dev       ## a real vLLM on the CPU, in an environment of its own (3.4 GB), and the tests that drive it
	bash .ci/vllm

up: $(VENV)/ready       ## start Prefect, its workers and MLflow, and deploy prefect.yaml (docs/operations.md)
	harr up

down:            ## stop what `harr up` started
	harr down

# What running needs; what tests, tools and plug-ins need comes on top of it.
$(VENV)/ready: constraints.txt pyproject.toml
	@echo "setting up $(VENV): two to four minutes the first time, 2 GB"
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(if $(UV),,$(PIP) install --quiet --upgrade pip)
	$(INSTALL) --constraint constraints.txt --editable '.[pipeline,serve]' --editable plugins/people --editable plugins/local
	@touch $@
	@echo "$(VENV) is ready"

$(VENV)/dev: $(VENV)/ready $(PLUGINS:%=%pyproject.toml)
	$(INSTALL) --constraint constraints.txt --editable '.[dev]' $(PLUGINS:%=--editable %)
	@touch $@
