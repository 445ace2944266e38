# Every target creates what it needs: a virtualenv in .venv with this package and its tools.
# Needed beforehand: make and Python 3.10 or newer. Java and Maven are only for the interop tests.

.DEFAULT_GOAL := help
SHELL := /bin/bash

# The first interpreter that is new enough; `make PYTHON=/path/to/python test` chooses another.
ifndef PYTHON
PYTHON := $(shell bash tools/find_python.sh)
endif

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DOCS_VENV := build/docs-venv
PACKAGE_VENV := build/package-venv
PYTEST := $(BIN)/python -m pytest
NATIVE_SOURCES := $(wildcard broker_core/codec/native/*.c broker_core/codec/native/include/*.h broker_core/runtime/*.c pyspark_rmq/payloads/native/*.c pyspark_rmq/payloads/native/*.h)
# One process more than cores, since many tests wait for clocks and other processes; the tests of a
# file stay together and share what they start. Files that take long begin (tests/heavy_files.py),
# which xdist's own order by the number of tests would undo.
WORKERS := $(shell echo $$(( $$(nproc 2>/dev/null || echo 2) + 1 )))
PARALLEL := -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=25
# Fast tests wait more than the others do.
FAST := -n $(shell echo $$(( 2 * $$(nproc 2>/dev/null || echo 2) ))) --dist loadfile --no-loadscope-reorder --durations=25
SLOW := crash or simulation or spark or interop or long or root

# `make test-crash LONG=1` runs the nightly size.
ifdef LONG
export RMQ_CRASH_LONG := $(LONG)
endif

# `make test-interop STALE=1` runs what docs/compatibility.md has no valid result of.
ifdef STALE
export RMQ_INTEROP_STALE := $(STALE)
endif

# A run starts hundreds of Python processes. Each would compile all of its modules again where the
# environment forbids to keep them.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo demo-picture test check fast-tests lint types spark-classes peers rewritten-tests format bench bench-broker bench-replication bench-spark-source bench-spark-sink bench-payloads bench-report bench-long docs dist wheels check-package check-readme audit test-crash test-interop test-spark-versions examples clean

help: ## Show the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-19s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(INSTALLED) ## Broker, Spark source and sink end to end, with kills on the way
	@bash tools/ensure_java.sh jre
	@$(BIN)/python examples/pipeline_demo.py

demo-picture: $(INSTALLED) ## Run the demo and draw what it prints, for the README: docs/demo.svg
	@bash tools/ensure_java.sh jre
	@$(BIN)/python tools/record_demo.py

test: $(INSTALLED) ## Lint, types and every test (fast, crash, Spark, interop)
	@bash tools/ensure_java.sh jdk maven || true
	@bash tools/ensure_go_node.sh go node || true
	@$(MAKE) --no-print-directory --jobs=4 peers lint types spark-classes rewritten-tests
	$(PYTEST) $(PARALLEL)

# What tests would otherwise do or fetch, several times or on their account.
peers: $(INSTALLED)
	@$(BIN)/python -m tests.interop.fetched_peers

spark-classes: $(INSTALLED)
	@$(BIN)/python -m tests.spark.class_archive

# Each process of a parallel run imports all tests at the same time as the others. Once they are in
# the cache that takes 4 s each instead of 15. What cannot be imported fails in the run itself.
rewritten-tests: $(INSTALLED)
	@$(PYTEST) --collect-only -q > /dev/null 2>&1 || true

# The type checker uses one core, beside the tests.
check: lint ## Lint, types and the fast tests
	@$(MAKE) --no-print-directory --jobs=2 types fast-tests

fast-tests: $(INSTALLED)
	$(PYTEST) $(FAST) -m "not ($(SLOW))"

lint: $(INSTALLED) ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED) ## Check types (mypy, strict)
	$(BIN)/mypy

format: $(INSTALLED) ## Rewrite the sources in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(INSTALLED) ## Measure the store; ARGS=--quick takes minutes
	@$(BIN)/python benchmarks/store.py $(ARGS)

bench-broker: $(INSTALLED) ## Measure the broker beside Apache's; ARGS=--quick takes minutes
	@$(BIN)/python benchmarks/broker.py $(ARGS)

bench-replication: $(INSTALLED) ## Measure master and slave beside Apache's; ARGS=--quick takes minutes
	@bash tools/ensure_java.sh jdk maven || true
	@$(BIN)/python benchmarks/replication.py $(ARGS)

test-crash: $(INSTALLED) ## Crash, error and damage tests with their table; LONG=1 for the nightly size
	$(PYTEST) -m "crash or root"

test-interop: export RMQ_INTEROP_ALL := 1
test-interop: $(INSTALLED) ## Real clients, brokers and stores of Apache RocketMQ, the complete matrix (about half an hour)
	@bash tools/ensure_java.sh jdk maven || true
	@bash tools/ensure_go_node.sh go node || true
	@$(BIN)/python -m tests.interop.fetched_peers
	$(PYTEST) -m interop -n $(WORKERS) --dist loadscope

test-spark-versions: export RMQ_INTEROP_ALL := 1
test-spark-versions: $(INSTALLED) ## Source and sink on Spark 4.0, 4.1 and 4.2, and beside Kafka; each fetched once
	@bash tools/ensure_java.sh jre
	$(PYTEST) tests/spark/test_versions.py tests/spark/test_kafka_job.py

bench-spark-source: $(INSTALLED) ## Measure the Spark source beside Kafka's; ARGS=--quick takes fewer rows and rounds
	@bash tools/ensure_java.sh jdk maven || true
	@$(BIN)/python benchmarks/spark_source.py $(ARGS)

bench-spark-sink: $(INSTALLED) ## Measure the Spark sink beside Kafka's; ARGS=--quick takes fewer rows and rounds
	@bash tools/ensure_java.sh jdk maven || true
	@$(BIN)/python benchmarks/spark_sink.py $(ARGS)

bench-payloads: $(INSTALLED) ## Measure typed payloads beside from_json and its like; ARGS=--quick takes fewer rows and rounds
	@bash tools/ensure_java.sh jdk maven || true
	@$(BIN)/python benchmarks/payloads.py $(ARGS)

bench-report: $(INSTALLED) ## Run all benchmarks and write docs/benchmarks.md; hours, ARGS=--quick takes one
	@bash tools/ensure_java.sh jdk maven || true
	@$(BIN)/python benchmarks/report.py $(ARGS)

bench-long: $(INSTALLED) ## Longer reads of the source, and spark_conf(): writes docs/benchmarks-long.md; half an hour
	@bash tools/ensure_java.sh jdk maven || true
	@$(BIN)/python benchmarks/report.py --results build/benchmarks-long --output docs/benchmarks-long.md \
	    --only "Spark source, long reads of 100 B" "Spark source, long reads of 1 KiB" "Spark source, spark_conf()"

# In a virtualenv of its own: what it needs is no part of requirements.lock.
docs: $(DOCS_VENV)/.installed ## Build the documentation as a site in build/site; broken links and anchors fail
	@NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --strict

$(DOCS_VENV)/.installed: setup.py
	@$(PYTHON) -m venv $(DOCS_VENV)
	@RMQ_NATIVE=no $(DOCS_VENV)/bin/pip install --quiet --disable-pip-version-check '.[docs]'
	@touch $@

dist: $(PACKAGE_VENV)/.installed ## Build the sdist and a wheel for this machine in dist/
	@rm -rf dist
	@RMQ_NATIVE=require $(PACKAGE_VENV)/bin/python -m build --quiet .

# On Linux in the containers of manylinux; needs Docker or Podman.
wheels: $(PACKAGE_VENV)/.installed ## Build the wheels that are published, with cibuildwheel
	@$(PACKAGE_VENV)/bin/cibuildwheel --output-dir dist

check-package: dist ## Try the wheel in new virtualenvs, alone and beside JupyterLab, Delta Lake and Iceberg
	@$(PYTHON) tools/check_wheel.py dist/*.whl
	@$(PYTHON) tools/check_beside.py dist/*.whl

check-readme: dist ## Paste the README's blocks, twice, in a new virtualenv with the wheel
	@bash tools/ensure_java.sh jre
	@$(PYTHON) tools/try_readme.py dist/*.whl

$(PACKAGE_VENV)/.installed: setup.py
	@$(PYTHON) -m venv $(PACKAGE_VENV)
	@$(PACKAGE_VENV)/bin/pip install --quiet --disable-pip-version-check build cibuildwheel
	@touch $@

audit: $(INSTALLED) ## Look the pinned dependencies up among known vulnerabilities; needs the network
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check pip-audit
	$(BIN)/pip-audit --strict --disable-pip --require-hashes -r requirements.lock

examples: $(INSTALLED) ## Run every example; each exits 0 or stops the run
	@set -e; for example in examples/*.py; do echo "== $$example"; $(BIN)/python "$$example"; done

clean: ## Remove the virtualenv, caches and build output
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -f broker_core/codec/native/*.so broker_core/runtime/*.so pyspark_rmq/payloads/native/*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Installs once; again when the package's metadata, settings, pins or native sources change.
$(INSTALLED): setup.py pyproject.toml requirements.lock tools/make_venv.sh $(NATIVE_SOURCES)
	@bash tools/make_venv.sh "$(PYTHON)" $(VENV)
	@touch $@
