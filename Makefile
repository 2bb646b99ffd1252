PYTHON ?= python3
RUN := .venv/bin/python
export PYTHON

.DEFAULT_GOAL := help
.PHONY: help install check lint test demo format lock clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: ## Everything that tests and the demo need: .venv, Spark's connector, a Kafka broker
	@dev/install.sh

lint: install
	$(RUN) -m ruff format --check
	$(RUN) -m ruff check
	$(RUN) -m mypy
	.venv/bin/lint-imports

check: lint ## Linters, types, import contracts and the tests that start nothing
	$(RUN) -m pytest tests/unit tests/contract

# Three at a time, each with a broker of its own: most of a test's time is waiting. The long ones come first.
test: lint ## What check does, and every test
	$(RUN) -m pytest --numprocesses 3 --dist worksteal tests/e2e tests/spark tests/kafka tests/contract tests/unit

demo: install ## Run dev/demo.py against a Kafka broker on this machine
	PYTHONPATH=dev $(RUN) -m demo

format: install ## Format, and fix what the linter can fix
	$(RUN) -m ruff format
	$(RUN) -m ruff check --fix

lock: ## Resolve every dependency afresh into requirements.lock
	@dev/install.sh lock

clean: ## Remove .venv and what tools left behind; the Kafka broker stays in the user's cache
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
