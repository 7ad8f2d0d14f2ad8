# Targets are documented by the comments behind ##; `make help` shows them.
SCALE ?= laptop
HARDWARE ?= cpu
# LAUNCHER=joblib: WORKERS jobs at a time (those that are timed run alone); basic: one after the other; Slurm has its own
LAUNCHER ?= $(if $(filter cpu,$(HARDWARE)),joblib,basic)
WORKERS ?= 2
LAUNCH = $(if $(filter slurm%,$(HARDWARE)),,hydra/launcher=$(LAUNCHER) $(if $(filter joblib,$(LAUNCHER)),hydra.launcher.n_jobs=$(WORKERS)))
ID ?= all
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# its shipped C files are too old for Python 3.11: Cython has to make them anew, which no package metadata can ask for
BUILD_LEARN2LEARN = $(BIN)/python -m pip install --quiet cython wheel "setuptools<81" requests tqdm scipy gym \
	&& $(BIN)/python -m pip install --quiet --no-build-isolation --no-deps --config-settings="--global-option=build_ext" learn2learn==0.2.0
export OMP_NUM_THREADS ?= 1
export MPLBACKEND := Agg

.DEFAULT_GOAL := help
.PHONY: help install reproduce test test-data lint format artifact keep kept report docs benchmark faults doctor learn2learn clean

help:  ## show this list
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(STAMP)  ## make .venv and install mobench with everything that the tests need

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "mobench needs Python >= 3.11; found `$(PYTHON) --version`. Set PYTHON=..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[dev,docs,joblib,slurm,baselines,speech]'
	$(BUILD_LEARN2LEARN) || echo "learn2learn could not be built (it needs a C compiler; see the lines above). Everything else works; few-shot problems then need problem.episodes=named. Try again with: make learn2learn"
	touch $(STAMP)

reproduce: install  ## every artifact at SCALE=laptop, WORKERS=2 jobs at a time, those with kept rows, then the report
	$(BIN)/mobench +experiment=$(ID) scale=$(SCALE) hardware=$(HARDWARE) $(LAUNCH)
	$(BIN)/python -m mobench.keep --draw
	$(BIN)/python -m mobench.report
	@echo "Open outputs/report/index.html"

# shapes and types of every call, at ten times the cost of a step: every algorithm on every problem, metrics, the batched quadratic program
TYPED = --jaxtyping-packages=mobench,beartype.beartype \
	tests/test_join.py::test_every_pair_of_the_project_runs_or_is_refused tests/test_metrics.py tests/subproblems/test_subproblem_qp.py

test: install  ## lint, types, shapes, and all tests
	$(MAKE) --no-print-directory lint
	$(BIN)/python -m pytest -n 2 --dist worksteal $(TYPED)
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations=12

test-data: install  ## the tests that need official files, and no others: make test-data MOBENCH_DATA=DIR
	$(BIN)/python -m pytest -n 2 --dist worksteal -m data -rs

lint: install  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: install  ## apply ruff's formatting
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

artifact: install  ## one table or figure, its jobs first: make artifact ID=ferero/fig3 (or ferero/all, all) [WORKERS=4]
	$(BIN)/mobench +experiment=$(ID) scale=$(SCALE) hardware=$(HARDWARE) $(LAUNCH)

keep: install  ## keep the rows of a drawn artifact with the project: make keep ID=csmoo/fig38 (or ID="csmoo/fig2 --history")
	$(BIN)/python -m mobench.keep $(ID)

kept: install  ## draw every artifact whose rows at paper scale come with mobench, into outputs/kept: trains nothing, needs no data
	$(BIN)/python -m mobench.keep --draw

report: install kept  ## the static site outputs/report/index.html, docs/results.md and the tables of README and docs/papers
	$(BIN)/python -m mobench.report --results docs/results.md --readme README.md --papers docs/papers
	mkdir -p docs/images
	cp outputs/artifacts/ferero/fig3/figure.png docs/images/ferero_fig3.png
	cp outputs/artifacts/cross/summary/figure.png docs/images/cross_summary.png

docs: install  ## the documentation as a site, outputs/docs/index.html
	$(BIN)/python -m sphinx -W --keep-going -q -j auto -b html docs outputs/docs
	@echo "Open outputs/docs/index.html"

benchmark: install  ## speed against reference loops, ratios in one run: docs/performance.md
	$(BIN)/python -m tests.benchmarks --output docs/performance.md --json outputs/benchmark.json

KILLS ?= 200
faults: install  ## kill jobs, workers and Slurm jobs at random (KILLS=200), compare the rows: docs/reliability.md
	$(BIN)/python -m tests.faults --kills $(KILLS) --output docs/reliability.md

learn2learn: install  ## few-shot episodes (bilevel problems), if `make install` could not build them: needs a C compiler
	$(BUILD_LEARN2LEARN)

doctor: install  ## what works here and what to do about the rest: solvers, devices, data, disk, locks, W&B, Slurm
	$(BIN)/python -m mobench.doctor

clean:  ## remove generated outputs (asks nothing, keeps data)
	rm -rf outputs .pytest_cache .mypy_cache .ruff_cache
