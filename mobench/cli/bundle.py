"""`mobench bundle` and `mobench verify`: a reviewer in a box."""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from mobench.cli import one_message
from mobench.errors import BundleError, ConfigError
from mobench.system.console import say
from mobench.system.files import write_atomic
from mobench.system.paths import outputs_root

SHOWN = 10  # artifacts, and claims, that are listed


def parsers() -> dict[str, argparse.ArgumentParser]:
    """Returns the parsers of both commands."""
    return {"bundle": _bundle_parser(), "verify": _verify_parser()}


def _bundle_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mobench bundle",
        description="Packs drawn artifacts into one file: rows, configurations, claims, figures, locked "
        "dependencies, and version of the code.",
    )
    add = parser.add_argument
    add(
        "ids",
        nargs="+",
        metavar="PAPER/ID",
        help="artifacts that have been drawn, such as csmoo/fig38; PAPER/all; PAPER/ID+SETTINGS, the "
        "name that a drawing with other settings has",
    )
    add("--output", type=Path, metavar="FILE", help="default: outputs/bundles/PAPER-ID.zip")
    add("--kept", action="store_true", help="artifacts drawn from kept rows (make kept)")
    add("--history", action="store_true", help="add the recorded steps of the jobs, which are large")
    return parser


def _verify_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mobench verify",
        description="Checks a bundle, computes its claims from its rows, then runs a random sample of the "
        "rows again. Exit code 0: no claim is different, and no row is outside of its interval; 1: some are, "
        "or no row could be run; 2: the bundle is refused.",
    )
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="what `mobench bundle` has made")
    add("--rows", type=int, default=20, help="rows of the sample (default 20); 0: run none")
    add("--seed", type=int, default=0, help="seed of the sample (default 0)")
    add("--job", metavar="KEY", help="sample rows of this job only")
    add("--minutes", type=float, help="leave out jobs that took longer than this when they were recorded")
    add(
        "--digest",
        metavar="SHA256",
        help="refuse a bundle with another digest than the one that was published",
    )
    return parser


@one_message
def bundle(arguments: Sequence[str]) -> int:
    """Runs `mobench bundle ARGUMENTS` and returns the exit code."""
    args = _bundle_parser().parse_args(list(arguments))
    from mobench.artifacts.freshness import others
    from mobench.bundle.archive import MANIFEST, digest, manifest, packed
    from mobench.bundle.build import build
    from mobench.bundle.contents import collected

    began = time.monotonic()
    contents = collected(args.ids, args.kept)
    files = build(contents, args.history)
    files[MANIFEST] = manifest(files)
    raw = packed(files)
    path = args.output or outputs_root() / "bundles" / f"{'+'.join(args.ids).replace('/', '-')}.zip"
    write_atomic(path, raw)
    say(
        f"{path}: {len(contents.artifacts)} artifacts, {len(contents.jobs)} jobs, {len(files)} files, "
        f"{len(raw) / 1e6:.1f} MB, {time.monotonic() - began:.1f} s"
    )
    for drawn in contents.artifacts[:SHOWN]:
        changed = " with other settings than the artifact's," if "+" in drawn.id else ""
        say(f"{drawn.id}:{changed} drawn by {drawn.command}")
        if unpacked := [] if args.kept else others(drawn.id):
            say(f"  not packed, drawn with other settings: {', '.join(unpacked)}")
    say(f"digest {digest(files)}; publish it beside the file: mobench verify --digest")
    return 0


@one_message
def verify(arguments: Sequence[str]) -> int:
    """Runs `mobench verify ARGUMENTS` and returns the exit code."""
    args = _verify_parser().parse_args(list(arguments))
    if args.rows < 0:
        raise ConfigError(f"--rows={args.rows} must be at least 0.")
    from mobench.bundle.archive import digest, unpacked

    began = time.monotonic()
    try:
        raw = args.file.read_bytes()
    except OSError as error:
        raise BundleError(f"{args.file} cannot be read: {error.strerror or error}.") from error
    files = unpacked(raw)
    if args.digest is not None and digest(files) != args.digest.lower():
        raise BundleError(
            f"The digest is {digest(files)}, and {args.digest} was expected: it is another bundle."
        )
    say(f"{args.file}: {len(files)} files, each as manifest.json says; digest {digest(files)}")
    from mobench.bundle.claims import DIFFERENT, outcomes
    from mobench.bundle.verify import NOT_RUN, OUTSIDE, jobs_of, rerun, sample

    with TemporaryDirectory(prefix="mobench-bundle-") as folder:
        jobs = jobs_of(files, Path(folder))
        judged = _computed_claims(outcomes(files, jobs))
        if not args.rows or not jobs:
            if not jobs:
                say("It has no jobs, so there are no rows to run again.")
            return int(judged[DIFFERENT] > 0)
        chosen, long = sample(jobs, args.rows, args.seed, args.minutes, args.job)
        if long:
            say(f"{long} rows of jobs that took more than {args.minutes:g} minutes are left out")
        data_root = os.environ.get("MOBENCH_DATA", "data")
        reruns = [rerun(jobs[key], numbers, data_root, say) for key, numbers in chosen.items()]
    rerun_rows = [one for outcomes_of_job in reruns for one in outcomes_of_job]
    count = Counter(one.outcome for one in rerun_rows)
    say(f"{len(rerun_rows)} rows run again: {_counted(count)}; {time.monotonic() - began:.0f} s")
    return int(judged[DIFFERENT] > 0 or count[OUTSIDE] > 0 or count[NOT_RUN] == len(rerun_rows))


def _computed_claims(claims: Iterable[tuple[str, str, str, str]]) -> Counter[str]:
    """Prints the outcomes of claims, those with the same words in a line, and returns how many have which."""
    from mobench.bundle.claims import AS_RECORDED

    count: Counter[str] = Counter()
    ids: dict[tuple[str, str, str], list[str]] = {}
    for drawing, id, outcome, words in claims:
        count[outcome] += 1
        if outcome != AS_RECORDED:
            ids.setdefault((outcome, drawing, words), []).append(id)
    for (outcome, drawing, words), several in ids.items():
        more = f" and {len(several) - SHOWN} more" if len(several) > SHOWN else ""
        say(f"{outcome:20s}{drawing}, {', '.join(several[:SHOWN])}{more}: {words}")
    say(f"{count.total()} claims beside the rows: {_counted(count) or 'none'}")
    return count


def _counted(count: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {outcome}" for outcome, n in count.items())
