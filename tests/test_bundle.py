"""A bundle: what it holds, that anything changed in it is refused by name, and that its rows run again."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from mobench.bundle import archive, claims, verify
from mobench.bundle.build import build
from mobench.bundle.contents import collected
from mobench.cli import bundle as command
from mobench.errors import BundleError, StoreError
from tests.conftest import Run, in_process

ID = "ferero/fig7"
Files = dict[str, bytes]
DRAWN: list[Any] = []  # claims and table of the unchanged rows
FIELDS = (
    "statement",
    "source",
    "published",
    "measured",
    "tolerance",
    "scale",
    "verdict",
    "reason",
    "timed",
    "jobs",
)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Outputs in which one artifact was drawn at smoke scale."""
    root = tmp_path_factory.mktemp("bundle") / "outputs"
    with pytest.MonkeyPatch.context() as patch:
        assert in_process(root, (f"+experiment={ID}", "scale=smoke", "logger=local"), patch) == 0
    return root


@pytest.fixture(scope="module")
def files(outputs: Path) -> Files:
    """The files of its bundle, with the manifest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOBENCH_OUTPUTS", str(outputs))
        made = build(collected([ID]))
    return {**made, archive.MANIFEST: archive.manifest(made)}


@pytest.fixture(scope="module")
def raw(files: Files) -> bytes:
    return archive.packed(files)


def remade(files: Files, **changed: bytes) -> bytes:
    """A bundle of changed files whose manifest fits them, as a forger would make it."""
    contents = {name: data for name, data in files.items() if name != archive.MANIFEST} | changed
    return archive.packed(contents)


# --- what it holds ------------------------------------------------------------------------------------------


def test_the_same_rows_give_the_same_bytes(files: Files, raw: bytes) -> None:
    assert archive.unpacked(raw) == files
    shuffled = dict(random.Random(0).sample(list(files.items()), len(files)))
    assert archive.packed(shuffled) == raw


def test_claims_lead_to_rows(files: Files) -> None:
    document = json.loads(files["claims.json"])
    (claim,) = document["claims"]
    assert len(claim["jobs"]) == 2
    for key in claim["jobs"]:
        job = document["jobs"][key]
        assert len(pd.read_csv(io.BytesIO(files[job["rows"]]))) == job["count"]
        assert yaml.safe_load(files[job["configuration"]])["seeds"] == job["seeds"]
        (said,) = job["commands"]
        (run,) = job["names"]
        assert said == f"mobench +experiment={ID} scale=smoke 'artifact.only=[{run['name']}]'"


def test_nothing_of_this_machine_is_in_it(files: Files) -> None:
    for name in [n for n in files if n.startswith("runs/") and n.endswith((".json", ".yaml"))]:
        text = files[name].decode()
        assert os.uname().nodename not in text
        assert str(Path.cwd()) not in text
        assert '"pid"' not in text


def test_what_was_not_drawn_is_refused(outputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(outputs))
    with pytest.raises(
        BundleError, match=r"ferero/fig3 has not been drawn .* mobench \+experiment=ferero/fig3"
    ):
        collected(["ferero/fig3"])
    with pytest.raises(BundleError, match=r"ferero/fgi7 is no artifact\. Did you mean 'ferero/fig7'"):
        collected(["ferero/fgi7"])
    assert [drawn.id for drawn in collected(["ferero/all"]).artifacts] == [ID]


def test_rows_that_changed_after_the_drawing_are_refused(
    outputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(outputs))
    path = next((outputs / "runs").glob("*/final.csv"))
    before = path.stat()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    try:
        with pytest.raises(BundleError, match=f"Rows of {ID} have changed since it was drawn"):
            collected([ID])
    finally:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_file_of_another_job_is_refused(
    outputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its size and its times are those of the file that was there."""
    root = tmp_path / "outputs"
    shutil.copytree(outputs, root)
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(root))
    assert build(collected([ID]))
    for name in ("meta.json", "final.csv"):
        path = next((root / "runs").glob(f"*/{name}"))
        data = path.read_bytes()
        before = path.stat()
        path.write_bytes(data[:-3] + b"123")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        error, words = (BundleError, ID) if name == "final.csv" else (StoreError, name)
        with pytest.raises(error, match=words):
            build(collected([ID]))
        path.write_bytes(data)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert build(collected([ID]))


# --- tampering ----------------------------------------------------------------------------------------------


def zipped(files: Files) -> bytes:
    """A plain archive of any files, whatever their manifest says."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        for name, data in files.items():
            made.writestr(name, data)
    return buffer.getvalue()


@pytest.mark.parametrize("pattern", ["final.csv", "config.yaml", "meta.json", "claims.json", "solutions"])
def test_changed_files_are_refused_by_name(pattern: str, files: Files) -> None:
    name = next(n for n in sorted(files) if pattern in n)
    for place in (0, len(files[name]) // 2, -1):
        data = bytearray(files[name])
        data[place] ^= 1
        with pytest.raises(BundleError, match=f"{re.escape(name)} differs from what manifest.json says"):
            archive.unpacked(zipped({**files, name: bytes(data)}))


@pytest.mark.parametrize(
    "name", ["../evil.json", "runs/../../evil.json", "..\\evil.json", "/etc/evil.json", "C:/evil.json"]
)
def test_names_that_leave_the_folder_are_refused(name: str, files: Files) -> None:
    """Also where the manifest lists them."""
    with pytest.raises(BundleError, match="is a name that leaves the folder"):
        archive.unpacked(remade(files, **{name: b"{}"}))


def test_archives_that_do_not_fit_their_manifest(files: Files, raw: bytes) -> None:
    name = next(n for n in files if n.startswith("runs/"))
    listed = json.loads(files[archive.MANIFEST])
    cases = {
        f"{re.escape(name)} is missing": zipped({n: data for n, data in files.items() if n != name}),
        "manifest.json is missing": zipped({n: d for n, d in files.items() if n != archive.MANIFEST}),
        "more.json was added": zipped({**files, "more.json": b"{}"}),
        "has format 2": zipped({**files, archive.MANIFEST: archive.document({**listed, "format": 2})}),
        "does not list files": zipped({**files, archive.MANIFEST: b"[1]"}),
        "is not valid JSON": zipped({**files, archive.MANIFEST: b"{"}),
    }
    for reason, tampered in cases.items():
        with pytest.raises(BundleError, match=reason):
            archive.unpacked(tampered)
    for broken in (b"", raw[: len(raw) // 2], raw[: len(raw) // 3] + b"x" + raw[len(raw) // 3 + 1 :]):
        with pytest.raises(BundleError, match=r"the file is damaged|differs from what"):
            archive.unpacked(broken)


def test_a_damaged_compressed_entry_is_refused() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_LZMA) as other:
        other.writestr("a", bytes(range(100)))
    raw = bytearray(buffer.getvalue())
    raw[45] ^= 0xFF
    with pytest.raises(BundleError, match="This is no bundle"):
        archive.unpacked(bytes(raw))


def without_column(data: bytes) -> bytes:
    frame = pd.read_csv(io.BytesIO(data)).rename(columns={"run": "ran"})
    return frame.to_csv(index=False).encode()


CONTRADICTIONS: dict[str, tuple[str, Any, str]] = {
    "another type": ("meta.json", lambda d: d.replace(b'"float64"', b'"int8"'), "meta.json has dtype='int8'"),
    "no versions": ("meta.json", lambda d: d.replace(b'"versions"', b'"verses"'), "versions is missing"),
    "no column of runs": ("final.csv", without_column, "final.csv lacks run."),
    "no rows": ("final.csv", lambda _: b"", "the bundle is damaged or was changed"),
    "an alias": ("config.yaml", lambda _: b"a: &one 1\nb: *one\n", "has YAML aliases"),
    "a list": ("config.yaml", lambda _: b"[1]\n", "config.yaml"),
    "no problem": ("config.yaml", lambda _: b"steps: 3\n", "config.yaml lacks problem, algorithm"),
    "a number for a problem": ("config.yaml", lambda _: b"problem: 3\nalgorithm: 4\n", "not run"),
    "a folder in the job": ("more/file", lambda _: b"1", "is no file of a job"),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_contradictions_are_one_message(
    case: str, files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A forger's bundle, whose manifest fits it; nothing ends in a traceback."""
    ending, change, words = CONTRADICTIONS[case]
    key = next(name for name in files if name.startswith("runs/")).split("/")[1]
    kept = {name: data for name, data in files.items() if name != f"runs/{key}/status.json"}
    name = f"runs/{key}/{ending}"
    path = tmp_path / "forged.zip"
    path.write_bytes(remade(kept, **{name: change(kept.get(name, b""))}))
    code = command.verify([str(path), "--job", key])
    shown = capsys.readouterr()
    assert words in shown.out + shown.err
    assert code == (1 if case == "a number for a problem" else 2)
    assert "mobench-bundle-" not in shown.out + shown.err


def test_another_digest_than_the_published_one_is_refused(
    files: Files, raw: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is what finds a bundle in which all files and their manifest were written anew."""
    path = tmp_path / "forged.zip"
    path.write_bytes(remade(files, **{"README.md": files["README.md"] + b"More.\n"}))
    assert command.verify([str(path), "--rows", "0"]) == 0
    assert command.verify([str(path), "--rows", "0", "--digest", archive.digest(files)]) == 2
    assert "it is another bundle" in capsys.readouterr().err


def test_rows_that_belong_to_no_job_are_not_bundled() -> None:
    with pytest.raises(BundleError, match=r"The rows of cross/zoo are not those of jobs but lie in"):
        collected(["cross/zoo"])


# --- claims computed again ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(outputs: Path) -> Files:
    """The files of its bundle with the recorded steps, from which its claim is computed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOBENCH_OUTPUTS", str(outputs))
        return build(collected([ID]), history=True)


def computed(files: Files, folder: Path) -> list[tuple[str, str, str]]:
    """Id, outcome and words of each claim."""
    found = claims.outcomes(files, verify.jobs_of(files, folder))
    return [(id, outcome, words) for _, id, outcome, words in found]


def edited(files: Files, name: str, change: Callable[[Any], None]) -> Files:
    document = json.loads(files[name])
    change(document)
    return {**files, name: archive.document(document)}


@pytest.fixture
def once(whole: Files, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Draws the artifact of the unchanged rows once for all tests, which change claims alone."""
    if not DRAWN:
        jobs = verify.jobs_of(whole, tmp_path_factory.mktemp("once"))
        DRAWN.append(claims._computed(ID, claims._artifacts(whole)[ID], jobs))
    monkeypatch.setattr(claims, "_computed", lambda *_: DRAWN[0])


def test_claims_follow_from_the_rows(whole: Files, files: Files, tmp_path: Path) -> None:
    ((_, outcome, words),) = computed(whole, tmp_path / "whole")
    assert (outcome, words) == (claims.AS_RECORDED, "")
    ((_, outcome, words),) = computed(files, tmp_path / "files")
    assert outcome == claims.NOT_COMPUTED
    assert "mobench bundle --history" in words


def top(document: Any) -> Any:
    return document["claims"]


def own(document: Any) -> Any:
    return document


@pytest.mark.parametrize(("name", "listed"), [("claims.json", top), (f"artifacts/{ID}/claims.json", own)])
@pytest.mark.parametrize("key", FIELDS)
@pytest.mark.usefixtures("once")
def test_a_changed_claim_is_different(
    name: str, listed: Callable[[Any], Any], key: str, whole: Files, tmp_path: Path
) -> None:
    forged = edited(whole, name, lambda document: listed(document)[0].update({key: "reproduced: 1.0"}))
    ((_, outcome, words),) = computed(forged, tmp_path)
    assert outcome == claims.DIFFERENT
    assert f"{key} was 'reproduced: 1.0' and is " in words


@pytest.mark.parametrize(("name", "listed"), [("claims.json", top), (f"artifacts/{ID}/claims.json", own)])
@pytest.mark.usefixtures("once")
def test_claims_that_are_left_out_or_added_are_different(
    name: str, listed: Callable[[Any], Any], whole: Files, tmp_path: Path
) -> None:
    without = edited(whole, name, lambda document: listed(document).clear())
    ((_, outcome, words),) = computed(without, tmp_path / "without")
    assert (outcome, words) == (claims.DIFFERENT, "the claim is left out")
    more = edited(
        whole, name, lambda document: listed(document).append({**listed(document)[0], "id": "more"})
    )
    found = {id: (outcome, words) for id, outcome, words in computed(more, tmp_path / "more")}
    assert found.pop("more") == (claims.DIFFERENT, "the artifact has no such claim")
    assert {outcome for outcome, _ in found.values()} == {claims.AS_RECORDED}


def test_a_forged_verdict_has_an_exit_code(
    whole: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bundle.zip"
    path.write_bytes(archive.packed(whole))
    assert command.verify([str(path), "--rows", "0"]) == 0
    assert "1 claims beside the rows: 1 as recorded" in capsys.readouterr().out
    forged = edited(whole, "claims.json", lambda document: document["claims"][0].update(verdict="reproduced"))
    path.write_bytes(remade(forged))
    assert command.verify([str(path), "--rows", "0"]) == 1
    assert re.search(r"different +ferero/fig7, .*: verdict was 'reproduced' and is", capsys.readouterr().out)


def test_a_changed_table_is_different(whole: Files, tmp_path: Path) -> None:
    name = f"artifacts/{ID}/table.csv"
    found = computed({**whole, name: whole.get(name, b"") + b"1\n"}, tmp_path)
    assert {id: outcome for id, outcome, _ in found} == {
        "curves-agree": claims.AS_RECORDED,
        "table.csv": claims.DIFFERENT,
    }


@pytest.mark.parametrize(
    "word",
    [
        "algorithm._target_=tests.plugin.Nothing",
        "problem=own.py:make",
        "problem=own.py",
        "problem=/own.py",
        "oracle=../../../own",
        "problem=../../own",
        "algorithm=own/evil",
        "problem={_target_:tests.plugin.Nothing}",
        "+hydra.run=[elsewhere]",
        "seeds=${oc.env:HOME}",
        "+experiment=../../own",
        "x.y=[own.py]'",
    ],
)
def test_words_that_could_name_a_file_or_a_class_are_not_followed(
    word: str, whole: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of others' is composed or built."""
    monkeypatch.setattr(claims, "made", lambda *_: pytest.fail("the command was followed"))

    def change(document: Any) -> None:
        document["artifacts"][ID]["command"] += f" {word}"

    ((_, outcome, words),) = computed(edited(whole, "claims.json", change), tmp_path)
    assert outcome == claims.NOT_COMPUTED
    assert "must not decide" in words or "its command is none" in words


@pytest.mark.parametrize("word", ["+experiment=csmoo/fig3", "algorithm.step_size=0.5", "seeds=[3]"])
def test_another_command_is_not_that_of_the_rows(word: str, whole: Files, tmp_path: Path) -> None:
    def change(document: Any) -> None:
        document["artifacts"][ID]["command"] += f" '{word}'"

    ((_, outcome, words),) = computed(edited(whole, "claims.json", change), tmp_path)
    assert outcome == claims.NOT_COMPUTED
    assert re.search("would be another job|Multiple values for experiment", words), words


def test_a_job_more_is_not_judged(whole: Files, tmp_path: Path) -> None:
    def change(document: Any) -> None:
        jobs = document["artifacts"][ID]["jobs"]
        jobs["more"] = next(iter(jobs.values()))

    ((_, outcome, words),) = computed(edited(whole, "claims.json", change), tmp_path)
    assert (outcome, "more would be another job" in words) == (claims.NOT_COMPUTED, True)


def test_jobs_under_other_names_are_not_judged(whole: Files, tmp_path: Path) -> None:
    def change(document: Any) -> None:
        jobs = document["artifacts"][ID]["jobs"]
        document["artifacts"][ID]["jobs"] = dict(zip(jobs, reversed(jobs.values()), strict=True))

    ((_, outcome, words),) = computed(edited(whole, "claims.json", change), tmp_path)
    assert outcome == claims.NOT_COMPUTED
    assert "would be another job" in words


def twice(document: Any) -> None:
    document["claims"] *= 2


def named(document: Any) -> None:
    document["claims"][0]["id"] = "\x1b[2K"


@pytest.mark.parametrize("change", [twice, named])
def test_claims_with_one_id_or_unprintable_ones_are_refused(
    change: Callable[[Any], None], whole: Files, tmp_path: Path
) -> None:
    with pytest.raises(BundleError, match=r"same id|is no name"):
        computed(edited(whole, "claims.json", change), tmp_path)


@pytest.mark.parametrize("document", [b"[]", b"{}", b"{", b'{"artifacts": {"ferero/fig7": 3}, "claims": []}'])
def test_claims_of_another_form_are_refused(document: bytes, whole: Files, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="not as `mobench bundle` writes them"):
        computed({**whole, "claims.json": document}, tmp_path)


# --- rows run again -----------------------------------------------------------------------------------------


def test_rows_run_again_are_identical(
    raw: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path / "outputs"))
    path = tmp_path / "bundle.zip"
    path.write_bytes(raw)
    assert command.verify([str(path)]) == 0
    said = capsys.readouterr().out
    assert "2 rows run again: 2 identical" in said
    assert "same processor model and versions" in said
    assert not (tmp_path / "outputs").exists()  # nothing is written but in a temporary folder


def test_forged_rows_are_outside(
    files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(tmp_path / "outputs"))
    key = json.loads(files["claims.json"])["claims"][0]["jobs"][0]
    name = f"runs/{key}/final.csv"
    frame = pd.read_csv(io.BytesIO(files[name]))
    frame["f_1"] *= 1 + 1e-6
    rows = frame.to_csv(index=False, float_format="%.17g").encode()
    status = json.loads(files[f"runs/{key}/status.json"])
    status["sha256"]["final.csv"] = hashlib.sha256(rows).hexdigest()
    path = tmp_path / "forged.zip"
    path.write_bytes(remade(files, **{name: rows}))
    assert command.verify([str(path), "--job", key]) == 2  # status.json has the hash, too
    assert "final.csv is not the file that the job wrote" in capsys.readouterr().err
    path.write_bytes(remade(files, **{name: rows, f"runs/{key}/status.json": archive.document(status)}))
    assert command.verify([str(path), "--job", key]) == 1
    assert re.search(
        r"outside +vlmop2-.*: f_1 was 0\.\d+ and is 0\.\d+; 0\.\d+ is not in", capsys.readouterr().out
    )


@pytest.mark.parametrize(
    "target",
    [
        "subprocess.Popen",
        "mobench.system.provenance.subprocess.run",
        "mobench.system.paths.Path",
        "mobench.system.signals.Signals",  # mobench's own, but no part of a job
        "mobench.problems.multi_mnist.torch.nn.Linear",
        "os.system",
        7,
    ],
)
def test_classes_of_others_are_not_built(target: Any) -> None:
    config = {"problem": {"_target_": "mobench.problems.vlmop2.VLMOP2", "part": {"_target_": target}}}
    with pytest.raises(BundleError, match=r"config\.problem\.part names .*the job is not run"):
        verify.runnable(config)
    verify.runnable({"problem": {"_target_": "mobench.problems.vlmop2.VLMOP2"}})


def test_a_changed_configuration_is_another_job(files: Files, tmp_path: Path) -> None:
    key = json.loads(files["claims.json"])["claims"][0]["jobs"][0]
    job = verify.jobs_of(files, tmp_path)[key]
    job.config["algorithm"]["step_size"] *= 2
    (result,) = verify.rerun(job, [0], "data", lambda line: None)
    assert result.outcome == verify.NOT_RUN
    assert "config.yaml is the configuration of vlmop2-ferero-" in result.words


def frame_of(values: np.ndarray) -> pd.DataFrame:
    frame = pd.DataFrame({"run": range(len(values)), "seed": range(len(values)), "output": "last"})
    frame = frame.assign(preference_1=0.5, f_1=values, seconds=1.0)
    return frame.assign(kkt_residual_max=1e-17, status="done")


def outcome(recorded: pd.DataFrame, again: pd.DataFrame, row: int = 0) -> str:
    (result,) = verify.compared("job", recorded, again, [row], float(np.finfo(float).eps))
    return result.outcome


def test_the_three_outcomes() -> None:
    recorded = frame_of(np.array([1.0, 1.1, 0.9, 1.05, 0.95]))
    times = recorded.assign(seconds=2.0, kkt_residual_max=3e-17)
    assert outcome(recorded, times) == verify.IDENTICAL
    near = recorded.assign(f_1=recorded["f_1"] + 0.05)
    assert outcome(recorded, near) == verify.INSIDE
    assert outcome(recorded, recorded.assign(f_1=recorded["f_1"] + 0.5)) == verify.OUTSIDE
    assert outcome(recorded, recorded.assign(status="diverged")) == verify.OUTSIDE
    assert outcome(recorded, recorded.assign(f_1=np.nan)) == verify.OUTSIDE
    assert outcome(recorded, recorded.assign(seed=range(1, 6))) == verify.OUTSIDE
    assert outcome(recorded, recorded.assign(recorded_since=1.0)) == verify.IDENTICAL
    assert outcome(recorded, recorded.drop(columns="f_1")) == verify.OUTSIDE
    one = recorded.iloc[:1]  # no interval but rounding
    assert outcome(one, near.iloc[:1]) == verify.OUTSIDE
    assert outcome(one, one.assign(f_1=1.0 + 1e-9)) == verify.INSIDE
    assert outcome(one, one.assign(f_1=1.0 + 1e-7)) == verify.OUTSIDE


def test_seeds_with_other_settings_are_no_seeds_of_a_row() -> None:
    """`vary` has runs of several step sizes in one job."""
    again = frame_of(np.array([1.0, 1.1, 3.0, 3.1]))
    again.insert(3, "step_size", [0.1, 0.1, 0.2, 0.2])
    assert list(again)[2:5] == ["output", "step_size", "preference_1"]
    recorded = again.assign(f_1=[3.0, 1.101, 3.0, 3.1])
    assert outcome(recorded, again) == verify.OUTSIDE
    assert outcome(recorded.drop(columns="step_size"), again.drop(columns="step_size")) == verify.INSIDE


@pytest.mark.parametrize("seeds", [2, 3, 5, 30])
@pytest.mark.parametrize("factor", [0.5, 3.0, 1e6])
@pytest.mark.parametrize("moved", [0.0, 1e-3])
def test_a_changed_value_does_not_widen_its_own_interval(seeds: int, factor: float, moved: float) -> None:
    """One value is changed; the rerun's others are those of the rows, or moved as another machine may."""
    again = frame_of(1.0 + 0.02 * np.arange(seeds) / seeds)
    recorded = again.assign(f_1=again["f_1"] * (1.0 + moved))
    assert outcome(recorded, again) == (verify.INSIDE if moved else verify.IDENTICAL)
    recorded.loc[0, "f_1"] *= factor
    assert outcome(recorded, again) == verify.OUTSIDE
    assert outcome(recorded, again, row=1) == (verify.INSIDE if moved else verify.IDENTICAL)


def test_the_interval_covers_95_percent_of_further_seeds() -> None:
    """Against its definition, with runs of a further seed drawn from the same distribution."""
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(1000, 6))
    ends = [verify.interval(row[:5], float(row[:5].mean()), 0.0) for row in draws]
    covered = np.mean([low <= row[5] <= high for (low, high), row in zip(ends, draws, strict=True)])
    assert abs(covered - 0.95) < 0.025  # 3.6 standard errors


def test_the_sample_is_random_and_limited(files: Files, tmp_path: Path) -> None:
    jobs = verify.jobs_of(files, tmp_path)
    every, _ = verify.sample(jobs, 10, 0)
    assert sum(map(len, every.values())) == 2
    one = {tuple(verify.sample(jobs, 1, seed)[0]) for seed in range(20)}
    assert len(one) == 2
    with pytest.raises(BundleError, match="took more than 0 minutes"):
        verify.sample(jobs, 1, 0, minutes=0.0)
    with pytest.raises(BundleError, match="has no job nothing"):
        verify.sample(jobs, 1, 0, job="nothing")


def test_a_bundle_says_which_drawing_it_packs(
    mobench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "outputs"
    monkeypatch.setenv("MOBENCH_OUTPUTS", str(root))

    drawing = (f"+experiment={ID}", "scale=smoke", "logger=local")
    assert mobench(*drawing, "seeds=[5]").code == 0
    (name,) = [path.name for path in (root / "other_settings/ferero").iterdir()]
    assert name.startswith("fig7+seeds=5-")
    assert command.bundle([ID]) == 2
    assert f"Drawn with other settings: ferero/{name}; name that to pack it." in capsys.readouterr().err
    assert mobench(*drawing).code == 0
    assert command.bundle([ID]) == 0
    said = capsys.readouterr().out
    assert "ferero/fig7: drawn by mobench +experiment=ferero/fig7 scale=smoke\n" in said
    assert f"not packed, drawn with other settings: ferero/{name}" in said
    path = tmp_path / "other.zip"
    assert command.bundle([f"ferero/{name}", "--output", str(path)]) == 0
    assert f"ferero/{name}: with other settings than the artifact's, drawn by" in capsys.readouterr().out
    assert command.verify([str(path), "--rows", "1"]) == 0
    assert "1 identical" in capsys.readouterr().out
    document = json.loads(archive.unpacked(path.read_bytes())["claims.json"])
    assert {claim["verdict"].split(" with ")[-1] for claim in document["claims"]} == {"other settings"}


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.verify([str(tmp_path / "none.zip")]) == 2
    assert "none.zip cannot be read: No such file or directory." in capsys.readouterr().err
