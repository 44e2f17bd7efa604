# The project's commands. A newcomer needs only `make run` and `make test`; CONTRIBUTING.md explains the rest.

INVENTORY ?= inventories/local.yaml
ARGS ?=
PYTHON ?=
JOBS ?= 3
FLOOR ?=
BENCHMARKS ?= wire memory pi accuracy kernel faults forecast metrics_cost recordings inference service_floods scaling links tunnelled time_to_accuracy crowd
LAB ?= tests/lab/two_nodes tests/lab/test_nodes.py
python := .venv/bin/python
pytest = $(python) -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder
zig := .cache/zig
server_native := core/server/native
session_threads = for machine in aarch64 x86_64; do $(zig)/bin/python -m ziglang c++ -target $$machine-linux-gnu.2.27 \
	-std=c++17 -O2 -fPIC -fno-exceptions -fno-rtti -fvisibility=hidden -fno-sanitize=undefined -Wall -Wextra -Werror -nostdlib++ -shared -s \
	$(server_native)/session_threads.cc -ldl -o $(1)/session_threads.$$machine.so || exit 1; done
kernel_sources := sha256sum kernels/*.py kernels/native/* kernels/requirements.txt kernels/built/SHA256SUMS tools/compare_kernels.py | LC_ALL=C sort

.DEFAULT_GOAL := help
.PHONY: help .venv kernels kernels-check kernels-sanitize kernels-emulated kernels-proven kernels-are-proven run test stories long all-tests shake costs test-tools lab check format lint types imports lengths habits lock rules sbom requirements docs bench clean lab-kernel image

help:  ## this list
	@sed -n 's/^\([a-z.-]*\):.*## /\1|/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "make %-12s %s\n", $$1, $$2}'

.venv:  ## the environment from uv.lock; repeated only when the lock or the Python changed
	@PYTHON="$(PYTHON)" sh tools/make_venv.sh

run: .venv  ## a parameter server and two workers on this machine train the network, then stop (ARGS="--data synthetic")
	@$(python) tools/run_local.py $(INVENTORY) $(ARGS)

test: .venv  ## the fast tests: each costs at most a CPU second (FLOOR=recognise for one floor, ARGS="-k inventory")
	@$(python) -m tools.debian_tools --on-the-way
	@$(pytest) --tier=fast $(if $(FLOOR),tests/$(FLOOR)) $(ARGS)

stories: .venv  ## the dearer tests, one form each
	@$(pytest) --tier=stories $(if $(FLOOR),tests/$(FLOOR)) $(ARGS)

long: JOBS = 2
long: .venv  ## one long test for each behaviour: whole trainings, killed nodes, browsers
	@$(pytest) --tier=long $(if $(FLOOR),tests/$(FLOOR)) $(ARGS)

all-tests: kernels-check kernels-sanitize kernels-emulated  ## every form of every test, sixteen emulated Pis, a week's changes under load: hours
	@$(pytest) --tier=all $(ARGS)
	@$(MAKE) lab LAB=tests/lab
	@$(python) -m tools.shake --since "1 week ago" --rounds 5

shake: .venv  ## the test files of your change three times on a busy machine (ARGS="--base COMMIT")
	@$(python) -m tools.shake $(ARGS)

costs: .venv  ## measures what each test costs, as root on a quiet machine: see tests/costs.py
	@$(python) -m tests.costs fast stories long

test-tools: .venv  ## unpacks the programs that the tests start and this machine lacks into .cache; installs nothing
	@$(python) -m tools.debian_tools

lab: .venv  ## tests on emulated Raspberry Pis, two of them: root, see CONTRIBUTING.md (LAB=tests/lab for all sixteen, ARGS="-k crash")
	@$(python) -m tests.lab prepare && $(python) -m pytest -m lab $(LAB) $(ARGS)

lab-kernel: .venv  ## the deployment on three machines with real kernels: root, twenty minutes, see CONTRIBUTING.md
	@$(python) -m tests.lab_kernel prove

image: .venv  ## the container image: root, buildah and mmdebstrap, see docs/containers.md (ARGS="--save pscluster.tar")
	@$(python) -m tools.build_image $(ARGS)

kernels: $(zig)/made  ## builds the native libraries for x86_64 and aarch64, see docs/kernels.md
	@$(zig)/bin/python -m kernels.build
	@$(call session_threads,$(server_native))
	@cd $(server_native) && sha256sum *.cc *.so >SHA256SUMS

kernels-check: $(zig)/made
	@$(zig)/bin/python -m kernels.build --check
	@$(call session_threads,$(zig))
	@cd $(zig) && grep so$$ $(CURDIR)/$(server_native)/SHA256SUMS | sha256sum --check --quiet

kernels-sanitize: .venv
	@$(python) -m tools.compare_kernels sanitized

kernels-emulated: .venv $(zig)/made
	@$(python) -m tools.compare_kernels emulated

kernels-proven: kernels-check kernels-sanitize kernels-emulated  ## makes all three comparisons and writes down of which sources
	@$(kernel_sources) >kernels/built/PROVEN

kernels-are-proven:  # whether the three comparisons passed with these sources
	@$(kernel_sources) | cmp --silent - kernels/built/PROVEN

$(zig)/made: kernels/requirements.txt
	@$$(sh tools/make_venv.sh --find) -m venv --clear $(zig)
	@$(zig)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r kernels/requirements.txt
	@touch $@

check: lint types imports lengths habits lock rules docs  ## all static checks: style, types, imports, lengths, habits, lock, rules, docs

lint: .venv
	@cd kernels/built && sha256sum --check --quiet SHA256SUMS
	@cd $(server_native) && sha256sum --check --quiet SHA256SUMS
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/clang-format --dry-run --Werror --style=file:kernels/native/.clang-format kernels/native/* $(server_native)/*.cc

types: .venv
	@.venv/bin/mypy

imports: .venv
	@.venv/bin/lint-imports --no-logo

lengths: .venv
	@$(python) tools/check_lengths.py

habits: .venv  ## what a file may say and reach, and the figures of the house
	@$(python) -m pytest -q -m sources tests/habits
	@$(python) -m tools.house

lock: .venv
	@uv=$$(sh tools/make_venv.sh --uv) && $$uv lock --check --quiet
	@$(python) -m tools.check_wheels uv.lock
	@sh tools/export_requirements.sh --check

rules: .venv  ## promtool over Prometheus' configuration, its rules and the cases of every alert
	@$(python) -m tools.check_rules

sbom: .venv  ## sbom.json: the packages of uv.lock as CycloneDX
	@$$(sh tools/make_venv.sh --uv) export --quiet --frozen --no-dev --all-extras --format cyclonedx1.5 --output-file sbom.json >/dev/null

requirements:  ## writes the list of a node's packages from uv.lock
	@sh tools/export_requirements.sh

format: .venv  ## rewrites the sources as `make check` requires
	@.venv/bin/ruff check --fix --quiet . || true
	@.venv/bin/ruff format .
	@.venv/bin/clang-format -i --style=file:kernels/native/.clang-format kernels/native/* $(server_native)/*.cc

docs: .venv  ## docs/_build/html/docs/index.html, warnings are errors
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
