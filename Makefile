# Terrace's targets. `make up` needs make and python3 and sees to the rest.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help up test test-install lint format bench demo chaos properties walls guards audit lock

# A path with spaces cannot be a make target's name, so that stamps are the scripts' business.
SETUP := sh deploy/setup.sh
PYTHON_IN := .venv/bin/python

help: ## Show this list.
	@sed -n 's/^\([a-z-]*\):.*## /  make \1  /p' Makefile | awk '{ printf "  %-18s", $$1 " " $$2; $$1 = $$2 = ""; print }'

up: ## Run Terrace on this machine until Ctrl-C; prints the address and the first login.
	@$(SETUP) run
	@exec $(PYTHON_IN) manage.py up

# Whole runs wait for half of their time: two processes, each with servers of its own, share the files.
WORKERS ?= 2

test: ## Run all tests: unit, meta, db, web, process, browser.
	@$(SETUP) dev browser
	@$(PYTHON_IN) -m pytest $(or $(TESTS),--numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder)

lint: ## Check format, types, imports, migrations, templates, scripts and styles.
	@$(SETUP) dev scripts
	@$(PYTHON_IN) manage.py check_all

bench: ## Measure speed, one JSON object a line: make bench, make bench NAMES=engine.
	@$(SETUP) dev
	@$(PYTHON_IN) -m benchmarks $(NAMES)

demo: ## Replay a trace on simulated nodes: make demo, make demo DEMO="--trace FOLDER --jobs 2000".
	@$(SETUP) run
	@exec $(PYTHON_IN) -m controlplane.demo $(DEMO)

chaos: ## Kill, pause, cut and slow at random while jobs run: make chaos SEED=7 FAULTS=200.
	@$(SETUP) dev
	@$(PYTHON_IN) -m tests.process.chaos $(if $(SEED),--seed $(SEED)) $(if $(FAULTS),--faults $(FAULTS))

properties: ## Try the engine's properties on many more random clusters: make properties TIMES=50.
	@$(SETUP) dev
	@TERRACE_PROPERTIES=$(or $(TIMES),20) $(PYTHON_IN) -m pytest tests/unit/engine -k "properties or settled or conserving or answers or changes or walls" -q

walls: ## Ask every address as every role in every relation, 100,000 times an oracle, and the API made-up things.
	@$(SETUP) dev
	@TERRACE_WHOLE_MATRIX=1 TERRACE_ORACLE_CHECKS=$(or $(CHECKS),100000) TERRACE_FUZZ_EXAMPLES=$(or $(EXAMPLES),50) \
		$(PYTHON_IN) -m pytest tests/web/walls tests/web/api/test_fuzz.py

guards: ## Take away each guard of a list and see that a test notices: make guards ONLY=live LOG=seen.
	@$(SETUP) dev
	@$(PYTHON_IN) -m tests.web.walls.mutants $(if $(ONLY),--only "$(ONLY)") $(if $(LOG),--log "$(LOG)")

audit: ## Look up the locked packages in the databases of known vulnerabilities (needs the network).
	@$(SETUP) dev scripts
	@sh requirements/audit.sh

format: ## Rewrite code, templates, scripts and styles in the one format.
	@$(SETUP) dev scripts
	@$(PYTHON_IN) -m ruff format .
	@$(PYTHON_IN) -m ruff check --fix .
	@.venv/bin/djade --target-version=5.2 $$(find templates -name '*.html')
	@node_modules/@biomejs/cli-linux-*/biome check --write static/js static/css tests/js

test-install: ## Try `make up` and `make test` in a minimal Debian, as root and user (needs root).
	@sh tests/install/run.sh

lock: ## Lock the dependencies again after a change of pyproject.toml.
	@$(SETUP) dev
	@sh requirements/lock.sh
