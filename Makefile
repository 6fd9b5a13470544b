# Everything a newcomer types. Needs Python 3.11 or newer, make and a package index.
PYTHON ?= python3
BIN := .venv/bin
ARGS ?=
# In place nothing is compiled by C unless it is asked for: the sources run as they stand.
INSTALL := PENSTOCK_PURE=1 $(BIN)/python -m pip install --quiet --disable-pip-version-check
# As a path, not as an import hook, so that type checkers find the packages too.
EDITABLE := --config-settings editable_mode=compat
# Pip compiles what it installs, but not these, which stay where they are. Where Python is told to
# write no bytecode they would be compiled anew at every start, which takes longer than the start.
COMPILE := $(BIN)/python -m compileall -q streams operators sources sinks penstock

.PHONY: kata demo compiled pure docs test test-system test-walks test-kafka test-rx soak check bench bench-cluster bench-limits bench-plants bench-temporal bench-workers pictures format clean

.venv/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit("penstock needs Python 3.11 or newer, this is %d.%d; try make PYTHON=python3.12" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv

# What the pages need: a fraction of what the tests do.
.venv/.usable: pyproject.toml | .venv/bin/pip
	$(INSTALL) -e '.[terminal,zstd,testing]' $(EDITABLE)
	$(COMPILE)
	touch $@

.venv/.ready: pyproject.toml | .venv/bin/pip
	$(INSTALL) -e '.[dev]' $(EDITABLE)
	$(COMPILE)
	touch .venv/.usable $@

.venv/.bench: .venv/.ready
	$(INSTALL) -e '.[dev,bench]' $(EDITABLE)
	touch $@

kata: .venv/.usable  ## the stream kata at full load for ten seconds
	$(BIN)/penstock kata $(ARGS)

demo: .venv/.ready  ## the kata under a load that changes, on a live page whose address it prints
	$(BIN)/penstock run examples/demo.py --serve 9464 --show-values --allow-control $(ARGS)

compiled: .venv/.ready pure  ## the hot path as extension modules beside its sources; again after each change of these
	PENSTOCK_PURE= $(BIN)/python setup.py --quiet build_ext --inplace

pure:  ## removes what `make compiled` has made
	find -H streams operators sources sinks -name '*.so' -delete

docs: .venv/.ready  ## the documentation site, in build/docs/site; a broken link fails
	$(BIN)/python -m docs.site $(ARGS)

# Tests write bytecode also where Python is told to write none: else each of their processes, which
# are hundreds, compiles all modules anew, and with assertions rewritten each test file.
unexport PYTHONDONTWRITEBYTECODE

# A process a core and two more; a file's tests stay together, for they share servers.
PYTEST := $(BIN)/python -m pytest -n logical --dist loadfile

test: .venv/.ready  ## unit, contract, pages, and a short run of each real server
	$(PYTEST) --ignore=tests/system $(ARGS)

test-system: .venv/.ready  ## processes that are killed and cut off, simulated services: some seeded runs of each
	@command -v chromium >/dev/null || echo "left out: the live page is not looked at, because Chromium is not installed"
	@command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ] || echo "left out: tables behind PgBouncer, because it is not installed"
	$(PYTEST) tests/system $(ARGS)

test-walks: .venv/.ready  ## random runs of unit and contract, of which `make test` makes one in ten: all
	$(PYTEST) tests/unit tests/contract -m "walks or hypothesis" --walks 1000 $(ARGS)

test-rx: .venv/.ready  ## RxPY's own tests of its operators, with demand; RXPY is a checkout of it
	$(BIN)/python -m tests.contract.rxpy "$(RXPY)" $(ARGS)

test-kafka: .venv/.ready  ## of these, the tests on real brokers of Kafka; needs Java 17 and Maven
	$(PYTEST) tests/system/test_kafka.py tests/system/test_kafka_command.py tests/system/test_kafka_faults.py tests/system/test_kafka_security.py tests/system/test_kafka_transactions.py tests/system/test_state_kafka.py tests/system/test_state_moves.py tests/system/test_changelog.py tests/system/test_shared_store.py tests/system/test_stored_sources.py --runs 5 $(ARGS)

soak: .venv/.ready  ## 10,000 random pipelines, as many graphs of streams, ten times test-walks, 50 runs of test-system; takes hours
	$(BIN)/python -m pytest tests/contract/test_random_walk.py tests/contract/test_random_streams.py tests/contract/test_bounds.py --walks 10000 -rP $(ARGS)
	$(PYTEST) tests/unit tests/contract -m "walks or hypothesis" --walks 10000 $(ARGS)
	$(PYTEST) tests/system --runs 50 $(ARGS)

check: .venv/.ready  ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pyright

bench: .venv/.bench  ## the figures, next to the peers, as ratios
	$(COMPILE) benchmarks
	$(BIN)/python -m benchmarks $(ARGS)

bench-limits: .venv/.ready  ## every limiter on every simulated plant, as a table and as plots
	$(BIN)/python -m benchmarks.limits $(ARGS)

bench-plants: .venv/.bench  ## the default limit on real servers, next to the best fixed one
	$(BIN)/python -m benchmarks.plants $(ARGS)

bench-cluster: .venv/.ready  ## pipelines and work on many machines, with real servers
	$(BIN)/python -m benchmarks.cluster $(ARGS)

bench-workers: .venv/.ready  ## worker processes, next to one process and to in_processes
	$(BIN)/python -m benchmarks.workers $(ARGS)

bench-temporal: .venv/.ready  ## monitors, workflow paths, learning and counts over time, next to their bounds
	$(BIN)/python -m benchmarks.temporal $(ARGS)

pictures: .venv/.ready  ## the pictures of the pages, drawn again: all, or ARGS="kata limits"; ARGS=--help names them
	$(BIN)/python -m tests.helpers.pictures $(ARGS)

schema: .venv/.ready  ## the schema of files of definitions, written again
	$(BIN)/penstock schema > docs/reference/definition.schema.json

format: .venv/.ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: pure
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
