# The comments after ## document the targets; `make help` prints them.
SCALE ?= laptop
HARDWARE ?= cpu
# LAUNCHER=joblib runs WORKERS jobs at a time (timed jobs run alone); basic runs one job after another; Slurm has its own launcher
LAUNCHER ?= $(if $(filter cpu,$(HARDWARE)),joblib,basic)
WORKERS ?= 2
LAUNCH = $(if $(filter slurm%,$(HARDWARE)),,hydra/launcher=$(LAUNCHER) $(if $(filter joblib,$(LAUNCHER)),hydra.launcher.n_jobs=$(WORKERS)))
ID ?= all
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# the C files that learn2learn ships are too old for Python 3.11; Cython must regenerate them, which package metadata cannot request
BUILD_LEARN2LEARN = $(BIN)/python -m pip install --quiet cython wheel "setuptools<81" requests tqdm scipy gym \
	&& $(BIN)/python -m pip install --quiet --no-build-isolation --no-deps --config-settings="--global-option=build_ext" learn2learn==0.2.0
export OMP_NUM_THREADS ?= 1
export MPLBACKEND := Agg

.DEFAULT_GOAL := help
.PHONY: help install reproduce test test-data lint style types typed format artifact keep kept report pictures docs benchmark gpu faults doctor learn2learn clean

help:  ## print this list
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(STAMP)  ## create .venv and install mobench with everything that the tests need

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "mobench needs Python >= 3.11; found `$(PYTHON) --version`. Set PYTHON=..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[dev,docs,compiled,joblib,slurm,baselines,speech]'
	$(BUILD_LEARN2LEARN) || echo "learn2learn could not be built (it needs a C compiler; see the lines above). Everything else works, but few-shot problems need problem.episodes=named. To try again, run: make learn2learn"
	touch $(STAMP)

reproduce: install  ## draw every artifact (SCALE=laptop, WORKERS=2 jobs at a time) and those of the kept rows, then build the report
	$(BIN)/mobench +experiment=$(ID) scale=$(SCALE) hardware=$(HARDWARE) $(LAUNCH)
	$(BIN)/python -m mobench.keep --draw
	$(BIN)/python -m mobench.report
	@echo "Open outputs/report/index.html"

# these tests check shapes and types at every call, which makes a step ten times slower: every algorithm with every oracle, metrics, the QP;
# they assert all that they assert without the checks, so they are not run a second time
TYPED = tests/test_join.py::test_every_pair_of_the_project_runs_or_is_refused tests/test_metrics.py tests/subproblems/test_subproblem_qp.py

# mypy uses one core, and pytest collects its tests on one
test: install  ## run lint, type and shape checks, and all tests
	$(MAKE) --no-print-directory style
	$(MAKE) --no-print-directory -j 2 types typed
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations=25 $(TYPED:%=--deselect=%)

test-data: install  ## run only the tests that need official files: make test-data MOBENCH_DATA=DIR
	$(BIN)/python -m pytest -n 2 --dist worksteal -m data -rs

lint: style types  ## run ruff and mypy

style: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

typed: install
	$(BIN)/python -m pytest -n 2 --dist worksteal --jaxtyping-packages=mobench,beartype.beartype $(TYPED)

format: install  ## apply ruff's fixes and formatting
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

artifact: install  ## run the jobs of one table or figure and draw it: make artifact ID=ferero/fig3 (or ferero/all, all) [WORKERS=4]
	$(BIN)/mobench +experiment=$(ID) scale=$(SCALE) hardware=$(HARDWARE) $(LAUNCH)

keep: install  ## add the rows of a drawn artifact to the repository: make keep ID=csmoo/fig38 (or ID="csmoo/fig2 --history")
	$(BIN)/python -m mobench.keep $(ID)

kept: install  ## draw every artifact with kept rows into outputs/kept, without training and without data
	$(BIN)/python -m mobench.keep --draw

report: install kept  ## build outputs/report/index.html and docs/results.md, and update the tables in the README and docs/papers
	$(BIN)/python -m mobench.report --results docs/results.md --readme README.md --papers docs/papers --wall docs/images/claims.svg --findings docs/findings.md
	mkdir -p docs/images
	cp outputs/artifacts/cross/summary/figure.png docs/images/cross_summary.png

pictures: install  ## draw README's moving picture, that of its program and that of docs/training.md into docs/images
	$(BIN)/python docs/pictures.py

docs: install  ## build the documentation site, outputs/docs/index.html
	$(BIN)/python -m sphinx -W --keep-going -q -j auto -b html docs outputs/docs
	@echo "Open outputs/docs/index.html"

benchmark: install  ## measure the speed against reference loops and write docs/performance.md
	$(BIN)/python -m tests.benchmarks --output docs/performance.md --json outputs/benchmark.json

MINUTES ?= 45
gpu: install  ## with one GPU, run what is worth most: device tests, benchmark, headline experiments (MINUTES=45 PARTS="images cifar")
	$(BIN)/python -m tests.gpu_session --minutes $(MINUTES) $(PARTS)

KILLS ?= 200
faults: install  ## kill jobs, workers and Slurm jobs at random (KILLS=200), compare their rows and write docs/reliability.md
	$(BIN)/python -m tests.faults --kills $(KILLS) --output docs/reliability.md

learn2learn: install  ## build learn2learn for few-shot problems if `make install` could not (needs a C compiler)
	$(BUILD_LEARN2LEARN)

doctor: install  ## report what works on this machine and how to fix the rest: solvers, devices, data, disk, locks, W&B, Slurm
	$(BIN)/python -m mobench.doctor

clean:  ## remove generated outputs without asking (keeps data)
	rm -rf outputs .pytest_cache .mypy_cache .ruff_cache
