"""FERERO's Table 3: speech recognition with f_cpc <= 1.2 and f_zh - f_en = 0.5.

Published rows are of 1,100 hours and an initial model that is not released, and are error rates alone:
whether the constraints hold is not said, so that what is measured of them are checks of ours. Measured rows
are of a small network on what data there are; nothing published is judged on them. The convex surrogate has
the same two constraints and is solved exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import torch

from mobench.algorithms.ferero import FERERO
from mobench.artifacts import Artifact, JobRows, RunCount, artifact
from mobench.artifacts import style as st
from mobench.artifacts.checks import AllOf, AtMost, Below, Check, Equal, Ordered
from mobench.artifacts.panels import dress, legend_below, level
from mobench.artifacts.published import published
from mobench.artifacts.statistics import finite_mean, std
from mobench.core import Runs as Chosen
from mobench.core import loop
from mobench.oracles import Exact
from mobench.problems import SpeechSurrogate

METHODS = {"ls": "LS-FT", "mgda": "MGDA-FT", "omd_tch": "OMD-TCH-FT", "ferero": "FERERO-FT"}
COLOURS = {key: st.look(key).colour for key in METHODS}
EPS1 = 1.2
EPS2 = 0.5
TOLERANCE = 1e-2
BOUND: dict[str, Any] = {"color": st.BLACK, "lw": 0.8, "ls": "--"}  # how a bound is drawn
TIGHT = 0.8  # of table3_bound: small starts reach about 0.87 by themselves, so that 1.2 is inactive there
EMBEDDED = (
    "Generated syllables are no speech: shown, not judged. Decided by data=speech_small, or "
    "librispeech_aishell."
)
IDLE = "Not active here: linear scalarization keeps this bound by itself. Decided by: ferero/table3_bound."
DIVERGED = (
    "A run diverged. The gap asks for a larger f_zh, whose gradient grows on the way up; two batches of "
    "eight tell the multipliers late, and they overshoot. The same happens on generated syllables for "
    "larger gamma."
)
UNSETTLED = (
    "Algorithm 3 moves its multipliers by gamma times what two small batches say; in so few steps they have "
    "not settled. The exact subproblem on the surrogate ends on both constraints."
)
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

    def column(self, name: str) -> np.ndarray:
        return self.rows[name].where(self.rows["status"] == "done").to_numpy(dtype=float)

    def losses(self) -> np.ndarray:
        """(S, 3) exact training losses (cpc, zh, en); NaN where there is no CPC."""
        cpc = "cpc" in self.job.config["problem"]["objectives"]
        names = ("f_1", "f_2", "f_3") if cpc else (None, "f_1", "f_2")
        return np.stack([self.column(n) if n else np.full(len(self.rows), np.nan) for n in names], axis=1)


def violations(F: np.ndarray, bound: float = EPS1) -> tuple[np.ndarray, np.ndarray]:
    """max(0, f_cpc - 1.2), or with another bound, and |f_zh - f_en - 0.5| of losses (..., 3)."""
    return np.maximum(F[..., 0] - bound, 0.0), np.abs(F[..., 1] - F[..., 2] - EPS2)


@artifact("ferero/table3")
def table3(a: Artifact) -> None:
    """Error rates, quoted and measured; both constraints over training; the surrogate."""
    tuned = {key: Tuned(a.jobs[key]) for key in METHODS}
    meta = a.jobs["ferero"].meta
    a.table(table_lines(a, tuned, str(meta["data"])), given=("row", "data"))
    draw_training(a, tuned)
    path = a.jobs["surrogate"].paths()[0]
    (_, g1), (h0, h1) = (v[[0, -1]] for v in violations(path))
    gap = "|f_2 - f_3 - 0.5|"
    a.check(
        "surrogate-constraints",
        AllOf(
            AtMost(float(g1), TOLERANCE, of="f_1 above 1.2", digits=".1e"),
            Below(float(h1), TOLERANCE, of=gap, digits=".1e"),
            Below(float(h1), float(h0), of=gap, than="that of the start", digits=".3g"),
        ).also(f"f_1 = {path[-1, 0]:.6f}, at the start {path[0, 0]:.3f}"),
    )
    length = last_direction(a.jobs["surrogate"])
    a.check("surrogate-kkt", Below(length, 1e-3, of="|d| of the exact subproblem at the end", digits=".1e"))
    judge_constraints(a, tuned["ferero"], tuned["ls"], bool(meta["embedded"]))
    judge_published(a, tuned)
    add_notes(a, str(meta["data"]))


def table_lines(a: Artifact, tuned: Mapping[str, Tuned], data: str) -> list[dict[str, object]]:
    cells = published("ferero/table3")
    columns = {"English WER": "English", "Chinese CER": "Chinese", "average": "Average"}
    lines: list[dict[str, object]] = []
    for name in PRINTED:
        printed = {ours: cells.text(row=name, column=theirs) or "–" for ours, theirs in columns.items()}
        lines.append({"row": f"{name}, printed", "data": "LibriSpeech 100 h, AISHELL-1", **printed})
    measured = {"Init. (AdamW on the mean)": Tuned(a.jobs["ls"], 0), "LS w/o CPC": Tuned(a.jobs["ls_no_cpc"])}
    measured |= {METHODS[key]: runs for key, runs in tuned.items()}
    return lines + [table_line(f"{name}, measured", data, runs) for name, runs in measured.items()]


def table_line(name: str, data: str, runs: Tuned, bound: float = EPS1) -> dict[str, object]:
    wer, cer = (100.0 * runs.column(f"test_{kind}") for kind in ("wer_en", "cer_zh"))
    F = runs.losses()
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
    return (
        {"row": name, "data": data}
        | {k: cell(v) for k, v in columns.items()}
        | {"runs": RunCount.of(runs.rows)}
    )


def cell(values: np.ndarray) -> str:
    """Writes mean and standard deviation over seeds."""
    good = values[np.isfinite(values)]
    if not len(good):
        return "–"
    return f"{good.mean():.3g}" + (f" ± {std(good):.2g}" if len(good) > 1 else "")


def draw_training(a: Artifact, tuned: Mapping[str, Tuned]) -> None:
    fig, axes = st.panels(1, 3, size=3.1)
    left, middle, right = axes[0]
    for key, runs in tuned.items():
        F = runs.job.paths()
        steps = np.sort(runs.job.history["step"].unique())
        F = np.where((runs.job.final["status"] == "done").to_numpy()[:, None, None], F, np.nan)
        for ax, values in ((left, F[..., 0]), (middle, violations(F)[1])):
            ax.plot(steps, values.T, color=COLOURS[key], lw=0.6, alpha=0.4)
            style = "--" if key == "omd_tch" else "-"  # it covers LS
            ax.plot(steps, finite_mean(values, 0), style, color=COLOURS[key], lw=1.6, label=METHODS[key])
    level(left, EPS1, **BOUND)
    left.annotate(f"bound {EPS1}", (0, EPS1), xytext=(2, -9), textcoords="offset points", fontsize=7.5)
    dress(left, "steps of fine-tuning", "contrastive loss $f_{cpc}$", "(a) first constraint")
    dress(
        middle, "steps of fine-tuning", "$|f_{zh} - f_{en} - 0.5|$", "(b) second constraint", ylim=(0, None)
    )
    g, h = violations(a.jobs["surrogate"].paths()[0])
    right.semilogy(np.maximum(g, 1e-16), color=st.RED, lw=1.4, label="$f_1$ above 1.2")
    right.semilogy(np.maximum(h, 1e-16), color=st.BLUE, lw=1.4, label="$|f_2 - f_3 - 0.5|$")
    level(right, TOLERANCE, f"tolerance {TOLERANCE:g}", **BOUND)
    dress(
        right,
        "steps of Algorithm 1",
        "violation",
        "(c) convex surrogate",
        ylim=(1e-9, 1e4),
        legend={"fontsize": 7},
    )
    legend_below(fig, left, ncols=4, fontsize=8)
    fig.suptitle("thick: mean over seeds, thin: each seed")
    words = "Losses: $f_{cpc}$ contrastive, $f_{zh}$ and $f_{en}$ of the Mandarin and the English recognizer."
    st.caption(
        fig, f"{words} FT: fine-tuning. In (c) $f_1$, $f_2$, $f_3$ are convex, and the optimum is known."
    )
    a.figure(fig)


def last_direction(job: JobRows) -> float:
    """Returns |d| at the end of the surrogate, solved anew."""
    settings = {k: v for k, v in job.config["algorithm"].items() if k != "_target_"}
    problem = SpeechSurrogate()
    method = FERERO(**settings)
    runs = Chosen.product(torch.full((1, 3), 1 / 3, dtype=torch.float64), [0])
    oracle = Exact(problem, runs)
    x = torch.from_numpy(job.solutions["last"])[:1]
    state = loop.start(oracle, method, {}, x, runs, 1)
    d, *_ = method.step((oracle.at(x, {}, 0),), state["alg"], 0, 1.0)
    return float(torch.linalg.vector_norm(d))


def judge_constraints(a: Artifact, ferero: Tuned, ls: Tuned, embedded: bool, bound: float = EPS1) -> None:
    (g, h), (g_ls, h_ls) = (violations(runs.losses(), bound) for runs in (ferero, ls))
    gap = ("gap", "|f_zh - f_en - 0.5|", h, h_ls)
    for key, name, ours, theirs in (gap, ("cpc", f"f_cpc above {bound}", g, g_ls)):
        one, two = ({f"run {s + 1}": float(x) for s, x in enumerate(v)} for v in (ours, theirs))
        checks: dict[str, Check] = {
            "{key}-holds": AtMost(one, TOLERANCE, of=name, digits=".3f"),
            "{key}-below-ls": Below(one, two, of=name, than="LS", digits=".3f"),
        }
        cause = DIVERGED if np.isnan(ours).any() else UNSETTLED
        for id, check in checks.items():
            active = check.provided((theirs > 0).any(), IDLE)
            a.check(id, active.provided(not embedded, EMBEDDED), reason=cause, key=key, name=name)


def judge_published(a: Artifact, tuned: Mapping[str, Tuned]) -> None:
    runs = {"w/o CPC": Tuned(a.jobs["ls_no_cpc"]), "Init. (M2ASR)": Tuned(a.jobs["ls"], 0)}
    runs |= {"LS-FT": tuned["ls"], "FERERO-FT": tuned["ferero"]}
    wer, cer = ({n: 100.0 * t.column(f"test_{c}") for n, t in runs.items()} for c in ("wer_en", "cer_zh"))
    rate = {name: float(finite_mean((wer[name] + cer[name]) / 2)) for name in runs}
    order = Ordered(rate, falling=True, of="average error rate", unit=" %", digits=".1f", partial=True)
    wrong = [f"{two} below {one}" for one, two in pairwise(runs) if two in order.failing]
    a.claim("error-rates", order, reason=f"Not in order: {', '.join(wrong)}.")
    gap, of_ls = (abs(float(finite_mean(wer[name] - cer[name]))) for name in ("FERERO-FT", "LS-FT"))
    of = "FERERO-FT's |English - Mandarin| of the means over seeds"
    a.claim("language-gap", Below(gap, of_ls, of=of, than="LS-FT's", unit=" points", digits=".1f"))
    average = published("ferero/table3").numbers("row", column="Average")
    gains = {f"from {one} to {two}": round(average[one] - average[two], 2) for one, two in pairwise(runs)}
    said = dict(zip(gains, (4.2, 0.3, 1.3), strict=True))
    a.claim("gains-of-the-text", Equal(gains, said, what="gains", partial=True))


def add_notes(a: Artifact, data: str) -> None:
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
    """Judges the fine-tuning with f_cpc <= 0.8: small starts meet the published bound by themselves."""
    ls = Tuned(a.jobs["ls"])
    ferero = Tuned(a.jobs["ferero"])
    meta = a.jobs["ferero"].meta
    rows = {"Init. (AdamW on the mean)": Tuned(a.jobs["ls"], 0), "LS-FT": ls}
    rows |= {f"FERERO-FT, f_cpc <= {TIGHT}": ferero}
    lines = [table_line(name, str(meta["data"]), tuned, TIGHT) for name, tuned in rows.items()]
    a.table(lines, given=("row", "data"))
    judge_constraints(a, ferero, ls, bool(meta["embedded"]), TIGHT)
    a.note(
        f"Ours. {TIGHT} was set before its first run, all other settings are those of ferero/table3, and "
        "none was changed after it."
    )
