"""FERERO's Table 3: speech recognition with f_cpc <= 1.2 and f_zh - f_en = 0.5.

Published rows are of 1,100 hours and an initial model that is not released, and are error rates alone:
whether the constraints hold is not said, so that what is measured of them are checks of ours. Measured rows
are of a small network on what data there are; nothing published is judged on them. The convex surrogate has
the same two constraints and is solved exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pandas as pd
import torch

from mobench.algorithms.ferero import FERERO
from mobench.artifacts import Artifact, JobRows, RunCount, artifact
from mobench.artifacts import style as st
from mobench.artifacts.published import published
from mobench.artifacts.statistics import finite_mean, std
from mobench.core import Runs as Chosen
from mobench.core import loop
from mobench.oracles import Exact
from mobench.problems import SpeechSurrogate

METHODS = {"ls": "LS-FT", "mgda": "MGDA-FT", "omd_tch": "OMD-TCH-FT", "ferero": "FERERO-FT"}
COLOURS = {"ls": st.GREY, "mgda": st.GREEN, "omd_tch": st.ORANGE, "ferero": st.BLUE}
EPS1 = 1.2
EPS2 = 0.5
TOLERANCE = 1e-2
TIGHT = 0.8  # of table3_bound: below what small starts reach (about 0.87), where 1.2 asks for nothing
PRINTED = ("Komatsu et al.", "w/o CPC", "Init. (M2ASR)", "LS-FT", "FERERO-FT")


@dataclass(frozen=True)
class Tuned:
    """Runs of one method, one per seed; arrays are NaN where a run was lost."""

    job: JobRows
    step: int | None = None  # of the history; None: the final rows

    @cached_property
    def rows(self) -> pd.DataFrame:
        """One row per seed, with the status of its run."""
        final = self.job.final.sort_values("seed")
        if self.step is None:
            return final
        h = self.job.history
        chosen = h[h["step"] == self.step].merge(final[["run", "status"]], on="run")
        return chosen.sort_values("seed")

    @property
    def cpc(self) -> bool:
        """Whether f_cpc was trained."""
        return "cpc" in self.job.config["problem"]["objectives"]

    @property
    def runs(self) -> RunCount:
        """How many finished."""
        return RunCount.of(self.rows)

    def column(self, name: str) -> np.ndarray:
        """(S,)"""
        return self.rows[name].where(self.rows["status"] == "done").to_numpy(dtype=float)

    def losses(self) -> np.ndarray:
        """(S, 3) exact training losses (cpc, zh, en); NaN where there is no CPC."""
        names = ("f_1", "f_2", "f_3") if self.cpc else (None, "f_1", "f_2")
        return np.stack([self.column(n) if n else np.full(len(self.rows), np.nan) for n in names], axis=1)


def violations(F: np.ndarray, bound: float = EPS1) -> tuple[np.ndarray, np.ndarray]:
    """max(0, f_cpc - 1.2), or with another bound, and |f_zh - f_en - 0.5| of losses (..., 3)."""
    return np.maximum(F[..., 0] - bound, 0.0), np.abs(F[..., 1] - F[..., 2] - EPS2)


@artifact("ferero/table3")
def table3(a: Artifact) -> None:
    """Error rates, quoted and measured; both constraints over training; the surrogate."""
    tuned = {key: Tuned(a.jobs[key]) for key in METHODS}
    meta = a.jobs["ferero"].meta
    a.table(_rows(a, tuned, str(meta["data"])), given=("row", "data"))
    _figure(a, tuned, str(meta["data"]))
    _surrogate_checks(a)
    _constraint_checks(a, tuned["ferero"], tuned["ls"], bool(meta["embedded"]))
    _published_claims(a, tuned)
    _notes(a, str(meta["data"]))


def _rows(a: Artifact, tuned: dict[str, Tuned], data: str) -> pd.DataFrame:
    cells = published("ferero/table3").rows.set_index(["row", "column"])["value"]
    rows: list[dict[str, object]] = []
    for name in PRINTED:
        numbers = {k: cells.get((name, k), "") or "–" for k in ("English", "Chinese", "Average")}
        rows.append(
            {
                "row": f"{name}, printed",
                "data": "LibriSpeech 100 h, AISHELL-1",
                "English WER": numbers["English"],
                "Chinese CER": numbers["Chinese"],
                "average": numbers["Average"],
            }
        )
    measured = {"Init. (AdamW on the mean)": Tuned(a.jobs["ls"], 0), "LS w/o CPC": Tuned(a.jobs["ls_no_cpc"])}
    measured |= {METHODS[key]: found for key, found in tuned.items()}
    rows += [_measured(f"{name}, measured", data, found) for name, found in measured.items()]
    return pd.DataFrame(rows)


def _measured(name: str, data: str, found: Tuned, bound: float = EPS1) -> dict[str, object]:
    """One row of a table."""
    wer, cer = (100.0 * found.column(f"test_{kind}") for kind in ("wer_en", "cer_zh"))
    F = found.losses()
    g, h = violations(F, bound)
    columns = {
        "English WER": wer,
        "Chinese CER": cer,
        "average": (wer + cer) / 2,
        "f_cpc": F[:, 0],
        "f_zh": F[:, 1],
        "f_en": F[:, 2],
        f"f_cpc above {bound}": g,
        "|f_zh - f_en - 0.5|": h,
    }
    return {"row": name, "data": data} | {k: _cell(v) for k, v in columns.items()} | {"runs": found.runs}


def _cell(values: np.ndarray) -> str:
    """Mean and standard deviation over seeds."""
    good = values[np.isfinite(values)]
    if not len(good):
        return "–"
    return f"{good.mean():.3g}" + (f" ± {std(good):.2g}" if len(good) > 1 else "")


def _figure(a: Artifact, tuned: dict[str, Tuned], data: str) -> None:
    fig, axes = st.panels(1, 3, size=3.1)
    left, middle, right = axes[0]
    for key, found in tuned.items():
        F = found.job.paths()
        steps = np.sort(found.job.history["step"].unique())
        F = np.where((found.job.final["status"] == "done").to_numpy()[:, None, None], F, np.nan)
        for ax, values in ((left, F[..., 0]), (middle, violations(F)[1])):
            ax.plot(steps, values.T, color=COLOURS[key], lw=0.6, alpha=0.4)
            style = "--" if key == "omd_tch" else "-"  # it covers LS
            ax.plot(steps, finite_mean(values, 0), style, color=COLOURS[key], lw=1.6, label=METHODS[key])
    left.axhline(EPS1, color=st.BLACK, lw=0.8, ls="--")
    left.annotate(f"bound {EPS1}", (0, EPS1), xytext=(2, 3), textcoords="offset points", fontsize=7.5)
    left.set_title("(a) contrastive loss $f_{cpc}$")
    middle.set_title("(b) $|f_{zh} - f_{en} - 0.5|$")
    middle.set_ylim(bottom=0)
    for ax in (left, middle):
        ax.set_xlabel("steps of fine-tuning")
    path = a.jobs["surrogate"].paths()[0]
    g, h = violations(path)
    right.semilogy(np.maximum(g, 1e-16), color=st.RED, lw=1.4, label="$f_1$ above 1.2")
    right.semilogy(np.maximum(h, 1e-16), color=st.BLUE, lw=1.4, label="$|f_2 - f_3 - 0.5|$")
    right.axhline(TOLERANCE, color=st.BLACK, lw=0.8, ls="--")
    right.set_ylim(1e-9, 10)
    right.set_xlabel("steps of Algorithm 1")
    right.set_title("(c) convex surrogate")
    right.legend(fontsize=7)
    handles, labels = left.get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8)
    fig.suptitle(f"{data}; mean over seeds and each seed", fontsize=8)
    a.figure(fig)


def _surrogate_checks(a: Artifact) -> None:
    job = a.jobs["surrogate"]
    path = job.paths()[0]
    (_, g1), (h0, h1) = (v[[0, -1]] for v in violations(path))
    a.check(
        "surrogate-constraints",
        "Algorithm 1 brings a linear-scalarization solution onto both constraints of eq. (5.2), convex "
        "surrogate without speech",
        measured=f"f_1 = {path[-1, 0]:.6f}, |f_2 - f_3 - 0.5| = {h1:.1e}; at the start f_1 = "
        f"{path[0, 0]:.3f}, {h0:.3f}",
        tolerance="f_1 <= 1.2 + 1e-2, |f_2 - f_3 - 0.5| < 1e-2, and below that of the start",
        holds=bool(g1 <= TOLERANCE and h1 < TOLERANCE and h1 < h0),
        any_scale=True,
    )
    length = _direction(job)
    a.check(
        "surrogate-kkt",
        "It ends where no direction improves all objectives and keeps the constraints (a KKT point, Theorem "
        "1), convex surrogate",
        measured=f"|d| = {length:.1e}, d of the exact subproblem at the end",
        tolerance="1e-3",
        holds=length < 1e-3,
        any_scale=True,
    )


def _direction(job: JobRows) -> float:
    """|d| at the end of the surrogate, solved anew."""
    settings = {k: v for k, v in job.config["algorithm"].items() if k != "_target_"}
    problem = SpeechSurrogate()
    method = FERERO(**settings)
    runs = Chosen.product(torch.full((1, 3), 1 / 3, dtype=torch.float64), [0])
    oracle = Exact(problem, runs)
    x = torch.from_numpy(job.solutions["last"])[:1]
    state = loop.start(oracle, method, {}, x, runs, 1)
    d, *_ = method.step((oracle.at(x, {}, 0),), state["alg"], 0, 1.0)
    return float(torch.linalg.vector_norm(d))


def _constraint_checks(a: Artifact, ferero: Tuned, ls: Tuned, embedded: bool, bound: float = EPS1) -> None:
    """Whether both constraints hold, and whether FERERO is nearer to them than linear scalarization;
    the paper says neither.
    """
    (g, h), (g_ls, h_ls) = (violations(found.losses(), bound) for found in (ferero, ls))
    for key, name, ours, theirs in (
        ("gap", "|f_zh - f_en - 0.5|", h, h_ls),
        ("cpc", f"f_cpc above {bound}", g, g_ls),
    ):
        lost = bool(np.isnan(ours).any())
        idle = not (theirs > 0).any()
        pairs = [f"{x:.3f} against {y:.3f}" for x, y in zip(ours, theirs, strict=True)]
        words = "by seed, against LS: " + ", ".join(pairs).replace("nan", "lost")
        # a lost run is neither
        within = bool((ours <= TOLERANCE).all())
        better = bool((ours < theirs).all())
        a.check(
            f"{key}-holds",
            f"FERERO's fine-tuning ends on its constraint, in every seed: {name}",
            measured=words,
            tolerance=f"at most {TOLERANCE:g}",
            holds=None if embedded or idle else within,
            reason=_why(within, idle, embedded, lost),
        )
        a.check(
            f"{key}-below-ls",
            "FERERO's fine-tuning ends nearer to its constraint than linear scalarization, in every seed: "
            f"{name}",
            measured=words,
            tolerance="smaller in every seed",
            holds=None if embedded or idle else better,
            reason=_why(better, idle, embedded, lost),
        )


def _why(holds: bool, idle: bool, embedded: bool, lost: bool) -> str:
    if embedded:
        return (
            "Generated syllables are no speech: shown, not judged. Decided by data=speech_small, or "
            "librispeech_aishell."
        )
    if idle:
        return (
            "Not active here: linear scalarization keeps this bound by itself. Decided by: "
            "ferero/table3_bound."
        )
    if holds:
        return "A functional test on small sets of words."
    if lost:
        return (
            "A run diverged. The gap asks for a larger f_zh, whose gradient grows on the way up; two batches "
            "of eight tell the multipliers late, and they overshoot. The same happens on generated syllables "
            "for larger gamma."
        )
    return (
        "Algorithm 3 moves its multipliers by gamma times what two small batches say; in so few steps they "
        "have not settled. The exact subproblem on the surrogate ends on both constraints."
    )


def _published_claims(a: Artifact, tuned: dict[str, Tuned]) -> None:
    cells = published("ferero/table3").rows.set_index(["row", "column"])["value"]
    average = {name: float(cells[name, "Average"]) for name in PRINTED[1:]}
    found = {"w/o CPC": Tuned(a.jobs["ls_no_cpc"]), "Init. (M2ASR)": Tuned(a.jobs["ls"], 0)}
    found |= {"LS-FT": tuned["ls"], "FERERO-FT": tuned["ferero"]}
    rate = {
        name: float(finite_mean(50.0 * (t.column("test_wer_en") + t.column("test_cer_zh"))))
        for name, t in found.items()
    }
    steps = [rate[one] > rate[two] for one, two in pairwise(found)]
    a.claim(
        "error-rates",
        "Average error rate: FERERO-FT below LS-FT below the initial model below training without CPC",
        "Table 3, Section 5.2",
        published=", ".join(f"{name} {value:g} %" for name, value in average.items()),
        measured=", ".join(f"{name} {value:.1f} %" for name, value in rate.items()),
        tolerance="the same order of the means over seeds; partial if some neighbours are in order",
        holds=True if all(steps) else ("partial" if any(steps) else False),
        reason="Not in order: "
        + ", ".join(
            f"{two} below {one}" for (one, two), good in zip(pairwise(found), steps, strict=True) if not good
        )
        + ". The initial model of the paper is not released; ours is trained here.",
        rests_on=("ls", "ls_no_cpc", "ferero"),
    )
    _language_gap(a, tuned)
    gains = [
        round(x - y, 2)
        for x, y in (
            (average["w/o CPC"], average["Init. (M2ASR)"]),
            (average["Init. (M2ASR)"], average["LS-FT"]),
            (average["LS-FT"], average["FERERO-FT"]),
        )
    ]
    a.claim(
        "gains-of-the-text",
        "The gains of the text (4.2, 0.3 and 1.3 points) are differences of the table's averages",
        "Section 5.2 with Table 3",
        published="4.2, 0.3, 1.3",
        measured=", ".join(f"{x:.1f}" for x in gains),
        tolerance="equal as printed",
        holds="partial" if gains != [4.2, 0.3, 1.3] else True,
        reason="Only 4.2 differs: of the unrounded averages (11.0 and 6.75) it is 4.25."
        if gains[0] != 4.2
        else "",
        any_scale=True,
        rests_on=(),
    )


def _language_gap(a: Artifact, tuned: dict[str, Tuned]) -> None:
    cells = published("ferero/table3").rows.set_index(["row", "column"])["value"]
    printed = {
        name: float(cells[name, "English"]) - float(cells[name, "Chinese"])
        for name in ("Init. (M2ASR)", "LS-FT", "FERERO-FT")
    }
    ours = {
        key: 100.0 * (tuned[key].column("test_wer_en") - tuned[key].column("test_cer_zh"))
        for key in ("ls", "ferero")
    }
    means = {key: abs(float(finite_mean(gap))) for key, gap in ours.items()}
    a.claim(
        "language-gap",
        "The gap between the languages' error rates is smaller after FERERO's fine-tuning than after linear "
        "scalarization's",
        "Section 5.2, Table 3",
        published=", ".join(f"{name} {gap:.1f} points" for name, gap in printed.items()),
        measured=f"|English - Mandarin| of the means over seeds: LS-FT {means['ls']:.1f}, FERERO-FT "
        f"{means['ferero']:.1f} points",
        tolerance="smaller",
        holds=means["ferero"] < means["ls"],
        reason="f_zh - f_en = 0.5 asks for a gap of the losses, and error rates of words and of characters "
        "need not follow it.",
        rests_on=("ls", "ferero"),
    )


def _notes(a: Artifact, data: str) -> None:
    job = a.jobs["ferero"]
    start = job.config["problem"]["start"]
    config = job.config
    a.note(
        f"Data: {data}; {job.meta['train_en']} English and {job.meta['train_zh']} Mandarin training "
        f"utterances, {job.meta['test_en']} and {job.meta['test_zh']} for tests. Network "
        f"{config['problem']['model']} ({job.meta['parameters']:,} parameters). All methods start from the "
        f"model that {start['steps']} steps of AdamW on the mean of the objectives make (w/o CPC: of the two "
        f"CTC losses), and take {config['steps']} plain gradient steps. Step sizes, gamma and c_h of smaller "
        "scales are ours. Error rates in percent: words in English, characters in Mandarin; greedy decoding. "
        "Losses are exact, of all training utterances; CTC losses are per unit of the transcript."
    )
    a.note(
        f"Small starts keep f_cpc <= {EPS1} by themselves, so that bound asks for nothing there: "
        "ferero/table3_bound has another."
    )
    a.note(
        "At full size, with LibriSpeech and AISHELL-1 below DIR: mobench +experiment=ferero/table3 "
        "scale=paper data=librispeech_aishell data_root=DIR hardware=gpu. Memory and time of such a step: "
        "docs/speech.md."
    )
    a.note(
        "Panel (c) is a convex problem with the same two constraints, from the exact minimiser of the mean; "
        "it has no speech."
    )


@artifact("ferero/table3_bound")
def table3_bound(a: Artifact) -> None:
    """The same fine-tuning with f_cpc <= 0.8: the published bound holds at small starts without being
    asked for.
    """
    ls = Tuned(a.jobs["ls"])
    ferero = Tuned(a.jobs["ferero"])
    meta = a.jobs["ferero"].meta
    rows = {
        "Init. (AdamW on the mean)": Tuned(a.jobs["ls"], 0),
        "LS-FT": ls,
        f"FERERO-FT, f_cpc <= {TIGHT}": ferero,
    }
    frame = pd.DataFrame([_measured(name, str(meta["data"]), found, TIGHT) for name, found in rows.items()])
    a.table(frame, given=("row", "data"))
    _constraint_checks(a, ferero, ls, bool(meta["embedded"]), TIGHT)
    a.note(
        f"Ours. {TIGHT} was set before its first run, all other settings are those of ferero/table3, and "
        "none was changed after it."
    )
