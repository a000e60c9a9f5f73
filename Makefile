# Two targets do everything: `make demo` runs the main job, `make test` the test suite.
# Both create the virtual environment .venv on first use; second runs start at once.

PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || echo python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test check clean

demo: $(STAMP)
	$(BIN)/mlirstack compare zoo:tiny_mlp --targets cpu,iree-cpu,inductor --bench --dump demo/tiny_mlp

test: $(STAMP)
	$(BIN)/python -m pytest -n 2
	$(BIN)/lit -q lit_tests dialect_samples

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/mlirstack checks --lint lit_tests dialect_samples

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if v in ((3, 11), (3, 12)) else \
	    f"mlirstack needs Python 3.11 or 3.12, and {sys.executable} is {v[0]}.{v[1]}: call make PYTHON=python3.11 …")'
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	    echo "python3-venv is missing: apt-get install python3-venv" >&2; exit 1; }
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test]'
	touch $@

clean:
	rm -rf $(VENV) demo
