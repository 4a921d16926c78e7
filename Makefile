# Every command of the project. `make help` lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON_ := .venv/bin/python
ARGS ?=

.PHONY: help setup demo test unit integration faults soak nightly tour fuzz properties mutants matrix audit brokers images bench-reporter bench-aggregator limits spark-versions lint format docs lock clean

help: ## list all commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: ## environment and jars; done once, then found in seconds
	@scripts/setup --jars

demo: setup ## the main job on a million real events: make demo ARGS="--quick --headless"
	@exec .venv/bin/tallystream demo $(ARGS)

test: setup ## everything: linters, types, unit, integration and browser tests
	@exec scripts/test $(ARGS)

unit: setup ## the unit tests, on all processors, in two to five minutes
	@exec $(PYTHON_) -m pytest -n auto tests/unit tests/contract -m "not integration and not browser" $(ARGS)

integration: setup ## the tests on real servers: make integration ARGS="-k kill"
	@exec scripts/test --only-servers $(ARGS)

bench-reporter: setup ## the reporter's speed beside its peers, written to docs/reporter-benchmarks.md
	@exec $(PYTHON_) benchmarks/reporter/run.py $(ARGS)

bench-aggregator: setup ## the aggregator beside Kafka Streams (45 minutes): make bench-aggregator ARGS="--only backlog-2m"
	@exec $(PYTHON_) -m benchmarks.aggregator $(ARGS)

limits: setup ## what hostile records cost: time, output, state and memory of 240 inputs (two minutes): make limits ARGS="--all --memory 1024"
	@exec $(PYTHON_) -m benchmarks.limits $(ARGS)

faults: setup ## the fault suite in full, two hours: make faults ARGS="-k disk"
	@exec scripts/faults $(ARGS)

soak: setup ## a system for hours under churn, restarts and an outage; nothing that it takes grows: make soak HOURS=8, or MINUTES=15 ARGS=--spark
	@PYTHONPATH=tests exec $(PYTHON_) -m support.soak $(if $(MINUTES),--minutes $(MINUTES),--hours $(or $(HOURS),8)) $(ARGS)

nightly: setup ## `make test` ten times in a row, up to the first failure (three hours): make nightly ARGS=3
	@exec scripts/nightly $(ARGS)

tour: setup ## a new user's first hour on one system: every number that is shown agrees with a journal (five minutes)
	@TALLYSTREAM_TOUR=yes exec $(PYTHON_) -m pytest tests/integration/test_tour.py $(ARGS)

fuzz: setup ## hostile bytes for everything that reads some from outside, a share of the time for each: make fuzz MINUTES=60
	@PYTHONPATH=tests exec $(PYTHON_) -m support.fuzzing --minutes $(or $(MINUTES),60) $(ARGS)

properties: setup ## the property tests with 40 times as many examples (half an hour)
	@TALLYSTREAM_FUZZ_FACTOR=$${TALLYSTREAM_FUZZ_FACTOR:-20} exec $(PYTHON_) -m pytest -n auto -m hypothesis tests/unit tests/contract $(ARGS)

mutants: setup ## what the tests do not notice: 100 small errors in each package (an hour): make mutants ARGS="--package table --sample 200 --seed 2"
	@TALLYSTREAM_FUZZ_FACTOR=$${TALLYSTREAM_FUZZ_FACTOR:-0.3} exec $(PYTHON_) -m benchmarks.mutants $(ARGS)

matrix: setup ## the unit tests on each version of Python that is found
	@exec scripts/matrix $(ARGS)

audit: setup ## the packages, licences and known vulnerabilities of what each distribution and image installs (six minutes)
	@exec scripts/audit

brokers: setup ## the loop's tests on a broker of Kafka 3.9, whose jars are downloaded once (ten minutes)
	@TALLYSTREAM_TESTS_BROKER=broker-3.9 exec $(PYTHON_) -m pytest tests/integration/test_stream_kafka.py tests/integration/test_aggregate_faults.py::test_a_table_of_shards_goes_on_exactly $(ARGS)

images: setup ## build the images of compose/images, print their sizes, and run the services of compose.yaml in them (fifteen minutes)
	@scripts/images $(ARGS)

spark-versions: setup ## a monitored Spark job on PySpark 4.0 to 4.3, which are downloaded once
	@exec $(PYTHON_) -m pytest tests/spark_versions $(ARGS)

lint: setup ## ruff, its formatter's check, the contracts of imports, and mypy strict
	@exec scripts/lint

format: setup ## let ruff format and fix what it can
	@.venv/bin/ruff check -q --fix . ; .venv/bin/ruff format -q .

docs: ## the documentation as a site, with the API reference: .build/docs/index.html
	@scripts/setup && exec scripts/docs

lock: ## make requirements.lock again from the pyproject files
	@scripts/lock

clean: ## remove the environment and what tests and demo left here (the cache of jars stays)
	@# A killed `make images` leaves file systems of containers mounted.
	@awk -v at="$(CURDIR)/.build/" 'index($$2, at) == 1 {print $$2}' /proc/mounts 2>/dev/null | sort -r | xargs -r umount
	@rm -rf .venv .build .tallystream .hypothesis .mypy_cache .ruff_cache
