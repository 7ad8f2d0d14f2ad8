"""A bundle: what it holds, that anything changed in it is refused by name, and that its rows run again."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import re
import shutil
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import pytest
import yaml

from mobench.bundle import archive, integrity, verify
from mobench.bundle.build import build
from mobench.bundle.claims import SCHEMA
from mobench.bundle.contents import collected
from mobench.cli import bundle as command
from mobench.errors import BundleError, StoreError
from tests.conftest import Run, in_process

ID = "ferero/fig7"
Files = dict[str, bytes]


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


def checked(raw: bytes) -> Files:
    """The check that `mobench verify` makes before it runs anything."""
    files = archive.unpacked(raw)
    integrity.check(files)
    return files


def remade(files: Files, **changed: bytes) -> bytes:
    """A bundle of changed files whose manifest fits them, as a forger would make it."""
    contents = {name: data for name, data in files.items() if name != archive.MANIFEST} | changed
    return archive.packed(contents)


# --- what it holds ------------------------------------------------------------------------------------------


def test_the_same_rows_give_the_same_bytes(files: Files, raw: bytes) -> None:
    assert checked(raw) == files
    shuffled = dict(random.Random(0).sample(list(files.items()), len(files)))
    assert archive.packed(shuffled) == raw


def test_claims_fit_the_schema_and_lead_to_rows(files: Files) -> None:
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    document = json.loads(files["claims.json"])
    jsonschema.validate(document, schema)
    assert files[SCHEMA.name] == SCHEMA.read_bytes()
    (claim,) = document["claims"]
    assert len(claim["jobs"]) == 2
    for key in claim["jobs"]:
        job = document["jobs"][key]
        assert len(pd.read_csv(io.BytesIO(files[job["rows"]]))) == job["count"]
        assert yaml.safe_load(files[job["configuration"]])["seeds"] == job["seeds"]
        (said,) = job["commands"]
        (run,) = job["names"]
        assert said == f"mobench +experiment={ID} scale=smoke 'artifact.only=[{run['name']}]'"
    del document["claims"][0]["jobs"]
    with pytest.raises(jsonschema.ValidationError, match="jobs"):
        jsonschema.validate(document, schema)


def test_nothing_of_this_machine_is_in_it(files: Files) -> None:
    for name in [n for n in files if n.startswith("runs/") and n.endswith((".json", ".yaml"))]:
        text = files[name].decode()
        assert os.uname().nodename not in text
        assert str(Path.cwd()) not in text
        assert '"pid"' not in text


def test_costs_are_those_of_the_rows(files: Files) -> None:
    cost = json.loads(files["compute.json"])
    metas = [json.loads(files[n]) for n in files if n.endswith("meta.json")]
    assert cost["wall_hours"] * 3600 == pytest.approx(sum(m["seconds_wall"] for m in metas))
    assert cost["core_hours"] == pytest.approx(cost["wall_hours"])  # one thread
    assert cost["peak_memory_mib"] == max(m["peak_memory_mib"] for m in metas)
    assert cost["gpu_hours"] == 0


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
    for name in ("solutions.npz", "config.yaml", "meta.json", "final.csv"):
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


def flipped(raw: bytes, rng: random.Random) -> bytes:
    """One bit of the file, anywhere."""
    place = rng.randrange(len(raw))
    return raw[:place] + bytes([raw[place] ^ 1 << rng.randrange(8)]) + raw[place + 1 :]


def zipped(files: Files, change: Callable[[zipfile.ZipFile], None] | None = None, **how: Any) -> bytes:
    """An archive that is made as ours is, and then changed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", **how) as made:
        for name in sorted(files):
            info = zipfile.ZipInfo(name, archive.EPOCH)
            info.create_system = archive.UNIX
            info.external_attr = archive.MODE << 16
            info.compress_type = how.get("compression", zipfile.ZIP_STORED)
            made.writestr(info, files[name])
        if change is not None:
            change(made)
    return buffer.getvalue()


def edited(files: Files, rng: random.Random, pattern: str) -> tuple[str, Files]:
    """The files with one digit of one of them changed, the manifest left as it was; and its name."""
    name = rng.choice(sorted(n for n in files if re.search(pattern, n)))
    text = files[name].decode()
    place = rng.choice([m.start() for m in re.finditer(r"\d", text)])
    other = str((int(text[place]) + rng.randrange(1, 10)) % 10)
    return name, {**files, name: (text[:place] + other + text[place + 1 :]).encode()}


def added(name: str, mode: int = archive.MODE, data: bytes = b"{}") -> Callable[[zipfile.ZipFile], None]:
    def add(made: zipfile.ZipFile) -> None:
        info = zipfile.ZipInfo("placeholder.json", archive.EPOCH)
        info.filename = name
        info.create_system = archive.UNIX
        info.external_attr = mode << 16
        made.writestr(info, data)

    return add


LINK = stat.S_IFLNK | 0o777
NAMES = "is not a name that a bundle may hold|was added"
STRANGE: tuple[tuple[str, int, str], ...] = (
    *(
        (name, archive.MODE, NAMES)
        for name in (
            *("../evil.json", "runs/../../evil.json", "..\\evil.json", "/etc/evil.json", "C:/evil.json"),
            *("\\\\host\\evil.json", "runs/evil.json", "evil.pkl", "evil.pt", "runs/evil"),
            *(".hidden.json", "runs//evil.json", "ev\nil.json", "évil.json"),
        )
    ),
    ("link.json", LINK, "was added"),
    ("pipe.json", stat.S_IFIFO | 0o644, "was added"),
)


def test_100_tamperings_are_refused_with_the_reason(files: Files, raw: bytes) -> None:
    """20 bits, 20 rows, 15 configurations, 15 of the metadata, 16 added files, 14 of the archive."""
    rng = random.Random(7)
    cases: list[tuple[bytes, str]] = [(flipped(raw, rng), "") for _ in range(20)]
    for pattern, count in (
        (r"final\.csv$", 20),
        (r"config\.yaml$", 15),
        (r"(meta|claims|compute)\.json$", 15),
    ):
        for _ in range(count):
            name, changed = edited(files, rng, pattern)
            cases.append((zipped(changed), re.escape(name)))
    for name, mode, reason in STRANGE:
        cases.append((zipped(files, added(name, mode)), f"(?s)({re.escape(repr(name)[1:-1])}.*)?{reason}"))
    cases += archives(files, raw, rng)
    assert len(cases) == 100
    for number, (tampered, reason) in enumerate(cases):
        assert tampered != raw, number
        with pytest.raises(BundleError, match=reason or r"\w+"):
            checked(tampered)


def archives(files: Files, raw: bytes, rng: random.Random) -> list[tuple[bytes, str]]:
    """Archives that hold the right files in a wrong way, or lack some."""
    name = rng.choice([n for n in files if n.startswith("runs/")])
    less = {n: data for n, data in files.items() if n != name}
    bomb = zipped({**files, "bomb.txt": bytes(10**7)}, compression=zipfile.ZIP_DEFLATED)
    with pytest.warns(UserWarning, match="Duplicate name"):
        twice = zipped(files, added(name, data=files[name]))

    def commented(made: zipfile.ZipFile) -> None:
        made.comment = b"reviewed"

    listed = json.loads(files[archive.MANIFEST])
    other = {**listed, "format": 2}
    no_files = archive.document({"format": 1})
    double = files[archive.MANIFEST].replace(b'{\n "format": 1,', b'{\n "format": 1,\n "format": 1,')
    return [
        (zipped(less), f"{re.escape(name)} is missing"),
        (zipped({n: d for n, d in files.items() if n != archive.MANIFEST}), "manifest.json is missing"),
        (bomb, "bomb.txt is compressed"),
        (twice, f"'{re.escape(name)}' comes 2 times"),
        (zipped(files, commented), "something was added"),
        (raw + b"more", "something was added|damaged"),
        (b"#!/bin/sh\n" + raw, "something was added"),
        (raw[:-30], "no bundle|is compressed"),  # of an archive inside
        (raw[: len(raw) // 2], "no bundle|is compressed"),
        (b"", "no bundle"),
        (zipped(files, compression=zipfile.ZIP_DEFLATED), "is compressed"),
        (zipped({**files, archive.MANIFEST: archive.document(other)}), "format 2"),
        (zipped({**files, archive.MANIFEST: no_files}), "does not list files"),
        (zipped({**files, archive.MANIFEST: double}), "comes twice"),
    ]


def test_every_bit_of_the_archives_frame_counts(files: Files) -> None:
    """Headers and the table hold times, flags and attributes that a reader would not miss."""
    small = archive.packed({"a.json": b"{}", "b/c.txt": b"two"})
    for place in range(len(small)):
        for bit in range(8):
            changed = small[:place] + bytes([small[place] ^ 1 << bit]) + small[place + 1 :]
            with pytest.raises(BundleError):
                archive.unpacked(changed)


def test_files_that_contradict_each_other_are_refused(files: Files) -> None:
    """The manifest fits in these bundles: somebody wrote it anew."""
    key = json.loads(files["claims.json"])["claims"][0]["jobs"][0]
    base = f"runs/{key}"
    rows = files[f"{base}/final.csv"]
    config = files[f"{base}/config.yaml"]
    meta = json.loads(files[f"{base}/meta.json"])
    claims = files["claims.json"]
    cases = {
        f"{base}/final.csv has 0 rows": {f"{base}/final.csv": rows.splitlines(keepends=True)[0]},
        "the hash of its identity": {
            f"{base}/meta.json": files[f"{base}/meta.json"].replace(b'"steps": ', b'"steps": 1')
        },
        "differ in 'verdict'": {"claims.json": claims.replace(b'"inconclusive"', b'"reproduced"')},
        "claims.json has format 9": {"claims.json": claims.replace(b'"format": 1', b'"format": 9')},
        "do not match": {"runs/other-job-0/final.csv": rows},
        "form of claims.schema.json": {"claims.json": b'{"format": 1}'},
        "is not plain YAML": {f"{base}/config.yaml": b"!!python/object/apply:os.system ['true']"},
        "names mobench.algorithms.mgda.MGDA as its algorithm": {
            f"{base}/config.yaml": config.replace(b"algorithms.ferero.FERERO", b"algorithms.mgda.MGDA")
        },
        "no column output": {f"{base}/final.csv": rows.replace(b"output", b"put", 1)},
        "column run must hold whole": {f"{base}/final.csv": rows.replace(b"\n0,", b"\na,", 1)},
        # what `verify` computes with is there, and of its form
        **{
            name: {f"{base}/meta.json": archive.document(meta | {name: value})}
            for name, value in (("versions", [1]), ("dtype", None), ("seconds_train", "many"))
        },
        "seconds_wall": {
            f"{base}/meta.json": archive.document({k: v for k, v in meta.items() if k != "seconds_wall"})
        },
    }
    for reason, changed in cases.items():
        with pytest.raises(BundleError, match=reason):
            checked(remade(files, **changed))


def test_another_digest_than_the_published_one_is_refused(
    files: Files, raw: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is what finds a bundle in which all files and their manifest were written anew."""
    key = json.loads(files["claims.json"])["claims"][0]["jobs"][0]
    name = f"runs/{key}/final.csv"
    path = tmp_path / "forged.zip"
    changed = re.sub(rb"0\.\d", b"0.0", files[name], count=1)
    assert changed != files[name]
    path.write_bytes(remade(files, **{name: changed}))
    assert command.verify([str(path), "--rows", "0"]) == 0
    assert command.verify([str(path), "--rows", "0", "--digest", archive.digest(files)]) == 2
    assert "it is another bundle" in capsys.readouterr().err


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (Path(self.path),))


def test_no_pickle_is_read(files: Files, tmp_path: Path) -> None:
    trap = tmp_path / "sprung"
    pickle.loads(pickle.dumps(Trap(str(trap))))
    assert trap.exists()
    trap.unlink()
    buffer = io.BytesIO()
    np.savez(buffer, last=np.array([Trap(str(trap))], dtype=object))
    name = next(n for n in files if n.endswith("solutions.npz"))
    checked(remade(files, **{name: buffer.getvalue()}))  # not opened: no row is in it
    checked(remade(files, **{name: pickle.dumps(Trap(str(trap)))}))
    assert not trap.exists()
    source = "".join(p.read_text() for p in Path(archive.__file__).parent.glob("*.py"))
    assert not re.search(r"import pickle|torch\.load|allow_pickle=True|yaml\.(load|unsafe_load)\(", source)


@pytest.mark.parametrize("text", ["&a {x: *a}", "{a: &a [1], b: *a}"])
def test_aliases_are_refused(files: Files, text: str) -> None:
    name = next(n for n in files if n.endswith("config.yaml"))
    with pytest.raises(BundleError, match="has YAML aliases"):
        checked(remade(files, **{name: text.encode()}))


def test_entries_that_share_bytes_are_refused(raw: bytes) -> None:
    """A small archive whose entries overlap would fill the memory before the manifest is compared."""
    with zipfile.ZipFile(io.BytesIO(raw)) as good:
        entries = good.infolist()
        start = good.start_dir
    largest = max(entries, key=lambda entry: entry.file_size)
    central = raw[start:]
    name = largest.filename.encode()
    at = central.index(name) - 46
    record = central[at : at + 46 + len(name)]
    kind = b"." + name.rpartition(b".")[2]
    names = [b"%0*d%s" % (len(name) - len(kind), k, kind) for k in range(200)]
    records = b"".join(record.replace(name, other) for other in names)
    end = bytearray(raw[-22:])
    end[8:10] = end[10:12] = (200).to_bytes(2, "little")
    end[12:16] = len(records).to_bytes(4, "little")
    with pytest.raises(BundleError, match=r"its files say that they have \d+ bytes, but the archive has"):
        archive.unpacked(raw[:start] + records + bytes(end))


def test_rows_that_belong_to_no_job_are_not_bundled() -> None:
    with pytest.raises(BundleError, match=r"The rows of cross/zoo are not those of jobs but lie in"):
        collected(["cross/zoo"])


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
    path = tmp_path / "forged.zip"
    path.write_bytes(remade(files, **{name: frame.to_csv(index=False, float_format="%.17g").encode()}))
    assert command.verify([str(path), "--job", key]) == 1
    assert re.search(r"outside +vlmop2-.*: f_1 was 0\.\d+ and is 0\.\d+, not in", capsys.readouterr().out)


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
    config = yaml.safe_load(files[f"runs/{key}/config.yaml"])
    config["algorithm"]["step_size"] *= 2
    changed = {**files, f"runs/{key}/config.yaml": yaml.safe_dump(config).encode()}
    said: list[str] = []
    (result,) = verify.rerun(changed, {key: [0]}, "data", said.append)
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


def test_the_interval_covers_95_percent_of_further_seeds() -> None:
    """Against its definition, with runs of a further seed drawn from the same distribution."""
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(1000, 6))
    ends = [verify.interval(row[:5], float(row[:5].mean()), 0.0) for row in draws]
    covered = np.mean([low <= row[5] <= high for (low, high), row in zip(ends, draws, strict=True)])
    assert abs(covered - 0.95) < 0.025  # 3.6 standard errors


def test_the_sample_is_random_and_limited(files: Files) -> None:
    every, _ = verify.sample(files, 10, 0)
    assert sum(map(len, every.values())) == 2
    one = {tuple(verify.sample(files, 1, seed)[0]) for seed in range(20)}
    assert len(one) == 2
    with pytest.raises(BundleError, match="took more than 0 minutes"):
        verify.sample(files, 1, 0, minutes=0.0)
    with pytest.raises(BundleError, match="has no job nothing"):
        verify.sample(files, 1, 0, job="nothing")


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
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    assert {claim["verdict"].split(" with ")[-1] for claim in document["claims"]} == {"other settings"}


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.verify([str(tmp_path / "none.zip")]) == 2
    assert "none.zip cannot be read: No such file or directory." in capsys.readouterr().err
