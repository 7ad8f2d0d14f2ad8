"""Tables 1 and 2: the notation, and what is proved of which method."""

from __future__ import annotations

import pandas as pd

from mobench.artifacts import Artifact, artifact
from mobench.artifacts.checks import Count, Equal
from mobench.artifacts.published import published

NOTATION = [
    ("x, y", "variables of the upper and of the lower level"),
    ("f_s, g", "objective s of the upper level, objective of the lower level"),
    ("y*(x)", "the minimiser of g(x, .)"),
    ("phi_s(x)", "f_s(x, y*(x)); Phi = (phi_1, .., phi_S)"),
    ("[S]", "{1, .., S}"),
    ("|.|", "Euclidean norm"),
    ("Ghat(x)", "p x S matrix of approximate hypergradients, one column for each objective"),
    ("r", "preference: S positive numbers with sum 1"),
    ("simplex", "vectors of S numbers >= 0 (open simplex: > 0) with sum 1"),
    ("e_s, 1", "unit vector s, vector of ones"),
    ("r * v", "entry-wise product"),
    ("u", "trade-off between direction and preference in equation (5)"),
    ("d_k, with preference", "Ghat(x_k) (r * lambda_k)"),
    ("d_k, without", "Ghat(x_k) lambda_k"),
    ("dbar_k", "the same with exact hypergradients"),
    ("K, D, N, Q", "steps of the upper and of the lower level, of CG, terms of the Neumann series"),
    ("alpha, beta, eta", "step sizes of y, of x, of the Neumann series"),
]
PRINTED = {  # the lines of the paper's table, in the words of ours
    "d_k, with preference",
    "dbar_k",
    "d_k, without",
    "[S]",
    "|.|",
    "Ghat(x)",
    "r",
    "simplex",
    "e_s, 1",
    "r * v",
}


@artifact("mobl/table1")
def table1(a: Artifact) -> None:
    """Notation."""
    a.table(pd.DataFrame(NOTATION, columns=["symbol", "meaning"]))
    explained = {symbol for symbol, meaning in NOTATION if meaning}
    check = Count({symbol: symbol in explained for symbol in sorted(PRINTED)}, what="symbols")
    a.check("present", check.also(f"{len(NOTATION)} lines, with the step sizes and counts of the algorithms"))
    a.note(
        "Static text. The paper's definition of Ghat as a p x S matrix is used; "
        "its Definition 3.3 has the transpose."
    )


METHODS = [
    # name, problem, scenario, finite-time guarantee, rate, preference, what there is of it here
    ("AID", "BLO", "Deterministic", "Yes", "O(K^-1)", "-", "oracle=hypergradient, method=cg (one objective)"),
    (
        "ITD",
        "BLO",
        "Deterministic",
        "Yes",
        "O(K^-1)",
        "-",
        "oracle=hypergradient, method=itd (one objective)",
    ),
    ("SOBA", "BLO", "Stochastic", "Yes", "O(K^-1/2)", "-", "–"),
    ("STABLE", "BLO", "Stochastic", "Yes", "O(K^-1/2)", "-", "–"),
    (
        "stocBiO",
        "BLO",
        "Stochastic",
        "Yes",
        "O(K^-1)",
        "-",
        "oracle=hypergradient, method=neumann with batches (one objective)",
    ),
    ("AmIGO", "BLO", "Stochastic", "Yes", "O(K^-1)", "-", "–"),
    ("BLMS", "MOBL", "Deterministic", "No", "-", "No", "–"),
    ("PSP-BLEMO", "MOBL", "Deterministic", "No", "-", "No", "–"),
    ("MOML", "MOBL", "Deterministic", "No", "-", "No", "algorithm=mgda, oracle.warm_start=false"),
    ("gMOBA", "MOBL", "Deterministic", "No", "-", "No", "–"),
    ("FORUM", "MOBL", "Deterministic", "Yes", "O(K^-1/4)", "No", "algorithm=forum, oracle=value_gap"),
    ("MoCo", "MOBL", "Stochastic", "Yes", "O(S K^-1/2)", "No", "algorithm=moco, oracle=moco"),
    (
        "WC-MHGD det",
        "MOBL",
        "Deterministic",
        "Yes",
        "O(K^-1)",
        "Yes",
        "algorithm=wc_mhgd, oracle=hypergradient",
    ),
    (
        "WC-MHGD stoch",
        "MOBL",
        "Stochastic",
        "Yes",
        "O(K^-1)",
        "Yes",
        "algorithm=wc_mhgd, method=neumann with batches",
    ),
]
FIELDS = ("problem", "scenario", "finite_time", "rate", "preference")


@artifact("mobl/table2")
def table2(a: Artifact) -> None:
    """Fourteen methods by what is proved of them, and which are here."""
    frame = pd.DataFrame(METHODS, columns=["method", *FIELDS, "here"])
    a.table(frame)
    printed = published("mobl/table2").rows
    ours = {
        f"{name} {field}": value
        for name, *values, _ in METHODS
        for field, value in zip(FIELDS, values, strict=True)
    }
    cells = zip(printed["row"], printed["column"], printed["value"], strict=True)
    a.check("cells", Equal(ours, {f"{name} {field}": value for name, field, value in cells}, what="cells"))
    a.note("Static text; the last column is ours.")
