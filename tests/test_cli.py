"""The command line: bad input is one clear message; sweeps, help, output and imports."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hydra.errors import HydraException
from omegaconf import OmegaConf

from mobench.cli import COMMANDS
from mobench.config import compose, overrides, schema
from mobench.errors import ConfigError
from mobench.jobs.build import make_job
from tests.conftest import Run, command, environment, process

QUICK = ("preferences=2", "steps=3", "logger=local")

# command line: what the message must contain (found, expected, what to do). One for each kind; values that
# one class refuses are tested with that class
BAD = {
    # names
    "problem=vlmop3": [
        "problem='vlmop3'",
        "choose one of ball_and_half_space, bilevel_quadratic",
        "Did you mean 'vlmop2'?",
    ],
    "problem=": ["problem", "choose one of ball_and_half_space, bilevel_quadratic"],
    "algorithm=null": ["algorithm=null", "choose one of ada_omd_tch"],
    "+experiment=ferero/fig33": [
        "experiment='ferero/fig33'",
        "choose one of cross/profiles",
        "Did you mean 'ferero/fig3'",
    ],
    "+experiment=ferrero/all": ["ferrero/all does not name an artifact", "ferero/fig1"],
    # keys
    "problm=zdt2": ["problm is unknown", "known keys are algorithm", "Did you mean 'problem'"],
    "+stepz=4": ["stepz is unknown", "Did you mean 'steps'"],
    "problem.nn=4": ["problem.nn is unknown", "problem takes", "Did you mean 'n'?"],
    "preferences.cout=3": [
        "preferences.cout is unknown",
        "count, rays_deg, weights, floor",
        "Did you mean 'count'?",
    ],
    "hydra.foo=1": ["Could not override 'hydra.foo'", "Key 'foo' not in 'HydraConf'"],
    "lr=0.1": ["lr is unknown", "Did you mean 'algorithm.step_size'"],
    "oracle=ema oracle.inner.batchsize=2 problem=least_squares": [
        "oracle.inner.batchsize is unknown",
        "'batch_size'",
    ],
    # forms
    "~seeds": ["seeds was removed", "set a value"],
    "algorithm=[mgda,epo]": ["algorithm=[mgda,epo] is not a valid choice", "mobench -m algorithm=A,B"],
    "bla": ["Error parsing override 'bla'", "EQUAL"],
    "epo": ["epo has no key; write algorithm=epo"],
    "+experiment=ferero/fig7 artifact.depicts=foo": ["artifact.depicts must be 'data' or null, not 'foo'"],
    "seeds=[0, 1]": ["seeds=[0, has a bracket without its partner", "'seeds=[0, 1]'"],
    "hydra.searchpath=[file:///a=b]": ["searchpath=[file:///a=b] cannot be read", "needs quotes of its own"],
    "checkpoint=true": ["Error merging override checkpoint=true", "not a subclass of CheckpointConfig"],
    # preferences
    "preferences.weights=[[0.0,1.0]]": [
        "[0.0, 1.0] is not in the open simplex",
        "> 0",
        "preferences.floor=0.01",
    ],
    "preferences.weights=[[0.5,0.5]] preferences.rays_deg=[45]": [
        "only one of preferences.rays_deg, preferences.weights"
    ],
    "preferences=5 preferences.weights=[[0.3,0.7]]": [
        "preferences=5",
        "preferences.weights=[[0.3,0.7]]",
        "one of them",
    ],
    "preferences=many": ["preferences=many", "preferences=K"],
    "preferences=[[0.3,0.7]]": ["preferences=[[0.3,0.7]] has the wrong type", "preferences.weights="],
    "preferences.rays_deg=[30,60,30]": ["preferences.rays_deg=[30, 60, 30]", "twice"],
    "preferences.count=2.5": ["preferences.count=2.5", "whole number"],
    # values
    "seeds=[]": ["seeds is empty", "seeds=[0]"],
    "seeds=[1,2,1]": ["seeds=[1, 2, 1]", "twice"],
    "seeds=3": ["seeds=3 has the wrong type", "seeds is a list", "seeds=[3]"],
    "seeds=[0,123456789012345678901234567890]": ["seeds contains 123456789012345678901234567890", "64 bits"],
    "steps=0": ["steps=0", "at least 1"],
    "steps=abc": ["steps=abc", "Integer"],
    "dtype=float16": ["dtype='float16'", "float64, float32"],
    "max_failure_share=2": ["max_failure_share=2", "[0, 1]"],
    "record.every=-1": ["record.every=-1", ">= 0"],
    "checkpoint.seconds=nan": ["checkpoint.seconds=nan", "at least 0"],
    "hardware.device=quantum": ["'quantum'", "cpu, cuda"],
    "hardware.threads=-1": ["hardware.threads=-1", "at least 1"],
    "hardware.part=[8,9] preferences=2": ["hardware.part=[8, 9]", "none of the 2 preferences"],
    "algorithm.step_size=true": ["algorithm.step_size=True must be a number", "such as 0.1"],
    "algorithm.step_size=inf": ["algorithm.step_size=inf", "must be finite"],
    "algorithm.step_size=-1": ["algorithm.step_size=-1", "> 0"],
    "vary.step_size=[0.1,inf]": ["vary.step_size=inf", "must be finite"],
    "problem.n=5.5": ["problem.n=5.5 must be a whole number"],
    "problem.start={kind:alternating,scale:nan,noise:0.1}": ["problem.start.scale=nan", "must be finite"],
    "problem.start.kind=here": ["problem.start.kind='here'", "uniform"],
    "problem.start.low=0": ["problem.start with kind='alternating'", "scale, noise", "found are low"],
    "oracle=minibatch oracle.batch_size=all problem=least_squares": [
        "oracle.batch_size='all' must be a number"
    ],
    "algorithm.outputs=[last,men]": ["'men' is unknown", "adaptive_two_pass", "Did you mean 'mean'?"],
    "algorithm.outputs=[last,last]": ["algorithm.outputs=['last', 'last']", "twice"],
    "algorithm.outputs=mean": ["must be a list", "[mean]"],
    # classes
    "problem._target_=mobench.networks": [
        "was imported but is no class",
        "problem=FILE.py:FUNCTION",
        "mobench.run(problem=FUNCTION()",
    ],
    "algorithm._target_=mobench.algorithms.ls.LSS": ["mobench.algorithms.ls.LSS", "cannot be imported"],
    # pairs
    "algorithm=ferero problem=zdt3": [
        "FERERO is not compatible with ZDT3",
        "objectives >= 0",
        "positive=True",
    ],
    "oracle=minibatch": ["VLMOP2", "nothing to sample", "oracle=exact"],
    "oracle=ema oracle.blocks=9 problem=least_squares problem.n=4": ["oracle.blocks=9", "1..4"],
    # folders and flags
    "hydra.run.dir=elsewhere": ["hydra.run.dir=elsewhere has no effect", "MOBENCH_OUTPUTS=FOLDER"],
    "-m steps=2,3 --cfg job": ["--cfg shows one job", "omit -m"],
    "+experiment=ferero/all --cfg job": ["--cfg shows one job", "name only one experiment"],
    "--cfg": ["--cfg needs a value", "--cfg job"],
    "--multirun --run": ["exclude each other"],
    "--cgf job": ["--cgf is not a flag", "Did you mean '--cfg'"],
}


@pytest.mark.parametrize("line", BAD)
def test_bad_input_is_one_message(mobench: Run, line: str) -> None:
    result = mobench(*line.split())
    result.refused(*BAD[line])
    assert result.folders == []


def test_slurm_needs_its_launcher_and_its_commands(mobench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = HydraException("Could not find 'hydra/launcher/submitit_slurm'\n\nConfig search path:")
    assert "pip install '.[slurm]'" in compose.explain(absent)
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="needs hydra-submitit-launcher")
    monkeypatch.setenv("PATH", "")
    result = mobench("hardware=slurm")
    result.refused("hardware=slurm needs Slurm's commands", "sbatch is not on the PATH")
    assert result.folders == []


def test_gpu_without_cuda_is_refused(mobench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    mobench("hardware=gpu").refused("hardware.device=cuda", "no CUDA device", "hardware=cpu")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    mobench("hardware=gpu", "hardware.device=cuda:1").refused("hardware.device=cuda:1", "only 1")


# YAML files of others


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("jobs: {a: [algorithm=ls, stepz=3]}", ["stepz", "Did you mean 'steps'"]),
        (
            "jobs: {a: [algorithm=ferero, problem=zdt3]}",
            ["ferero/bad a", "FERERO is not compatible with ZDT3"],
        ),
        ("jbos: {a: [algorithm=ls]}", ["jbos", "Did you mean 'jobs'"]),
        ("problem: {nn: 3}", ["problem.nn is unknown", "Did you mean 'n'?"]),
        ("seeds: []", ["seeds is empty"]),
    ],
)
def test_misspelt_experiment_file(
    mobench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: list[str]
) -> None:
    conf = tmp_path / "conf"
    shutil.copytree(schema.conf_dir(), conf)
    head = '# @package _global_\nartifact: {id: ferero/bad, title: "Bad"}\nhydra: {mode: MULTIRUN}\n'
    jobs = "" if "jobs:" in text or "jbos:" in text else "jobs: {a: [algorithm=ls]}\n"
    (conf / "experiment/ferero/bad.yaml").write_text(head + jobs + text + "\n")
    monkeypatch.setattr(schema, "conf_dir", lambda: conf)
    result = mobench("+experiment=ferero/bad")
    result.refused(*words)
    assert result.folders == []


# overrides


def test_normalise() -> None:
    nulls = [f"preferences.{way}=null" for way in ("rays_deg", "simplex_steps", "weights")]
    assert overrides.normalise(["preferences=4", "a=1"]) == [*nulls, "preferences.count=4", "a=1"]
    assert overrides.normalise(["preferences.rays_deg=[1]"]) == [*nulls[1:], "preferences.rays_deg=[1]"]
    grid = "preferences.simplex_steps=4"
    assert overrides.normalise([grid]) == [nulls[0], nulls[2], grid]
    assert overrides.normalise(["algorithm.x=1", "algorithm=ls"]) == ["++algorithm.x=1", "algorithm=ls"]
    assert overrides.as_typed(["preferences.weights=null", "++algorithm.x=1"]) == "algorithm.x=1"


def test_experiment_lists() -> None:
    expanded, several = overrides.expand_experiments(["+experiment=omd_tch/all,ferero/fig7", "steps=1"])
    assert several
    figures = ("1", "2", "3", "3a", "4", "5", "6", "7")
    others = ("other_seeds", "partitions", "table1", "table2", "vlmop2_hypervolume")
    names = ["omd_tch/bounds", *(f"omd_tch/fig{k}" for k in figures), *(f"omd_tch/{name}" for name in others)]
    assert expanded == [f"+experiment={','.join(names)},ferero/fig7", "steps=1"]
    assert overrides.expand_experiments(["+experiment=ferero/fig7"]) == (["+experiment=ferero/fig7"], False)
    with pytest.raises(ConfigError, match="unknown"):
        overrides.expand_experiments(["+experiment="])


def test_changed_overrides() -> None:
    quiet = ["+experiment=a/b", "scale=smoke", "logger=local", "hydra/launcher=joblib", "rerun=true"]
    assert overrides.changed([*quiet, "steps=5", "++algorithm.c_h=2"]) == ["steps=5", "++algorithm.c_h=2"]
    chosen = ["data=mnist", "hardware=gpu", "hardware.split=3", "hardware.threads=2", "artifact.only=[a]"]
    assert overrides.changed(chosen) == []
    others = [
        "data.train_size=9",
        "hardware.part=[0,2]",
        "hardware.tf32=true",
        "data.lines.multi_mnist=[0,0]",
    ]
    assert overrides.changed(others) == others


def test_preferences_of_a_protocol_with_a_grid_are_taken_back() -> None:
    """The grid of the protocol gave its 15 preferences whatever the command line said."""
    base = ("protocol=csmoo_three_front", "algorithm=csmoo2", "scale=smoke", "seeds=[0]")
    for preferences in ("preferences=3", "preferences.weights=[[0.2,0.3,0.5],[0.3,0.3,0.4],[0.1,0.1,0.8]]"):
        assert len(make_job(compose.compose([*base, preferences])).runs.all) == 3
    assert len(make_job(compose.compose([*base, "preferences.simplex_steps=6"])).runs.all) == 28
    assert len(make_job(compose.compose([*base])).runs.all) == 15


# what a person sees


def test_single_job_prints_a_table(mobench: Run) -> None:
    result = mobench("problem=zdt1", "algorithm=ferero", "seeds=[0,1]", *QUICK)
    assert result.code == 0
    lines = result.out.splitlines()
    assert [line.split()[-3:] for line in lines[2:4]] == [["2", "of", "2"]] * 2
    assert "hypervolume (last, reference [1.1, 1.1]):" in result.out
    assert "subproblems: 0 failed" in result.out
    assert str(result.job.path) in lines[-1]
    assert "\x1b" not in result.out + result.err  # not a terminal: plain lines
    assert result.err == ""


def test_progress_is_plain_lines_off_a_terminal(mobench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000, 6))
    fake = SimpleNamespace(time=time.time, monotonic=lambda: float(next(clock)))
    for module in ("jobs.train", "system.console"):
        monkeypatch.setattr(f"mobench.{module}.time", fake)
    result = mobench("algorithm=ls", "preferences=1", "steps=3", "logger=local")
    matches = [
        re.fullmatch(r"vlmop2/LS: step (\d) of 3, about (\d+) s left", s) for s in result.err.splitlines()
    ]
    steps, left = zip(*((int(one[1]), int(one[2])) for one in matches if one is not None), strict=True)
    assert (len(matches), steps) == (2, (1, 2))
    assert left[0] > left[1] > 0
    quiet = mobench("algorithm=ls", "preferences=1", "steps=4", "logger=local", "progress=false")
    assert quiet.err == ""


def test_which_files_may_make_a_sweep() -> None:
    """A command is composed once where none of these is chosen; see `application._mode_in_files`."""
    groups = {
        path.relative_to(schema.conf_dir()).parts[0]
        for path in schema.conf_dir().rglob("*.yaml")
        if (OmegaConf.load(path).get("hydra") or {}).get("mode") is not None
    }
    assert groups == {"experiment", "hardware"}


def test_help(mobench: Run) -> None:
    result = mobench("--help")
    assert result.code == 0
    for words in (
        "algorithm: ada_omd_tch, afl, aligned_mtl",
        "problem: ball_and_half_space, bilevel_quadratic",
        "experiment/ferero: fig1",
        "scale: laptop",
    ):
        assert words in result.out
    assert "mobench +experiment=ferero/fig3" in result.out
    assert "preferences=K" in result.out


def test_no_argument_shows_the_help(mobench: Run) -> None:
    """The default, a job of ten equal runs, is that of `mobench run`."""
    bare = mobench()
    assert (bare.code, bare.folders) == (0, [])
    assert bare.out == mobench("--help").out
    assert mobench("run", *QUICK).job.key == mobench(*QUICK).job.key


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_of_its_own(
    mobench: Run, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    result = mobench(name, "--help")
    assert result.code == 0
    assert result.out.startswith(f"usage: mobench {name}")
    assert f"mobench {name}" in mobench("--help").out


def test_flags_between_overrides(mobench: Run) -> None:
    result = mobench("algorithm=epo", "--cfg", "job", "preferences=7")
    assert result.code == 0, result.err
    assert "count: 7" in result.out
    swept = mobench("algorithm=ls", "-m", *QUICK)
    assert swept.code == 0, swept.err


def test_start_up_imports_and_broken_pipe(tmp_path: Path) -> None:
    """Plain jobs import no plotting, no reference solver, no W&B; a reader that goes away is no error."""
    listing = tmp_path / "modules.json"
    code = (
        "import json, pathlib, sys\n"
        f"sys.argv = ['mobench', '-m', 'algorithm=ls,ferero', 'preferences=2', 'steps=3', 'logger=local']\n"
        "from mobench.cli.entry import main\n"
        "try:\n    main()\n"
        f"finally:\n    pathlib.Path({str(listing)!r}).write_text(json.dumps(sorted(sys.modules)))\n"
    )
    env = environment(tmp_path / "outputs") | {"CODE": code}
    # the reader is gone before the first line
    script = f'"{command()[0]}" -c "$CODE" | true; exit ${{PIPESTATUS[0]}}'
    done = process(["bash", "-c", script], env=env, cwd=tmp_path)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert len(list((tmp_path / "outputs").glob("runs/*/final.csv"))) == 2  # the work went on
    roots = {name.split(".")[0] for name in json.loads(listing.read_text())}
    assert "torch" in roots
    assert (
        roots & {"matplotlib", "cvxpy", "wandb", "pymoo", "sklearn", "torchvision", "joblib", "IPython"}
        == set()
    )


# sweeps


def test_sweep(mobench: Run) -> None:
    result = mobench("-m", "algorithm=ls,mgda,pmtl,epo,ferero", "problem=zdt2", *QUICK)
    assert result.code == 0, result.err
    assert result.out.startswith("5 jobs, 0 already finished, 5 to run")
    names = ["LS", "MGDA", "PMTL", "EPO", "FERERO"]
    assert [job.key.split("-")[1] for job in result.folders] == sorted(n.lower() for n in names)
    assert [
        f"ZDT2 {n}: algorithm={n.lower()} problem=zdt2 preferences.count=2" in result.out for n in names
    ] == [True] * 5
    again = mobench("-m", "algorithm=ls,mgda,pmtl,epo,ferero", "problem=zdt2", *QUICK)
    assert again.out.startswith("5 jobs, 5 already finished, 0 to run")
    assert again.out.count("hypervolume") == 5


def test_sweep_refuses_what_does_not_fit_and_runs_the_rest(mobench: Run) -> None:
    result = mobench("-m", "algorithm=ls,ferero,ferero_stochastic", "problem=zdt3", *QUICK)
    assert result.code == 2
    assert [job.key.split("-")[1] for job in result.folders] == ["ls"]
    assert result.folders[0].done
    assert result.err.count("mobench: error: not run:") == 2
    assert "FERERO is not compatible with ZDT3:\n  - it needs objectives >= 0" in result.err
    assert "2 independent samples" in result.err
    assert "Traceback" not in result.err


def test_sweep_with_unknown_choice_runs_nothing(mobench: Run) -> None:
    result = mobench("-m", "algorithm=ls,mdga", *QUICK)
    result.refused("algorithm='mdga'", "Did you mean 'mgda'?")
    assert result.folders == []


def test_failed_jobs_do_not_stop_a_sweep(mobench: Run, plug_in: str) -> None:
    result = mobench(
        "-m", plug_in, "algorithm=stubborn,broken,ls", "preferences=2", "steps=5", "logger=local"
    )
    assert result.code == 1
    status = {job.key.split("-")[1]: job.status()["status"] for job in result.folders}
    # a failed solve ends its run alone
    assert status == {"stubborn": "done", "broken": "failed", "ls": "done"}
    errors = [line for line in result.err.splitlines() if line.startswith("mobench: error:")]
    assert len(errors) == 2  # the list at the end
    assert "KeyError: 'lost'" in errors[0]
    assert "1 of 2 runs ended with a failed subproblem solve (run 1 at step 3" in errors[1]
    assert str(result.root / "runs" / "vlmop2-broken") in result.err


def test_hydra_writes_nothing_of_its_own(
    mobench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    mobench("-m", "algorithm=ls,mgda", *QUICK)
    assert list((tmp_path / "cwd").iterdir()) == []


ORACLES = {
    "problem=vlmop2": "Exact",
    "problem=multi_mnist": "Epochs",
    "problem=speech": "Minibatch",
    "problem=few_shot": "Hypergradient",
    "problem=federated": "LocalSteps",
    "problem=multi_mnist oracle=minibatch": "Minibatch",
    "protocol=mobl_few_shot_forum": "ValueGap",
}


@pytest.mark.parametrize("line", ORACLES)
def test_a_problem_chooses_its_oracle_unless_one_is_given(line: str) -> None:
    assert compose.compose(line.split())["oracle"]["_target_"] == f"mobench.oracles.{ORACLES[line]}"


def test_preferences_replace_those_of_a_protocol(mobench: Run) -> None:
    result = mobench("protocol=ferero_fig3", "algorithm=ls", "seeds=[0]", *QUICK)
    assert result.code == 0
    assert len(result.rows) == 2  # not the protocol's four rays
    result = mobench(
        "protocol=omd_tch_vlmop2", "algorithm=tch", "preferences.rays_deg=[20,40,60]", *QUICK[1:]
    )
    assert result.code == 0, result.err
