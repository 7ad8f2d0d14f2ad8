"""The fault campaign: `python -m campaigns.faults --kills 200` (make faults), in part in the test suite.

Processes that run jobs are killed (SIGKILL) at random moments, again and again, until every job is done.
Then: no row of a job that had finished is lost, no folder is unreadable, and every job's rows are those of an
undisturbed run, bit for bit.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mobench.config.schema import choices
from mobench.jobs.run import run_job
from mobench.jobs.store import JobFolder
from tests.conftest import REPOSITORY, command, environment
from tests.test_runner import composed, same_rows

SMALL = ("preferences=3", "seeds=[0,1]", "checkpoint.seconds=0", "logger=local", "progress=false")
# every oracle and output rule that has a state of its own; steps for about a second of work
CASES: dict[str, tuple[str, ...]] = {
    "ls": ("algorithm=ls", "steps=3000"),
    "mgda": ("algorithm=mgda", "steps=1500"),
    "pmtl": ("algorithm=pmtl", "algorithm.phase1=0.5", "steps=1000"),
    "epo": ("algorithm=epo", "problem=zdt2", "problem.n=6", "steps=800"),
    "ferero": ("algorithm=ferero", "steps=800"),
    "ferero-pgd": ("algorithm=ferero", "algorithm.subproblem=pgd", "algorithm.inner_steps=20", "steps=300"),
    "ferero-sa": ("algorithm=ferero_sa", "steps=1500"),
    "ferero-stochastic": (
        "algorithm=ferero_stochastic",
        "problem=least_squares",
        "oracle=minibatch",
        "steps=800",
    ),
    "tch": ("algorithm=tch", "steps=2000"),
    "stch": ("algorithm=stch", "steps=2000"),
    "omd-tch": ("algorithm=omd_tch", "algorithm.outputs=[mean,adaptive,last,adaptive_two_pass]", "steps=600"),
    "omd-tch-eg": (
        "algorithm=omd_tch",
        "algorithm.mirror=eg",
        "algorithm.outputs=[mean,adaptive]",
        "steps=1000",
    ),
    "csmoo1": ("protocol=csmoo_synthetic", "algorithm=csmoo1", "steps=150"),
    "csmoo2": ("protocol=csmoo_synthetic", "algorithm=csmoo2", "steps=150"),
    "csmoo-basic": ("protocol=csmoo_synthetic", "algorithm=csmoo_basic", "steps=150"),
    "penalty-sgd": ("protocol=csmoo_synthetic", "algorithm=penalty_sgd", "steps=600"),
    "wc-mhgd": ("protocol=mobl_quadratic", "algorithm=wc_mhgd", "steps=200"),
    "moml": ("protocol=mobl_quadratic", "algorithm=mgda", "steps=200"),
    "moco": ("problem=bilevel_quadratic", "oracle=moco", "algorithm=moco", "steps=200"),
    "forum": ("problem=bilevel_quadratic", "oracle=value_gap", "algorithm=forum", "steps=200"),
    "epochs": ("algorithm=ls", "problem=least_squares", "oracle=epochs", "steps=1500"),
    "ema": ("algorithm=mgda", "problem=least_squares", "oracle=ema", "steps=1000"),
    "ema-tracked": ("algorithm=csmoo2", "problem=constrained_gaussian", "oracle=tracked_ema", "steps=150"),
    "hyper-cleaning": ("protocol=mobl_hyper_cleaning", "algorithm=wc_mhgd", "scale=smoke", "steps=60"),
    "few-shot": (
        "protocol=mobl_few_shot",
        "algorithm=mgda",
        "problem.episodes=named",
        "scale=smoke",
        "steps=10",
    ),
    "networks": ("protocol=multi_mnist", "algorithm=ferero_public_code", "scale=smoke", "steps=60"),
    "fedavg": ("protocol=federated", "algorithm=ls", "scale=smoke", "steps=20"),
    "fedfv": ("protocol=federated", "algorithm=fedfv", "scale=smoke", "steps=20"),
    "qffl": ("protocol=federated", "algorithm=qffl", "scale=smoke", "steps=20"),
    "propfair": ("protocol=federated", "algorithm=propfair", "scale=smoke", "steps=20"),
    "fedmgda-plus": ("protocol=federated", "algorithm=fedmgda_plus", "scale=smoke", "steps=20"),
    "ada-omd-tch": ("protocol=federated", "algorithm=ada_omd_tch", "scale=smoke", "steps=20"),
    "mlm-cmoo": ("algorithm=mlm_cmoo", "problem=ball_and_half_space", "steps=300"),
    "mlm-cmoo-capped": (
        "algorithm=mlm_cmoo",
        "problem=least_squares",
        "oracle=epochs",
        "constraint=loss_cap",
        "constraint.value=2.0",
        "algorithm.step_size=0.005",
        "steps=200",
    ),
    "nsga2": ("algorithm=nsga2", "problem=zdt1", "problem.n=6", "steps=100"),
    "nsga2-hybrid": (
        "algorithm=nsga2",
        "problem=least_squares",
        "oracle=epochs",
        "space=hybrid",
        "space.step=0.01",
        "steps=80",
    ),
    "modo": ("algorithm=modo", "problem=least_squares", "oracle=minibatch", "steps=150"),
    "psl": (
        "algorithm=psl",
        "algorithm.n_init=9",
        "algorithm.updates=5",
        "problem=vlmop2",
        "space=subspace",
        "space.k=3",
        "steps=4",
    ),
}
# the other algorithms, with little work each, for there are many
_COVERED = {word.removeprefix("algorithm=") for case in CASES.values() for word in case}
CASES |= {name: (f"algorithm={name}", "steps=150") for name in choices("algorithm") if name not in _COVERED}


@dataclass
class Tally:
    """Counts of a campaign, and the faults that it has shown."""

    kills: int = 0
    finished_before: int = 0  # kills that came too late
    resumed: int = 0  # kills with a checkpoint on disk
    writing: int = 0  # kills with a half-written file on disk
    requeued: int = 0  # jobs that Slurm put back into its queue
    jobs: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)


def forked(work: Callable[[], object], delay: float) -> bool:
    """Do `work` in a forked process and kill it after `delay` seconds; whether it was still at work."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    time.sleep(delay)
    gone, status = os.waitpid(pid, os.WNOHANG)
    if gone:
        assert status == 0, f"the job's process ended with status {status}"
        return False
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status)


def inspect(folder: JobFolder, before: bytes | None, tally: Tally) -> bytes | None:
    """After a kill: what must be true of the folder. Returns final.csv if the job is done."""
    if not folder.path.exists():
        return None
    state = folder.status()["status"]
    if state not in ("running", "done", "missing"):
        tally.faults.append(f"{folder.key}: status {state!r} after a kill: {folder.status()}")
    _, messages = folder.load_checkpoint()
    tally.faults += messages
    tally.resumed += any(folder.path.glob("checkpoint*.pt"))
    tally.writing += any(folder.path.glob(".*.tmp"))
    final = (folder.path / "final.csv").read_bytes() if folder.done else None
    if before is not None and final != before:
        tally.faults.append(f"{folder.key}: a finished row was lost")
    return final


def same(a: Path, b: Path, tally: Tally) -> None:
    """Two folders of one job have the same rows."""
    try:
        same_rows(JobFolder(a), JobFolder(b))
    except AssertionError as error:
        tally.faults.append(f"{a.name}: rows differ from an undisturbed run: {error}")


def kill_jobs(
    cases: Sequence[str],
    kills: int,
    root: Path,
    seed: int = 0,
    each: int = 8,
    say: Callable[[str], None] = print,
) -> Tally:
    """Kills single jobs of these cases in turn until there were so many kills.

    A job is killed at most `each` times and then ends.
    """
    rng = random.Random(seed)
    tally = Tally()
    began = time.monotonic()
    round_ = 0
    while tally.kills < kills:
        for name in cases:
            if tally.kills >= kills:
                break
            has_protocol = CASES[name][0].startswith("protocol=")  # brings preferences and seeds of its own
            config = composed(*CASES[name], *(SMALL[2:] if has_protocol else SMALL))
            whole = run_job(config, root / f"whole-{round_}")
            assert whole.status == "done", whole.error
            length = float(JobFolder(whole.folder).meta()["seconds_wall"])
            target = root / f"killed-{round_}"
            folder = JobFolder(target / "runs" / whole.key)
            final = None
            here = 0
            for _ in range(each):
                if tally.kills >= kills or folder.done:
                    break
                pause = rng.uniform(0.0, 1.1 * length)
                if forked(lambda c=config, t=target: run_job(c, t), pause):  # type: ignore[misc]
                    tally.kills = tally.kills + 1
                    here = here + 1
                else:
                    tally.finished_before += 1
                final = inspect(folder, final, tally)
            done = run_job(config, target)
            if done.status != "done":
                tally.faults.append(f"{folder.key} did not finish: {done.error}")
                continue
            final = inspect(folder, final, tally)
            run_job(config, target)  # finished: nothing may be written again
            inspect(folder, final, tally)
            same(whole.folder, done.folder, tally)
            tally.jobs += 1
            say(f"{name}: {here} kills in a job of {length:.1f} s; {tally.kills} of {kills}")
            shutil.rmtree(target)
            shutil.rmtree(root / f"whole-{round_}")
        round_ += 1
    tally.seconds = time.monotonic() - began
    return tally


def children(pid: int) -> list[int]:
    """Processes below one, from /proc."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents.setdefault(int(fields[1]), []).append(int(entry.name))
    descendants = []
    stack = [pid]
    while stack:
        below = parents.get(stack.pop(), [])
        descendants += below
        stack += below
    return descendants


SWEEP = (
    "algorithm=ls,mgda,ferero,epo,pmtl,omd_tch,tch,stch",
    "steps=8000",
    *SMALL[:2],
    "checkpoint.seconds=0.1",
    *SMALL[3:],
)


def kill_sweeps(
    launcher: Sequence[str], kills: int, root: Path, seed: int = 0, say: Callable[[str], None] = print
) -> Tally:
    """Kills random processes of a sweep, workers included, and repeats the command until it ends with 0."""
    rng = random.Random(seed)
    tally = Tally()
    began = time.monotonic()
    line = ["-m", *SWEEP]
    whole = subprocess.run(
        command(*line), env=environment(root / "whole"), capture_output=True, text=True, check=False
    )
    assert whole.returncode == 0, whole.stderr
    while tally.kills < kills:
        target = root / f"killed-{tally.jobs}"
        code = 1
        finals: dict[str, bytes | None] = {}
        for attempt in range(30):
            # no pipe: workers that outlive their sweep would hold it open
            with (root / "sweep.log").open("w") as log:
                process = subprocess.Popen(
                    command(*line, *launcher),
                    env=environment(target),
                    cwd=root,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            while process.poll() is None and attempt < 20 and tally.kills < kills:
                time.sleep(rng.uniform(1.0, 8.0))
                if process.poll() is None:
                    victims = [process.pid, *children(process.pid)]
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(rng.choice(victims), signal.SIGKILL)
                        tally.kills += 1
            code = process.wait(300)
            for path in (target / "runs").glob("*"):
                finals[path.name] = inspect(JobFolder(path), finals.get(path.name), tally)
            until = time.monotonic() + 60  # workers whose sweep is gone end on their own
            while any(JobFolder(p).held for p in (target / "runs").glob("*")) and time.monotonic() < until:
                time.sleep(0.5)
            if code == 0:
                break
        if code != 0:
            tally.faults.append(f"the sweep never ended well: {(root / 'sweep.log').read_text()[-1000:]}")
        for path in sorted((root / "whole/runs").iterdir()):
            same(path, target / "runs" / path.name, tally)
        tally.jobs += 8
        say(f"{' '.join(launcher) or 'basic'}: {tally.kills} of {kills} kills")
    tally.seconds = time.monotonic() - began
    return tally


@contextlib.contextmanager
def slurm(base: Path) -> Iterator[dict[str, str]]:
    """Starts a Slurm; yields the environment in which its commands find it.

    Raises RuntimeError with the reason if it cannot be.
    """
    if os.getuid() != 0:
        raise RuntimeError("starting Slurm's daemons needs root")
    missing = [
        name for name in ("slurmctld", "slurmd", "munged", "sbatch", "srun") if shutil.which(name) is None
    ]
    if missing:
        raise RuntimeError(f"{', '.join(missing)} not found (Debian: slurm-wlm and munge)")
    scripts = REPOSITORY / "tests/slurm"
    try:
        start = [str(scripts / "start.sh"), str(base), str(random.SystemRandom().randrange(20000, 30000, 2))]
        done = subprocess.run(start, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise RuntimeError(f"Slurm did not start: {done.stderr[-2000:]}")
        yield {"SLURM_CONF": str(base / "slurm.conf"), "PATH": f"{scripts / 'bin'}:{os.environ['PATH']}"}
    finally:
        subprocess.run([str(scripts / "stop.sh"), str(base)], timeout=60, check=False)


ON_SLURM = ("hardware=slurm", "hydra.launcher.mem_gb=1", "hardware.retries=20")


def disturb_slurm(
    line: Sequence[str],
    root: Path,
    env: dict[str, str],
    *,
    kills: int,
    preemptions: int,
    evictions: int = 0,
    seed: int = 0,
    say: Callable[[str], None] = print,
) -> Tally:
    """A sweep on Slurm beside an undisturbed one without it.

    While it runs, at random: jobs get the signal before the end of their time (they save, and go back into
    the queue), are killed (the sweep launches them again), or another partition takes the node away
    (evictions).
    """
    rng = random.Random(seed)
    tally = Tally()
    began = time.monotonic()
    line = ["-m", *line]
    whole = subprocess.run(
        command(*line), env=environment(root / "whole"), capture_output=True, text=True, check=False
    )
    assert whole.returncode == 0, whole.stderr
    target = root / "slurm"
    log = root / "sweep.log"
    plan = ["kill"] * kills + ["signal"] * preemptions + ["evict"] * evictions
    rng.shuffle(plan)
    done_early: dict[str, bytes] = {}
    disturbed: dict[str, int] = {}
    with log.open("w") as out:
        process = subprocess.Popen(
            command(*line, *ON_SLURM),
            env=environment(target, **env),
            cwd=root,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        while process.poll() is None:
            time.sleep(rng.uniform(0.3, 2.0))
            for path in (target / "runs").glob("*"):
                if JobFolder(path).done:
                    final = (path / "final.csv").read_bytes()
                    if done_early.setdefault(path.name, final) != final:
                        tally.faults.append(f"{path.name}: a finished row was lost")
            at_work = [
                f
                for p in (target / "runs").glob("*")
                if (f := JobFolder(p)).held and f.status()["status"] == "running"
            ]
            if not plan or not at_work:
                continue
            folder = rng.choice(at_work)
            now = folder.status()
            # one that was disturbed may still be on its way out: it is left alone until another process has
            # it
            if not (folder.path / "checkpoint.pt").exists() or disturbed.get(folder.key) == now["pid"]:
                continue
            what = plan[-1]
            with contextlib.suppress(ProcessLookupError):
                if what == "kill":
                    os.kill(int(now["pid"]), signal.SIGKILL)
                elif what == "signal":
                    os.kill(int(now["pid"]), signal.SIGUSR2)
                else:
                    hold = ["sbatch", "-p", "high", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 3"]
                    subprocess.run(hold, env=environment(target, **env), capture_output=True, check=True)
                hit = at_work if what == "evict" else [folder]
                disturbed |= {f.key: int(f.status().get("pid", 0)) for f in hit}
                plan.pop()
                tally.kills += 1
                say(f"{what}: {folder.key} at step {now.get('step')}")
    query = ["scontrol", "--oneliner", "show", "jobs"]
    listing = subprocess.run(
        query, env=environment(target, **env), capture_output=True, text=True, check=True
    )
    tally.requeued = sum(int(n) for n in re.findall(r"Restarts=(\d+)", listing.stdout))
    if plan:
        tally.faults.append(f"the sweep was over before {len(plan)} of the disturbances")
    if process.returncode:
        tally.faults.append(f"the sweep ended with {process.returncode}: {log.read_text()[-2000:]}")
    for path in sorted((root / "whole/runs").iterdir()):
        if not JobFolder(target / "runs" / path.name).done:
            tally.faults.append(f"{path.name} is not done: {JobFolder(target / 'runs' / path.name).status()}")
        else:
            same(path, target / "runs" / path.name, tally)
        tally.jobs += 1
    tally.seconds = time.monotonic() - began
    return tally


TWENTY_FOUR = (
    "algorithm=ls,mgda,ferero,epo,pmtl,omd_tch",
    "seeds=[0],[1],[2],[3]",
    "preferences=3",
    "steps=6000",
    "checkpoint.seconds=0.5",
    "logger=local",
    "progress=false",
)


LAUNCHERS = {
    "joblib": ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2"),
    "submitit_local": ("hydra/launcher=submitit_local",),
}


def main() -> int:
    """Run the campaign and write docs/reliability.md."""
    parser = argparse.ArgumentParser(
        prog="python -m campaigns.faults", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument(
        "--kills", type=int, default=200, help="in all: four fifths in single jobs, the rest in sweeps"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="the page to write, such as docs/reliability.md")
    parser.add_argument("--each", type=int, default=8, help="kills of one job at most, before it ends")
    parser.add_argument("--only", choices=("jobs", "sweeps", "slurm"), help="a part of the campaign")
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="mobench-faults-"))
    rows: list[tuple[str, Tally]] = []
    try:
        swept = options.kills // 10
        if options.only in (None, "jobs"):
            kills = options.kills if options.only else options.kills - 2 * swept
            rows.append(
                (
                    "single jobs, one process each",
                    kill_jobs(list(CASES), kills, base / "jobs", options.seed, options.each),
                )
            )
        for name, launcher in LAUNCHERS.items() if options.only in (None, "sweeps") else ():
            (base / name).mkdir()
            rows.append(
                (f"sweeps of 8 jobs with {name}", kill_sweeps(launcher, swept, base / name, options.seed))
            )
        if options.only in (None, "slurm"):
            (base / "slurm").mkdir()
            try:
                with slurm(base / "daemons") as env:
                    tally = disturb_slurm(
                        TWENTY_FOUR,
                        base / "slurm",
                        env,
                        kills=8,
                        preemptions=8,
                        evictions=2,
                        seed=options.seed,
                    )
                rows.append(("24 jobs on a real single-node Slurm", tally))
            except RuntimeError as reason:
                print(f"no Slurm: {reason}")
    finally:
        shutil.rmtree(base, ignore_errors=True)
    text = page(rows, options.kills, options.seed)
    print(text)
    if options.output:
        options.output.write_text(text)
    return 1 if any(tally.faults for _, tally in rows) else 0


def page(rows: Sequence[tuple[str, Tally]], kills: int, seed: int) -> str:
    """docs/reliability.md."""
    from mobench.system import provenance

    where = provenance.stamp()
    lines = [
        "# Reliability",
        "",
        f"Do not edit this page. `make faults` (`python -m campaigns.faults --kills {kills} --seed {seed}`) "
        f"writes it. Commit {str(where['git_sha'])[:10]}{' and changes' if where['git_dirty'] else ''}, "
        f"{where['date'][:10]}.",
        "",
        "Processes are killed (SIGKILL) at random moments and restarted with the same command until all "
        "jobs are done. On Slurm, some jobs also receive the signal that announces their time limit "
        "(USR2), or lose the node to another partition; both are requeued. A fault is a lost row of a "
        "finished job, a folder that cannot be loaded or resumed, or a job whose rows (`final.csv`, "
        "`history.parquet`, solutions) differ in any bit from those of an undisturbed run.",
        "",
        "| what | disturbances | with a checkpoint on disk | with a half-written file on disk | requeued by "
        "Slurm | jobs compared | faults | minutes |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, t in rows:
        on_disk = (
            [t.resumed, t.writing]
            if name.startswith("single")
            else ["all", "–"]
            if "Slurm" in name
            else ["–", "–"]
        )
        counts = [*on_disk, t.requeued if "Slurm" in name else "–"]
        numbers = [t.kills, *counts, t.jobs, len(t.faults), f"{t.seconds / 60:.1f}"]
        lines.append(f"| {name} | {' | '.join(map(str, numbers))} |")
    lines += ["", *(f"- fault: {fault}" for _, t in rows for fault in t.faults)]
    lines += [
        f"The single jobs cycle through {len(CASES)} kinds: {', '.join(CASES)}.",
        "",
        "`make nightly` kills six kinds of jobs, and `make test` tests what the campaign cannot reach: full "
        "disks, read-only folders, truncated files, a clock that jumps, two processes on one folder "
        "(`tests/test_runner.py`, `test_store.py`, `test_survival.py`).",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
