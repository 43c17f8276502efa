# `make demo` shows the tool, `make check` and `make test` are what CI runs, `make docs` makes the site.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Two processes have two cores: threads of one would only wait for those of the other.
RUN_TESTS := OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

.PHONY: demo test test-all check format docs clean

# pip compiles on one core what it installs; here it is done on two.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[test,dev]'
	$(BIN)/python -m compileall -q -j 2 $(VENV)/lib >/dev/null 2>&1 || true  # templates are no modules
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/vlmcli ocr --text-layer ignore samples/scan.pdf

test: $(STAMP)
	$(RUN_TESTS) -m "not slow"

# With the tests that take long: training from nothing, benchmarks, hundreds of look-alike pages.
test-all: $(STAMP)
	$(RUN_TESTS)

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The commands' reference is written from --help first, so the site never has an old one.
docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	VLMCLI_WRITE_DOCS=1 $(BIN)/python -m pytest -q tests/cli/test_docs.py -k reference
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) build dist *.egg-info
