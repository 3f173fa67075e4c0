# Everything a contributor does. Each target does its own set-up: `make test` works on a machine with only Python 3.11+.
PYTHON ?= python3
BIN := .venv/bin
PACKAGES := $(patsubst %/pyproject.toml,%,$(wildcard core/pyproject.toml plugins/*/pyproject.toml connectors/*/pyproject.toml contrib/*/pyproject.toml))
TESTS := $(wildcard $(addsuffix /tests,$(PACKAGES)) tests)

# The contracts of the connectors, on real servers, and a Spark cluster: the part of test-servers that every change runs.
SERVER_CONTRACTS := $(foreach name,kafka rocketmq mysql postgres elasticsearch,$(wildcard connectors/$(name)/tests/*contract*.py)) contrib/redis/tests/test_redis_contracts.py contrib/mqtt/tests/test_mqtt_contracts.py tests/cluster
SERVER_CHOICE := (ConfluentSource or RedisSource or RedisStreamSink or MqttSink or ConfluentTransactionalSink or RocketMQSource or IdempotentSink or Upsert or Scan or RowIds or Shards or cluster_gives) and not outage

# What `make unit` runs: these tests of all folders. Those of Spark run in one process beside the others: a Spark that has run many jobs
# needs a third less of the processor for each than four that have run few. tests.file_parts: a process reads only the files that it runs,
# since reading all of them takes as long as running a twentieth of them.
MARKS_OF_UNIT := not slow and not servers
UNIT_TESTS ?= $(TESTS)

# Test processes: more than cores, since tests of kills, servers and disks wait half of their time; up to 4, as with more of them they
# wait for each other. Tests of workers and of savepoints want memory: two more than cores with 12 GB, else one more.
WORKERS := $(shell cores=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); pages=$$(getconf _PHYS_PAGES 2>/dev/null || echo 0); \
  more=$$((1 + (pages / 262144 * $$(getconf PAGESIZE) / 4096 >= 11))); if [ $$((cores + more)) -gt 4 ]; then echo 4; else echo $$((cores + more)); fi)

# Tests make files durable some hundred thousand times, and would wait for the disk half of their time. Where memory has room for their
# files (they are removed as soon as a test has passed), these are there.
MEMORY_FILES := $(shell if [ -z "$$TMPDIR" ] && [ -w /dev/shm ] && [ "$$(df -Pk /dev/shm | awk 'NR == 2 { print $$4 }')" -ge 6000000 ] \
  && [ "$$(awk '/^MemAvailable/ { print $$2 }' /proc/meminfo)" -ge 9000000 ]; then echo /dev/shm/hr-$$(pwd | cksum | cut -d ' ' -f 1); fi)

# Images of containers often set it. Tests start hundreds of processes, and each would compile every module anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup clean demo docs wheels test lint types unit plain-unit spark-unit whole-unit contracts spark-classes
.PHONY: test-servers test-python test-lowest bench bench-peers bench-spark bench-sql nightly chaos damage soak
.PHONY: simulate simulate-mutations fuzz fuzz-servers fuzz-flink fuzz-records fuzz-guided fuzz-expressions flink-programs published-sql sigma

setup: .venv/ready  ## .venv with every package of the workspace

# uv installs what an index has with half of the work that pip needs, and builds the packages side by side. The program gives it the
# settings of pip; where these have something that uv does not know, pip installs.
.venv/ready: constraints.txt requirements-dev.txt requirements-docs.txt $(addsuffix /pyproject.toml,$(PACKAGES))
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m tests.packaging.set_up $(PACKAGES)
	@touch $@

demo: setup  ## the demo job on a log of 120,000 events, through Spark
	$(BIN)/python demo/run.py

# What the version menu of the site calls it.
VERSION ?=
docs: setup  ## the site of docs/, in site/
	$(BIN)/python -m website.build $(VERSION)

test: setup lint  ## what CI runs
	$(MAKE) -j 4 plain-unit spark-unit contracts types
	@$(if $(MEMORY_FILES),rm -rf $(MEMORY_FILES))

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup  ## mypy over packages and tests
	$(BIN)/python -m tests.type_checking

# One thread of polars in each: there are more processes than cores, and frames of tests are small.
plain-unit spark-unit: export POLARS_MAX_THREADS := 1
# Generated tests try a tenth of their examples in what every change runs, and all of them in `make nightly`.
plain-unit spark-unit: export HEADRACE_TEST_EFFORT ?= 0.1
plain-unit spark-unit: export TMPDIR := $(or $(MEMORY_FILES),$(TMPDIR))
unit:  ## what needs no server
	$(MAKE) -j 2 spark-unit plain-unit

# NOTED=--note-seconds writes down which files take long, by which the files are divided among the processes.
NOTED ?=
plain-unit: setup  ## of `make unit`, what needs no Spark
	@$(if $(MEMORY_FILES),mkdir -p $(MEMORY_FILES))
	$(BIN)/python -m pytest -m "$(MARKS_OF_UNIT) and not spark" -p tests.file_parts -n $(WORKERS) --durations=25 $(NOTED) $(UNIT_TESTS)

spark-unit: setup spark-classes  ## of `make unit`, what needs Spark
	@$(if $(MEMORY_FILES),mkdir -p $(MEMORY_FILES))
	$(BIN)/python -m pytest -m "$(MARKS_OF_UNIT) and spark" -p tests.file_parts --durations=10 $(UNIT_TESTS)

whole-unit:  ## `make unit` with all examples of generated tests
	$(MAKE) unit HEADRACE_TEST_EFFORT=1

# Written once, before the tests, instead of by every process of the tests that starts a Spark.
spark-classes: setup  ## the archive of classes with which Spark's Java starts in a third of the time
	$(BIN)/python -m tests.spark_classes

# auto: a server is left out, with the reason, where the machine has no program or no way to fetch it. One that does not start fails
# the tests. HEADRACE_TEST_SERVERS=required: leaves out none.
contracts: export HEADRACE_TEST_SERVERS := $(or $(HEADRACE_TEST_SERVERS),auto)
contracts: export TMPDIR := $(or $(MEMORY_FILES),$(TMPDIR))
contracts: setup spark-classes  ## connectors against real servers, which it starts; what a machine cannot provide is skipped with the reason
	@$(if $(MEMORY_FILES),mkdir -p $(MEMORY_FILES))
	$(BIN)/python -m pytest -m "not slow and servers and not spark" -n 2 --dist loadfile \
	  -k "$(SERVER_CHOICE)" $(SERVER_CONTRACTS)

test-servers: setup  ## what runs against real Kafka, RocketMQ, MariaDB, Elasticsearch and a Spark cluster; starts them
	$(BIN)/python -m pytest -m "not slow and servers" -n 2 --dist loadfile $(TESTS)

bench: setup  ## the figures of docs/benchmarks*.md (takes long; keep the machine quiet)
	$(BIN)/python -m benchmarks.run
	$(BIN)/python -m benchmarks.start_up
	$(BIN)/python -m benchmarks.rules
	$(BIN)/python -m benchmarks.dimension
	$(BIN)/python -m benchmarks.keyed_state
	$(BIN)/python -m benchmarks.grok
	$(BIN)/python -m benchmarks.avro
	$(BIN)/python -m benchmarks.protobuf

bench-peers: setup  ## other stream processors on the same jobs: docs/benchmarks-peers.md; installs them
	$(BIN)/python -m benchmarks.peers.run --results demo-output/peers.jsonl
	$(BIN)/python -m benchmarks.peers.page demo-output/peers.jsonl

bench-spark: setup  ## what Spark takes to start and for little work, beside the goals: docs/benchmarks-spark.md (two minutes; keep the machine quiet)
	$(BIN)/python -m benchmarks.spark_goals

bench-sql: setup  ## the Nexmark queries beside PyFlink, which it installs: docs/benchmarks-sql.md
	$(BIN)/python -m benchmarks.nexmark --results demo-output/nexmark.jsonl
	rm -rf demo-output/first-row
	$(BIN)/python -m benchmarks.first_row sql $(CURDIR)/demo-output/first-row >> demo-output/nexmark.jsonl
	$(BIN)/python -m benchmarks.nexmark_page demo-output/nexmark.jsonl

# Seeds as those of `make fuzz`. `python -m tests.simulation replay SEED` prints what happens.
simulate: setup  ## jobs in a simulated world, with faults; a seed that breaks a rule is printed, and replays exactly
	$(BIN)/python -m tests.simulation $(SEEDS) --failures 10
	$(BIN)/python -m tests.simulation $(SEEDS) --failures 10 --instances
	$(BIN)/python -m tests.simulation $(SEEDS) --failures 10 --plans
	$(BIN)/python -m tests.simulation $(SEEDS) --failures 10 --connectors
	$(BIN)/python -m tests.simulation $(SEEDS) --failures 10 --workers
	$(BIN)/python -m tests.simulation $(SEEDS) --failures 10 --rot
	$(BIN)/python -m tests.simulation $(SEEDS) --failures 10 --changes
	$(BIN)/python -m tests.simulation $(SEEDS) --failures 10 --buffers
	$(BIN)/python -m tests.simulation $(SEEDS) --failures 10 --leases

simulate-mutations: setup  ## after how many seeds each planted bug is found
	$(BIN)/python -m tests.simulation mutations

chaos: setup  ## every slow test: faults, kills, long histories; starts servers and Spark, takes hours
	$(BIN)/python -m pytest -m slow $(TESTS)

# Interpreters of `make test-python`; they must be on this machine.
PYTHONS ?= 3.12 3.13
test-python: setup  ## the tests under other Pythons
	for version in $(PYTHONS); do $(BIN)/python -m tests.packaging.other_environments --python $$version || exit 1; done

test-lowest: setup  ## the tests with the lowest versions that the packages say they work with
	$(BIN)/python -m tests.packaging.other_environments --lowest

wheels: setup  ## a wheel of every distribution, in dist/; installs all of them in an empty environment
	$(BIN)/python -m tests.packaging.wheels dist
	$(BIN)/python -m pytest -m "slow or not slow" tests/packaging/test_installing.py

fuzz-records: setup  ## 500,000 hostile bodies of each format, in batches and one by one
	HEADRACE_FUZZ_RECORDS=500000 $(BIN)/python -m pytest --timeout 0 tests/fuzz/test_hostile_bodies.py

# SOAK has further options (python -m tests.soak.run --help).
HOURS ?= 0.5
SOAK ?=
soak: setup  ## hours on real servers: jobs on light and Spark under kills, pauses, restarts; a model checks each row as it appears
	$(BIN)/python -m tests.soak.run --hours $(HOURS) $(SOAK)

# Of each target; TARGETS=name … leaves out the others, KEEP=--keep keeps what reaches new code in tests/fuzz/guided/corpus.
SECONDS_EACH ?= 300
TARGETS ?=
KEEP ?=
fuzz-guided: setup  ## coverage-guided fuzzing of formats, texts, stored state and frames; installs atheris
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt atheris
	$(BIN)/python -m tests.fuzz.guided.run --seconds $(SECONDS_EACH) $(KEEP) $(TARGETS)

# Seeds of `make fuzz`: FROM-TO, a count, or =SEED; FUZZ has further options (tests/differential/README.md).
SEEDS ?= 2000
BACKEND ?= light
fuzz: setup  ## jobs of many seeds, compared with DuckDB and with themselves; BACKEND=spark: there, in one session
	$(BIN)/python -m tests.differential.fuzz $(SEEDS) --backend $(BACKEND) $(FUZZ)

# Servers: INTO=mysql,kafka leaves out the others.
INTO ?= mysql,kafka,rocketmq,elasticsearch
fuzz-servers: setup  ## generated jobs into MySQL, Kafka, RocketMQ and Elasticsearch, which it starts, read back by other readers
	$(BIN)/python -m tests.differential.servers.fuzz $(SEEDS) --into $(INTO) $(FUZZ)

fuzz-flink: setup  ## generated streaming queries beside PyFlink, which it installs
	$(BIN)/python -m tests.differential.streams.flink $(SEEDS)

# Names of programs as a regular expression; FLAGS=--details shows texts and rows of what does not pass.
PROGRAMS ?=
PAGE ?= demo-output/flink-programs.md
flink-programs: setup  ## the programs that Flink publishes, read from the folder that HEADRACE_FLINK_CHECKOUT names: tests/published/README.md
	$(BIN)/python -m tests.published.flink '$(PROGRAMS)' --backend $(BACKEND) --page $(PAGE) $(FLAGS)

published-sql: setup  ## the published Nexmark, pattern and rsqldb texts on both backends; folders: HEADRACE_NEXMARK and three others (tests/published/README.md)
	$(BIN)/python -m pytest -m slow -ra tests/sql/test_nexmark.py tests/sql/test_nexmark_workers.py tests/sql/test_rsqldb.py

sigma: setup  ## the rules that SigmaHQ publishes, read from the folder that HEADRACE_SIGMA names: docs/sigma-results.md
	$(BIN)/python -m tests.published.sigma

# One after the other, whatever comes of those before. What needs a folder that is not named is left out, with the reason.
NIGHTLY := whole-unit test-servers published-sql $(if $(HEADRACE_FLINK_CHECKOUT),flink-programs) $(if $(HEADRACE_SIGMA),sigma) fuzz fuzz-expressions fuzz-records fuzz-guided fuzz-servers simulate simulate-mutations soak chaos test-lowest
NIGHTLY_SKIPPED := $(if $(HEADRACE_FLINK_CHECKOUT),,flink-programs=HEADRACE_FLINK_CHECKOUT is not set;)$(if $(HEADRACE_SIGMA),,sigma=HEADRACE_SIGMA is not set;)
nightly: setup  ## what a nightly run calls; takes many hours; demo-output/nightly.md has a page of the results
	HEADRACE_NIGHTLY_SKIPPED='$(NIGHTLY_SKIPPED)' $(BIN)/python -m tests.nightly $(NIGHTLY)

# FROM:TO, 12 expressions a seed.
EXPRESSION_SEEDS ?= 0:2000
fuzz-expressions: setup  ## random expressions over hostile rows, against plain Python, DuckDB and themselves
	$(BIN)/python -m tests.differential.expression_family --seeds $(EXPRESSION_SEEDS)

# Rounds of each backend, from which on (so that a run can be split over processes), and other rounds by another seed. Of Spark's so many
# are starts as a whole.
DAMAGE ?= 50000
DAMAGE_FROM ?= 0
DAMAGE_SEED ?= 1
DAMAGE_STARTS ?= 100
DAMAGE_RUN = DAMAGE=$(DAMAGE) DAMAGE_FROM=$(DAMAGE_FROM) DAMAGE_SEED=$(DAMAGE_SEED) DAMAGE_STARTS=$(DAMAGE_STARTS) $(BIN)/python -m pytest -q -s -n 0 -o timeout=0
damage: setup  ## 100,000 flips, cuts, swaps and removals over every file of the checkpoints of many jobs on both backends; takes long
	$(DAMAGE_RUN) tests/conformance/test_damaged_state.py
	$(DAMAGE_RUN) tests/conformance/test_damaged_spark.py

clean:
	rm -rf .venv demo-output spark-warehouse .pytest_cache .mypy_cache .ruff_cache .hypothesis
