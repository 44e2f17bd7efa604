# The project's commands. A newcomer needs only `make run` and `make test`; CONTRIBUTING.md explains the rest.

INVENTORY ?= inventories/local.yaml
ARGS ?=
PYTHON ?=
JOBS ?= 2
BENCHMARKS ?= wire memory pi accuracy kernel faults scaling links metrics_cost
python := .venv/bin/python

.DEFAULT_GOAL := help
.PHONY: help .venv run test test-tools test-long lab check format lint types imports lengths lock rules requirements docs bench clean lab-kernel image

help:  ## this list
	@sed -n 's/^\([a-z.-]*\):.*## /\1|/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "make %-12s %s\n", $$1, $$2}'

.venv:  ## the environment from uv.lock; repeated only when the lock or the Python changed
	@PYTHON="$(PYTHON)" sh tools/make_venv.sh

run: .venv  ## a parameter server and two workers on this machine train the network, then stop (ARGS="--data synthetic")
	@$(python) tools/run_local.py $(INVENTORY) $(ARGS)

test: .venv  ## all tests but the long ones, two files at a time (ARGS="-k inventory", JOBS=0 for one process)
	@$(python) -m tools.debian_tools --on-the-way
	@$(python) -m pytest -n $(JOBS) --dist loadfile $(ARGS)

test-tools: .venv  ## unpacks the programs that the tests start and this machine lacks into .cache; installs nothing
	@$(python) -m tools.debian_tools

test-long: .venv  ## the tests marked long, two files at a time (JOBS=0 for one process)
	@$(python) -m pytest -n $(JOBS) --dist loadfile -m "long and not lab" $(ARGS)

lab: .venv  ## the tests on sixteen emulated Raspberry Pis: root, see docs/lab.md (ARGS="-k crash")
	@$(python) -m tests.lab prepare && $(python) -m pytest -m lab tests/lab $(ARGS)

lab-kernel: .venv  ## the deployment on three machines with real kernels: root, twenty minutes, see docs/kernel-lab.md
	@$(python) -m tests.lab_kernel prove

image: .venv  ## the container image: root, buildah and mmdebstrap, see docs/containers.md (ARGS="--save pscluster.tar")
	@$(python) -m tools.build_image $(ARGS)

check: lint types imports lengths lock rules docs  ## all static checks: style, types, imports, lengths, lock, rules, docs

lint: .venv
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .

types: .venv
	@.venv/bin/mypy

imports: .venv
	@.venv/bin/lint-imports --no-logo

lengths: .venv
	@$(python) tools/check_lengths.py

lock: .venv
	@uv=$$(sh tools/make_venv.sh --uv) && $$uv lock --check --quiet
	@$(python) -m tools.check_wheels uv.lock
	@sh tools/export_requirements.sh --check

rules: .venv  ## promtool over Prometheus' configuration, its rules and the cases of every alert
	@$(python) -m tools.check_rules

requirements:  ## writes the list of a node's packages from uv.lock
	@sh tools/export_requirements.sh

format: .venv  ## rewrites the sources as `make check` requires
	@.venv/bin/ruff check --fix --quiet . || true
	@.venv/bin/ruff format .

docs: .venv  ## docs/_build/html, warnings are errors
	@.venv/bin/sphinx-build -W --keep-going --quiet -b html docs docs/_build/html

bench: .venv  ## the quick benchmarks, one JSON object each (BENCHMARKS="wire memory")
	@for name in $(BENCHMARKS); do \
		if [ -e benchmarks/$$name.py ] || [ -e benchmarks/$$name/__main__.py ]; then \
			echo "benchmarks.$$name" >&2; $(python) -m benchmarks.$$name --quick --json || exit 1; \
		else echo "benchmarks.$$name: not in this version" >&2; fi; done

clean:  ## removes what was built; runs/ holds your results and stays (`rm -r runs` removes it)
	@rm -rf .venv .cache docs/_build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@if [ -d runs ]; then echo "kept runs/: your results; 'rm -r runs' removes them"; fi
