# GNU make 4. `make demo` and `make test` need nothing set up: `make help`.

# On the command line only, since both names mean other things in some environments:
PYTHON :=
BINDINGS :=
PYTEST_ARGS ?=

SHELL := /bin/sh
MAKEFLAGS += --no-builtin-rules --no-print-directory
.DEFAULT_GOAL := help

venv := .venv$(addprefix -,$(BINDINGS))
python := $(venv)/bin/python -P
pytest = $(python) -m pytest -n auto --maxprocesses 8
make-venv = PYTHON='$(PYTHON)' $(SHELL) scripts/venv.sh
bindings = $(if $(BINDINGS),'cuda-bindings==$(BINDINGS).*')

# What would send an installation elsewhere, or change how Python starts. Where packages come
# from (index, find-links, certificate, proxy, constraint) is the user's to say and stays.
unexport PIP_TARGET PIP_PREFIX PIP_ROOT PIP_PYTHON PIP_SRC PIP_EDITABLE PIP_REQUIREMENT
unexport PIP_NO_DEPS PIP_DRY_RUN PIP_IGNORE_INSTALLED PIP_NO_BUILD_ISOLATION PIP_REQUIRE_HASHES
unexport PIP_PLATFORM PIP_PYTHON_VERSION PIP_IMPLEMENTATION PIP_ABI PIP_REPORT
unexport PYTHONHOME PYTHONPATH PYTHONUSERBASE PYTHONSTARTUP PYTHONINSPECT PYTHONOPTIMIZE
unexport PYTHONWARNINGS PYTHONPLATLIBDIR PYTHONEXECUTABLE VIRTUAL_ENV MYPYPATH
# The tests start some hundred interpreters: without bytecode each compiles the package again.
unexport PYTHONDONTWRITEBYTECODE
unexport $(filter MEMPOOL_%,$(.VARIABLES))
export PIP_USER := 0
export PIP_ROOT_USER_ACTION := ignore
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
export PYTHONNOUSERSITE := 1

.PHONY: help
help:
	@echo 'make demo    the main job on a simulated machine with eight GPUs; needs Python 3.11+ and no GPU'
	@echo 'make test    lint, then all tests; needs a C compiler too. PYTEST_ARGS="-k matrix" goes to pytest'
	@echo 'make lint    ruff, mypy and import-linter'
	@echo 'make standin the real bindings on a stand-in driver library; BINDINGS=12 takes that generation'
	@echo 'make soak    the tests of endurance at length: twenty minutes, chance included'
	@echo 'make bench   how fast it is: whole processes against what the work costs anyway'
	@echo 'make wheel-test  the wheel in an empty environment of each Python that is here'
	@echo 'make pictures    write docs/pictures again, which README.md shows'
	@echo 'make pages   every help page, as build/commands.md and as man pages in build/man1'
	@echo 'make clean   remove the environments, caches and build output'
	@echo 'PYTHON=...   on any of them: the interpreter to use, instead of the newest on PATH'

.PHONY: demo
demo: run-env
	@PATH='$(CURDIR)/$(venv)/bin':"$$PATH" $(SHELL) scripts/demo.sh

.PHONY: test
test: cc lint
	@$(pytest) $(PYTEST_ARGS)

.PHONY: lint
lint: dev-env
	$(python) -m ruff check
	$(python) -m ruff format --check
	$(python) -m mypy
	$(venv)/bin/lint-imports --no-logo

.PHONY: standin
standin: cc dev-env
	@$(python) -m pip list --format freeze | grep '^cuda-'
	@$(pytest) -m standin $(PYTEST_ARGS)

.PHONY: soak
soak: dev-env
	@$(python) -m pytest tests/endurance --hypothesis-profile=soak -s $(PYTEST_ARGS)

.PHONY: bench
bench: dev-env
	@PYTHONPATH='$(CURDIR)/tests:$(CURDIR)' $(venv)/bin/python benchmarks/bench.py

.PHONY: wheel-test
wheel-test: run-env
	@$(SHELL) scripts/wheel.sh '$(CURDIR)/$(venv)/bin/python' $(PYTHON)

.PHONY: pictures
pictures: dev-env
	@$(python) scripts/pictures.py docs/pictures

.PHONY: pages
pages: dev-env
	@$(python) scripts/pages.py build

.PHONY: clean
clean:
	rm -rf .venv .venv-* .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist *.egg-info
	find mempool_cli tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +

# One script looks whether the environment is right, so these are cheap and always run. Beside a
# goal that needs the larger one, `demo` waits for it: `make -j demo test` makes one environment.
.PHONY: run-env
run-env: $(if $(filter bench dev-env lint pages pictures soak standin test,$(MAKECMDGOALS)),dev-env)
	@$(make-venv) run '$(venv)' $(bindings)

.PHONY: dev-env
dev-env:
	@$(make-venv) dev '$(venv)' $(bindings)

.PHONY: cc
cc:
	@cc --version >/dev/null 2>&1 || { echo 'mempool: the tests need a C compiler, and cc is not on PATH (Debian, Ubuntu: apt install gcc libc6-dev)' >&2; exit 1; }
