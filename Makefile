# Every target does its own set-up. `make help` lists them.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Each process that a test or a benchmark starts would compile our modules again.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
KEEP ?=
CLUSTER ?=
ONLY ?=
ARGS ?=
# What depends on the version of TorchX: reading AppDefs, parity, the adapter, its entry points. And the HTTP transport:
# TorchX 0.7.0 comes with urllib3 1.26, the nightly with 2.
NIGHTLY_TESTS := tests/parity tests/unit/torchx_adapter tests/unit/inputs/test_appdef.py tests/unit/planning/test_macros.py tests/unit/runs/test_eject.py tests/unit/stacks/test_entrypoints.py tests/unit/stacks/test_nightly_plugins.py tests/components/test_planned_once.py tests/unit/kube/test_http_client.py tests/unit/kube/test_connections.py tests/unit/kube/test_proxies.py tests/unit/kube/test_log_stream.py tests/unit/kube/test_kubernetes_cluster.py tests/unit/images/test_registry.py tests/contract/registry
# How many cases the long runs try; each variable is read by the test of its name.
EXTENDED := TORCHX_PULUMI_IGNORE_CASES=20000 TORCHX_PULUMI_LAYER_CASES=300 TORCHX_PULUMI_INTERLEAVINGS=200 TORCHX_PULUMI_KILLS=100 TORCHX_PULUMI_LAUNCHES=32 TORCHX_PULUMI_LAUNCHES_IN_A_ROW=200 TORCHX_PULUMI_STATUS_WRITES=500 TORCHX_PULUMI_REPLICAS=300 TORCHX_PULUMI_CONTROLLER_APPS=300 TORCHX_PULUMI_CONTROLLER_KILLS=30 TORCHX_PULUMI_CANCELS=50 TORCHX_PULUMI_CONTROLLER_EVENTS=10000 TORCHX_PULUMI_CONTROLLER_LINE_MB=100 TORCHX_PULUMI_PUSH_KILLS=200 TORCHX_PULUMI_PUSH_CUTS=100 TORCHX_PULUMI_LARGE_IMAGE_GB=6

# More workers than the cores of small machines: many tests wait for a thread or a process. None is left alone in the end.
SPREAD := -n 3 --dist worksteal
# Tests make and remove thousands of folders: in memory, on Linux with 4 GB for that where programs may be run. Those that
# pass leave none there.
IN_MEMORY := $(shell ! grep -qs ' /dev/shm .*noexec' /proc/mounts && df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 4000000 {print $$6}')
VENV := .venv/bin
SYNCED := .venv/.synced
NIGHTLY := .venv-nightly/.synced
DOCS := .venv-docs/.synced
RELEASE := .venv-release/.synced

.PHONY: help sync check test golden e2e e2e-extended demo bench matrix schema docs wheel release-check cluster-up cluster-status cluster-down clean

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

$(SYNCED): pyproject.toml fleet/pyproject.toml requirements/dev.txt tools/sync.py
	@echo "sync: Python packages into .venv (TorchX 0.7.0)"
	@$(PYTHON) tools/sync.py .venv requirements/dev.txt
	@touch $@

$(NIGHTLY): pyproject.toml fleet/pyproject.toml requirements/nightly.txt tools/sync.py
	@echo "sync: Python packages into .venv-nightly (TorchX nightly)"
	@$(PYTHON) tools/sync.py .venv-nightly requirements/nightly.txt
	@touch $@

# Zensical needs Python 3.11 or newer.
$(DOCS) $(RELEASE): .venv-%/.synced: requirements/%.txt | $(SYNCED)
	@echo "$*: Python packages into .venv-$*"
	@$(VENV)/uv venv --quiet --allow-existing --python $(PYTHON) .venv-$*
	@$(VENV)/uv pip sync --quiet --python .venv-$*/bin/python requirements/$*.txt
	@touch $@

sync: $(SYNCED) $(NIGHTLY) ## Install the Python packages, for both TorchX versions

check: $(SYNCED) ## Format, lint, types, arrows
	@$(VENV)/ruff format --no-cache --check .
	@$(VENV)/ruff check --no-cache .
	@$(VENV)/mypy
	@$(VENV)/lint-imports --no-cache

test: export TMPDIR := $(or $(IN_MEMORY),$(TMPDIR),/tmp)
test: $(SYNCED) $(NIGHTLY) ## All that needs Python only; what runs with the nightly too, beside the rest
	@said=$$(mktemp); trap 'kill $$! 2>/dev/null || true; rm -f $$said' EXIT; \
	.venv-nightly/bin/python -m pytest -q $(NIGHTLY_TESTS) $(ARGS) > $$said 2>&1 & \
	echo "test: with TorchX 0.7.0"; code=0; nightly=0; \
	$(VENV)/python -m pytest -q $(SPREAD) tests --ignore tests/e2e $(ARGS) || code=$$?; \
	wait $$! || nightly=$$?; \
	echo "test: with TorchX nightly"; cat $$said; \
	exit $$((code ? code : nightly))

golden: $(SYNCED) ## Write the golden files again; read the diff
	@TORCHX_PULUMI_UPDATE_GOLDEN=1 $(VENV)/python -m pytest -q tests/golden

e2e: $(SYNCED) $(NIGHTLY) ## All that needs the real engine, cluster and node
	@$(VENV)/python -m tools.e2e $(ARGS)

e2e-extended: $(SYNCED) $(NIGHTLY) ## The long and rare real tests, and many cases of what e2e does briefly; an hour or two
	@$(if $(ARGS),true,TORCHX_PULUMI_RECORDINGS=all TORCHX_PULUMI_IDENTITIES=20000 TORCHX_PULUMI_CASES=all TORCHX_PULUMI_EXAMPLES=2000 TORCHX_PULUMI_ORDERS=2000 $(VENV)/python -m pytest -q -n 2 tests/recordings tests/unit tests/components tests/project)
	@$(EXTENDED) $(VENV)/python -m tools.e2e --extended $(ARGS)
	@$(if $(ARGS),,$(VENV)/python -m tools.e2e --nightly --extended tests/e2e/test_torchx_schedulers.py tests/e2e/test_handover.py -k torchrun)

demo: $(SYNCED) ## A real PyTorch job on a local cluster (KEEP=1 leaves it, CLUSTER=current uses yours)
	@$(VENV)/python -m tools.demo $(if $(KEEP),--keep) $(if $(CLUSTER),--cluster $(CLUSTER)) $(ARGS)

bench: $(SYNCED) ## Ratios against the alternative (ONLY=render)
	@$(VENV)/python -m bench $(ONLY)

matrix: $(SYNCED) ## The table of docs/tested-versions.md, version by version; by hand, hours (ARGS="Python urllib3")
	@$(VENV)/python -m tools.matrix $(ARGS)

schema: $(SYNCED) ## Write what is made of code again: components, schemas, tables of options and outputs
	@$(VENV)/python -m tools.components
	@$(VENV)/python -m tools.package_schema > components/.schema.json
	@mv components/.schema.json components/schema.json
	@$(VENV)/python -m tools.outputs_page > docs/.outputs.md
	@mv docs/.outputs.md docs/outputs.md
	@$(VENV)/python -m tools.output_schema > sdk/torchx_pulumi/outputs/.schema.json
	@mv sdk/torchx_pulumi/outputs/.schema.json sdk/torchx_pulumi/outputs/schema.json

docs: $(DOCS) ## Build the documentation site into build/site
	@$(VENV)/python -m tools.site
	@.venv-docs/bin/zensical build --clean --strict

wheel: $(SYNCED) ## Build both wheels into dist/
	@$(VENV)/uv build --wheel --out-dir dist .
	@$(VENV)/uv build --wheel --out-dir dist fleet

release-check: $(SYNCED) $(RELEASE) ## Build what a release publishes into dist/, and say what is missing
	@$(VENV)/python -m tools.release

cluster-up: $(SYNCED) ## Start the local cluster
	@$(VENV)/python -m tools.local_cluster up $(ARGS)

cluster-status: $(SYNCED) ## Say what runs in the local cluster
	@$(VENV)/python -m tools.local_cluster status $(ARGS)

cluster-down: $(SYNCED) ## Stop the local cluster and remove all of it
	@$(VENV)/python -m tools.local_cluster down $(ARGS)

clean: ## Remove what was built in this checkout
	@rm -rf .venv .venv-nightly .venv-docs .venv-release .cache build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
