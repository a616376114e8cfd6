# Every target does the set-up that is missing, from a bare Python 3.11.

PYTHON ?= $(shell for name in python3 python3.13 python3.12 python3.11 python; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$name; exit; }; \
	done; echo python3)
BIN := .venv/bin
MANAGE := $(BIN)/python manage.py
CODE := nura chats documents jobs rag tests benchmarks manage.py

# A test run starts the product's modules in some two hundred processes: none compiles them anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test test-all check check-python check-front front fonts fix bench soak screenshots messages setup setup-dev setup-bench \
	hashes audit sbom
.DEFAULT_GOAL := run

setup:
	@$(PYTHON) -m nura.bootstrap

setup-dev:
	@$(PYTHON) -m nura.bootstrap dev

setup-bench:
	@$(PYTHON) -m nura.bootstrap bench

run: setup
	@exec $(MANAGE) up

# Some tests compute, others wait for products, browsers and time limits: twice as many processes as
# cores keep the cores busy. The static checks run beside them, those of the front end already beside
# the installation, of which most is one process.
# What fails beside other tests on a busy machine is run once more, alone; both runs are printed.
PROCESSES ?= 4
ALONE := --last-failed --last-failed-no-failures none

test:
	@$(MAKE) --no-print-directory check-front & front=$$!; \
	$(MAKE) --no-print-directory setup-dev || { wait $$front; exit 1; }; \
	$(MAKE) --no-print-directory check-python & python=$$!; \
	$(BIN)/pytest $(WHOLE) -n $(PROCESSES) --dist loadgroup --no-loadscope-reorder \
		|| $(BIN)/pytest $(WHOLE) $(ALONE); tests=$$?; \
	wait $$front && wait $$python || { echo "!!! CHECKS FAILED (above)" >&2; exit 1; }; exit $$tests

# Also the whole corpora of hostile and odd files, of which `make test` reads a sample.
test-all: WHOLE := --whole
test-all: test

check: check-front check-python

# `makemigrations` also runs all system checks.
check-python: setup-dev
	$(BIN)/ruff format --check $(wildcard $(CODE))
	$(BIN)/ruff check $(wildcard $(CODE))
	$(BIN)/mypy nura chats documents jobs rag benchmarks
	$(BIN)/lint-imports
	$(BIN)/djlint --check --lint --quiet templates
	$(MANAGE) makemigrations --check --dry-run

# What a browser loads is built by node and kept in static/nura/built: only those who change front/ need node.
NPM := $(shell node -e 'const [a, b] = process.versions.node.split("."); process.exit(Number(a * 100 + +b < 2019))' 2>/dev/null \
	&& command -v npm)

check-front:
ifeq ($(NPM),)
	@echo "!!! FRONT END NOT CHECKED (types, eslint, unit tests, built files): node 20.19 or newer is missing" >&2
else
	@if [ front/node_modules/.package-lock.json -nt front/package-lock.json ] \
		|| $(NPM) --prefix front ci --ignore-scripts --no-audit --no-fund; \
	then $(NPM) --prefix front run --silent check; \
	elif [ -n "$$CI" ]; then exit 1; \
	else echo "!!! FRONT END NOT CHECKED: npm could not install its packages" >&2; fi
endif

front:
	npm --prefix front ci --ignore-scripts --no-audit --no-fund
	npm --prefix front run --silent build

fonts:
	$(PYTHON) -m venv front/.venv
	front/.venv/bin/pip install --quiet fonttools==4.68.0 brotli==1.2.1
	front/.venv/bin/python front/fonts/build_fonts.py
	npm --prefix front run --silent build

fix: setup-dev
	$(BIN)/ruff check --fix $(wildcard $(CODE))
	$(BIN)/ruff format $(wildcard $(CODE))
	-$(BIN)/djlint --reformat --quiet templates

# Use and faults for as long as you like; SEED repeats a run.
MINUTES ?= 60
soak: setup-dev
	$(BIN)/python -m tests.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(PEOPLE),--people $(PEOPLE)) $(if $(PAUSE),--pause $(PAUSE))

# Sized for half an hour; QUICK=1 takes small sizes, for five minutes.
bench: setup-bench
	@exec $(BIN)/python -m benchmarks $(if $(QUICK),--quick)

# The pictures of the README and the guides, from a running product with a scripted model.
screenshots: setup-dev
	@$(BIN)/python -m tests.e2e.screenshots

messages: setup-dev
	$(MANAGE) makemessages --locale ko --ignore .venv --ignore var --no-location
	$(MANAGE) compilemessages --ignore .venv

# What the product is made of. The tools are no part of it and have an environment of their own.
TOOLS := .tools
SUPPLY := $(TOOLS)/bin/python deploy/supply_chain.py

$(TOOLS)/made: requirements/tools.txt
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/pip install --quiet -r requirements/tools.txt
	touch $@

# After a change of requirements/: the digests of all files that an installation may take.
hashes: $(TOOLS)/made
	$(SUPPLY) hashes

# Known vulnerabilities of all pinned packages; exit status 1 where there is one. Needs a network.
audit: $(TOOLS)/made
	$(SUPPLY) audit

# The bill of materials, nura.cdx.json.
sbom: setup $(TOOLS)/made
	$(SUPPLY) sbom
