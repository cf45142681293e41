# Everything runs in .venv, made from PYTHON (3.10 to 3.13).
PYTHON ?= python3
VENV := .venv
STAMP := $(VENV)/.installed
# What users have: the wheel without extras.
WHEEL_VENV := $(VENV)-wheel
ARCHIVE_STAMP := $(VENV)/.class-archive
BIN := $(CURDIR)/$(VENV)/bin
PYTEST_WORKERS ?= 2
PYTEST_ARGS ?=
TESTS ?= not slow and not costly
BENCHMARKS ?= startup small_runs small_loads streams_after_large csv_small record_path batch_path \
	growth strategies csv_path jdbc_path database_load upsert_path load_part maps_path maps_ways \
	validation_path trust_costs two_streams warm_server one_spark

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Compiling all modules anew takes 2 s of each program that a test starts.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install wheel demo test lint soak chaos bench audit clean

help:
	@echo "make wheel  build the wheel into dist/"
	@echo "make demo   install the wheel and run tap-spark | target-spark over sample data, small and large"
	@echo "make test   the tests of an engineer, at most 15 minutes (tests/README.md)"
	@echo "make test TESTS='not slow'  also the costly ones, as .ci/run does"
	@echo "make lint   ruff, mypy, what packages import, generated documentation"
	@echo "make soak   slow tests, and those with random seeds, 50 each (34 for each destination, 100 kills)"
	@echo "make chaos  both programs killed and disturbed at random for MINUTES (60), from a SEED that it prints"
	@echo "make bench  the benchmarks"
	@echo "make audit  known vulnerabilities of the installed packages (asks PyPI)"
	@echo "make clean  remove .venv and everything generated"

install: $(STAMP) $(ARCHIVE_STAMP)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 10) <= v <= (3, 13) else f"Python 3.10 to 3.13 is needed, {sys.executable} is {v[0]}.{v[1]}: make PYTHON=python3.11 ...")'
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
		echo "$(PYTHON) lacks the modules venv and ensurepip (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	@# uv takes a quarter of the time; pip knows indexes and certificates that uv may lack.
	$(BIN)/python -m pip install --quiet uv && \
		$(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[connect,dev]' || \
		$(BIN)/python -m pip install --quiet --editable '.[connect,dev]'
	@touch $@

# Java's class archive halves the start of Spark; without it everything works, only slower.
$(ARCHIVE_STAMP): $(STAMP)
	@$(BIN)/python -m shared.spark.make_class_archive || true
	@touch $@

wheel:
	@rm -rf dist
	@test -x $(WHEEL_VENV)/bin/uv || $(PYTHON) -m venv --clear $(WHEEL_VENV)
	@$(WHEEL_VENV)/bin/python -m pip install --quiet uv || true
	@$(WHEEL_VENV)/bin/uv build --quiet --wheel --out-dir dist . || \
		$(WHEEL_VENV)/bin/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	@ls dist/*.whl

# A wheel of the same version would count as installed.
demo: wheel
	@$(WHEEL_VENV)/bin/uv pip install --quiet --python $(WHEEL_VENV)/bin/python --reinstall-package singer-spark dist/*.whl || \
		$(WHEEL_VENV)/bin/python -m pip install --quiet --force-reinstall dist/*.whl
	PATH="$(CURDIR)/$(WHEEL_VENV)/bin:$$PATH" sample_configs/demo/run.sh

# tests/conftest.py says which worker runs what.
test: install
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS) --no-loadscope-reorder -m "$(TESTS)" $(PYTEST_ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	SINGER_SPARK_EXTENSIONS=off $(BIN)/python -m tools.docs --check

soak: install
	$(BIN)/python -m pytest -m "soak or slow" --seeds 50 --kill-seeds 34 --kills 100 $(PYTEST_ARGS)

MINUTES ?= 60
SEED ?= $(shell date +%s)
chaos: install
	$(BIN)/python -m pytest -n 0 -q -s tests/model/test_chaos.py --chaos-minutes $(MINUTES) --chaos-seed $(SEED) $(PYTEST_ARGS)

# Results go to .bench/, their tables to benchmarks/README.md.
bench: install
	$(BIN)/python -m pip install --quiet 'matplotlib>=3.8'
	for name in $(BENCHMARKS); do $(BIN)/python -m benchmarks.$$name || exit 1; done
	$(BIN)/python -m benchmarks.results

# In an environment of its own: the one of the project holds what is audited, and nothing else.
audit: install
	$(PYTHON) -m venv $(VENV)/audit
	$(VENV)/audit/bin/python -m pip install --quiet 'pip-audit>=2.9'
	$(BIN)/python -m pip freeze --exclude-editable > $(VENV)/audit/requirements.txt
	$(VENV)/audit/bin/pip-audit --strict --no-deps --disable-pip -r $(VENV)/audit/requirements.txt

clean:
	rm -rf $(VENV) $(WHEEL_VENV) .demo build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
