# The comments after ## document the targets; `make help` prints them.
SCALE ?= laptop
HARDWARE ?= cpu
# LAUNCHER=joblib runs WORKERS jobs at a time (timed jobs run alone); basic runs one job after another; Slurm has its own launcher
LAUNCHER ?= $(if $(filter cpu,$(HARDWARE)),joblib,basic)
WORKERS ?= 2
LAUNCH = $(if $(filter slurm%,$(HARDWARE)),,hydra/launcher=$(LAUNCHER) $(if $(filter joblib,$(LAUNCHER)),hydra.launcher.n_jobs=$(WORKERS)))
ID ?= all
PYTHON ?= python3
# LOCKED=1 installs the locked versions with their hashes instead of the newest that the bounds allow
LOCKED ?=
UV ?= $(BIN)/uv
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# the C files that learn2learn ships are too old for Python 3.11; Cython must regenerate them, which package metadata cannot request
BUILD_LEARN2LEARN = $(BIN)/python -m pip install --quiet cython wheel "setuptools<81" requests tqdm scipy gym \
	&& $(BIN)/python -m pip install --quiet --no-build-isolation --no-deps --config-settings="--global-option=build_ext" learn2learn==0.2.0
export OMP_NUM_THREADS ?= 1
export MPLBACKEND := Agg
# where this is set, no process leaves its compiled modules to the next one, and each spends seconds on compiling torch again
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install lock reproduce test test-data test-oldest api image-steps release bundle verify lint style types typed format artifact keep kept report pictures docs benchmark gpu faults nightly prerelease doctor learn2learn clean

help:  ## print this list
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# modules are compiled when they are first imported: pip would compile all of them, which takes longer than unpacking them
install: $(STAMP)  ## create .venv and install mobench with everything that the tests need

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "mobench needs Python >= 3.11; found `$(PYTHON) --version`. Set PYTHON=..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
ifeq ($(LOCKED),)
	$(BIN)/python -m pip install --quiet --no-compile -e '.[dev,docs,joblib,slurm,baselines,speech,flower]'
else
	$(BIN)/python -m pip install --quiet --no-compile --require-hashes -r locks/full.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
endif
	test -n "$(LOCKED)" || { $(BUILD_LEARN2LEARN); } || echo "learn2learn could not be built (it needs a C compiler; see the lines above). Everything else works, but few-shot problems need problem.episodes=named. To try again, run: make learn2learn"
	touch $(STAMP)

reproduce: install  ## draw every artifact (SCALE=laptop, WORKERS=2 jobs at a time) and those of the kept rows, then build the report
	$(BIN)/mobench +experiment=$(ID) scale=$(SCALE) hardware=$(HARDWARE) $(LAUNCH)
	$(BIN)/mobench keep --draw
	$(BIN)/mobench report
	@echo "Open outputs/report/index.html"

# these tests check shapes and types at every call, which makes a step ten times slower: some steps of every name of conf, metrics, the QP;
# they assert all that they assert without the checks, so they are not run a second time
TYPED = tests/contract/test_numbers.py tests/test_metrics.py

# mypy uses one core, and pytest collects its tests on one
test: install  ## run lint, type and shape checks, and all tests
	$(MAKE) --no-print-directory style
	$(MAKE) --no-print-directory -j 2 types typed
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations=25 $(TYPED:%=--deselect=%)

test-data: install  ## run only the tests that need official files: make test-data MOBENCH_DATA=DIR
	$(BIN)/python -m pytest -n 2 --dist worksteal -m data -rs

# the oldest release of each dependency that pyproject.toml allows, in an environment of its own; old releases warn of much that is
# deprecated by now. Tests that compare with peers, draw, or need a launcher are left to the newest versions
OLDEST = outputs/oldest
OLDEST_TESTS = tests/test_core.py tests/test_metrics.py tests/test_gram.py tests/test_store.py tests/test_identity.py tests/test_vary.py tests/test_checks.py
test-oldest: install  ## run the core tests with the oldest versions that pyproject.toml allows (5 GB in outputs/oldest)
	$(BIN)/python -m pip install --quiet uv
	test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	$(UV) pip compile pyproject.toml --extra dev --resolution lowest-direct --python $(OLDEST)/bin/python --no-header --no-annotate -q -o $(OLDEST)/oldest.txt
	$(OLDEST)/bin/python -m pip install --quiet --no-deps -r $(OLDEST)/oldest.txt
	PYTHONPATH=$(CURDIR) $(OLDEST)/bin/python -m pytest -q -W ignore::DeprecationWarning -W ignore::PendingDeprecationWarning -W ignore::FutureWarning $(OLDEST_TESTS)

# the lock pins the versions that are installed, with which the tests have passed, and adds the hashes of all platforms
LOCK = $(UV) pip compile pyproject.toml --universal --python-version 3.11.5 --generate-hashes --no-annotate --no-header --quiet --constraint outputs/installed.txt
lock: install  ## write locks/ anew, of the versions that are installed
	$(BIN)/python -m pip install --quiet uv
	mkdir -p outputs
	$(BIN)/python -m pip list --format=freeze --exclude-editable --exclude pip --exclude uv --exclude learn2learn > outputs/installed.txt
	$(LOCK) --all-extras --output-file locks/full.txt
	printf 'hatchling\nhatch-fancy-pypi-readme\n' | $(LOCK) --output-file locks/light.txt -

api: install  ## write docs/public.txt anew: what is public, with its signatures
	$(BIN)/python -m tests.public_api --update

bundle: install  ## pack drawn artifacts into one file: make bundle ID=ferero/fig3
	$(BIN)/mobench bundle $(ID)

ROWS ?= 20
verify: install  ## check a bundle and run some of its rows again: make verify FILE=outputs/bundles/ferero-fig3.zip ROWS=20
	$(BIN)/mobench verify $(FILE) --rows $(ROWS)

image-steps:  ## run the Dockerfile's steps without a container engine, in the new folder outputs/image
	$(PYTHON) -m campaigns.image_steps outputs/image

release: install  ## build the wheel and the sdist into dist/ and check them; nothing is uploaded
	$(BIN)/python -m pip install --quiet build 'twine>=7'
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m twine check --strict dist/*

lint: style types  ## run ruff and mypy

style: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

# one process: each would compile all of mobench with its checks, and mypy has the other core
typed: install
	$(BIN)/python -m pytest --jaxtyping-packages=mobench,beartype.beartype $(TYPED)

format: install  ## apply ruff's fixes and formatting
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

artifact: install  ## run the jobs of one table or figure and draw it: make artifact ID=ferero/fig3 (or ferero/all, all) [WORKERS=4]
	$(BIN)/mobench +experiment=$(ID) scale=$(SCALE) hardware=$(HARDWARE) $(LAUNCH)

keep: install  ## add the rows of a drawn artifact to the repository: make keep ID=csmoo/fig38 (or ID="csmoo/fig2 --history")
	$(BIN)/mobench keep $(ID)

kept: install  ## draw every artifact with kept rows into outputs/kept, without training and without data
	$(BIN)/mobench keep --draw

report: install kept  ## build outputs/report/index.html and docs/results.md, and update the tables in the README and docs/papers
	$(BIN)/mobench report --results docs/results.md --readme README.md --papers docs/papers --wall docs/images/claims.svg --findings docs/findings.md
	mkdir -p docs/images
	for id in zoo ranks profiles; do cp outputs/artifacts/cross/$$id/figure.png docs/images/cross_$$id.png; done

pictures: install  ## draw README's moving picture, that of its program and that of docs/training.md into docs/images
	$(BIN)/python docs/pictures.py

docs: install  ## build the documentation site, outputs/docs/index.html
	$(BIN)/python -m sphinx -W --keep-going -q -j auto -b html docs outputs/docs
	@echo "Open outputs/docs/index.html"

benchmark: install  ## measure the speed against reference loops and write docs/performance.md
	$(BIN)/python -m benchmarks --output docs/performance.md --json outputs/benchmark.json

MINUTES ?= 45
gpu: install  ## with one GPU, run what is worth most: device tests, benchmark, headline experiments (MINUTES=45 PARTS="images cifar")
	$(BIN)/python -m campaigns.gpu_session --minutes $(MINUTES) $(PARTS)

KILLS ?= 200
faults: install  ## kill jobs, workers and Slurm jobs at random (KILLS=200), compare their rows and write docs/reliability.md
	$(BIN)/python -m campaigns.faults --kills $(KILLS) --output docs/reliability.md

nightly: install  ## run the tests that need a browser, Slurm or Flower's servers, and those of campaigns and benchmarks
	$(BIN)/python -m pytest -n 2 -rs campaigns benchmarks

prerelease: install  ## try coming versions of Hydra and OmegaConf in an environment of their own
	$(BIN)/python -m campaigns.prerelease

learn2learn: install  ## build learn2learn for few-shot problems if `make install` could not (needs a C compiler)
	$(BUILD_LEARN2LEARN)

doctor: install  ## report what this machine has: versions, devices, data, a writable outputs folder
	$(BIN)/mobench doctor

clean:  ## remove generated outputs without asking (keeps data)
	rm -rf outputs .pytest_cache .mypy_cache .ruff_cache
