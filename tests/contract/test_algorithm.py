"""Rules of every method of conf/algorithm, whatever it computes.

What a class is excused from stands beside the class (`mobench.core.Algorithm`). `test_addition.py` runs the
contract on the example of CONTRIBUTING.md.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mobench.core import Algorithm, Oracle, Runs, Set, loop
from mobench.core.output import make_output
from mobench.errors import ConfigError, MobenchError
from mobench.jobs.targets import parameters
from tests.contract import cases
from tests.contract.cases import ALGORITHMS, F64, OUTPUTS, SETTINGS, algorithm_of, path, settings_of

METHODS = cases.methods()
every = pytest.mark.parametrize("method", METHODS)
every_name = pytest.mark.parametrize("method", ALGORITHMS)


# the file and the class


@every_name
def test_the_file_builds_what_it_names(method: str) -> None:
    node = cases.node("algorithm", method)
    cls = cases.class_of("algorithm", method)
    made = cls(**{key: value for key, value in node.items() if key != "_target_"})
    assert isinstance(made, Algorithm)
    assert dataclasses.is_dataclass(cls)
    for key, value in node.items():
        assert key == "_target_" or getattr(made, key) == value, key
    assert made.citation, "the class names its source: citation: ClassVar[str]"
    assert cls.varies <= set(parameters(cls))
    for extra in (cls.small, *cls.variants.values()):
        assert set(extra) <= set(parameters(cls))


@every_name
def test_defaults_are_those_of_a_file(method: str) -> None:
    """A method made in Python has a file's settings, but for the step size and fields that came later."""
    cls = cases.class_of("algorithm", method)
    files = [
        cases.node("algorithm", name)
        for name in ALGORITHMS
        if issubclass(cls, cases.class_of("algorithm", name))
    ]
    for field in dataclasses.fields(cls):
        listed = field.name in cases.node("algorithm", method)
        if listed and field.name not in {"step_size", "outputs", *cls.added_fields}:
            said = [file[field.name] for file in files if field.name in file]
            assert field.default in said, f"{field.name}={field.default} of {cls.__name__}, files: {said}"


@every_name
def test_every_field_is_documented(method: str) -> None:
    missing = cases.undocumented(cases.class_of("algorithm", method))
    assert not missing, f"the docstring of the class does not name {', '.join(missing)}"


@every_name
def test_options_are_validated(method: str) -> None:
    """A choice that does not exist is refused with its field's name and, for a number, what is no number."""
    algorithm = algorithm_of(method)
    for field in dataclasses.fields(algorithm):
        if isinstance(field.default, str):
            setting = SETTINGS[settings_of(method)[0]]
            runs = setting.runs(2, 1)
            with pytest.raises(ConfigError, match=rf"(?s){field.name}.*no such choice"):
                _begun(algorithm, field.name, setting, runs)
    for field, value in (("step_size", 0.0), ("step_size", math.nan), ("step_decay", -1.0), ("outputs", [])):
        with pytest.raises(ConfigError, match=f"algorithm.{field}"):
            dataclasses.replace(algorithm, **{field: value})


def _begun(algorithm: Algorithm, field: str, setting: cases.Setting, runs: Runs) -> None:
    """Makes the method with a choice that does not exist; some need the number of objectives to know."""
    made = dataclasses.replace(algorithm, **{field: "no such choice"})
    path(made, setting.of(runs), runs, 0)


# runs are independent


@every
def test_a_run_alone_is_a_run_in_a_batch(method: str) -> None:
    """Iterates and the whole state, up to rounding; runs of a seed stay together in a population."""
    algorithm = algorithm_of(method)
    steps = 4 if algorithm.derivative_free else 15
    for name in settings_of(method):
        setting = SETTINGS[name]
        runs = setting.runs(seeds=2 if algorithm.together else 3)
        whole, together = path(algorithm, setting.of(runs), runs, steps)
        assert whole["alive"].all(), name
        assert not whole["fail"].any(), name
        assert (together[:, 0] != together[:, -1]).any(1).all() or algorithm.together, name
        states = dict(cases.tensors(whole))
        for part in cases.units(algorithm, runs):
            few = runs.take(part)
            alone, xs = path(algorithm, setting.of(few), few, steps)
            torch.testing.assert_close(xs, together[part], rtol=0, atol=1e-8, msg=cases.said(name))
            for where, value in cases.tensors(alone):
                # a ring has room for as many as it needs, and residuals are rounding
                if value.is_floating_point() and "kkt" not in where and "adaptive" not in where:
                    np.testing.assert_allclose(value, states[where][part], rtol=0, atol=1e-8, err_msg=where)


@every
def test_neighbours_of_a_diverged_run_do_not_notice(method: str) -> None:
    """To the bit: paths, residuals and averages; a population goes on without its member."""
    algorithm = algorithm_of(method)
    if algorithm.derivative_free:  # of those without gradients see test_populations
        return
    for name in sorted({"two", "three"} & set(settings_of(method))):
        setting = SETTINGS[name]
        runs = setting.runs(3, 1)
        good, clean = path(algorithm, cases.Faulty(setting.of(runs), "nan", 1, 99), runs, 10)
        for kind in ("nan", "inf", "overflow"):
            if algorithm.together and kind == "overflow":  # one long gradient belongs to the whole of it
                continue
            bad, xs = path(algorithm, cases.Faulty(setting.of(runs), kind, 1, 4), runs, 10)
            assert xs.isfinite().all(), kind
            assert bad["alive"][[0, 2]].all(), kind
            if kind == "nan":
                assert bad["alive"].tolist() == [True, False, True]
                assert torch.equal(xs[1, 4:], xs[1, 4:5].expand(7, -1))
            if algorithm.together:
                assert not torch.equal(xs[0, -1], xs[0, 5]), kind
                continue
            assert torch.equal(xs[[0, 2]], clean[[0, 2]]), kind
            for key in ("kkt", "fail"):
                assert torch.equal(bad[key][[0, 2]], good[key][[0, 2]]), (kind, key)
            for rule in OUTPUTS:
                final = make_output(rule).final
                expected = final(good["out"][rule], good["theta"])[[0, 2]]
                iterates = final(bad["out"][rule], bad["theta"])[[0, 2]]
                np.testing.assert_allclose(iterates, expected, rtol=0, atol=1e-15, err_msg=kind)


@every
def test_the_order_of_the_objectives_does_not_matter(method: str) -> None:
    """With preferences in the same order; unless the class says that it does (`symmetric`)."""
    algorithm = algorithm_of(method)
    if not algorithm.symmetric:
        return
    for name in settings_of(method):
        setting = SETTINGS[name]
        runs = setting.runs(4, 1)
        oracle = setting.of(runs)
        turned = dataclasses.replace(runs, weights=runs.weights.flip(1), all=runs.all.flip(1))
        start = oracle.initial(runs)
        _, one = path(algorithm, oracle, runs, 5, start)
        _, other = path(algorithm, cases.Turned(setting.of(runs)), turned, 5, start)
        torch.testing.assert_close(other, one, rtol=0, atol=1e-7, msg=cases.said(name))


@every_name
def test_the_preference_matters_where_the_class_says_so(method: str) -> None:
    algorithm = algorithm_of(method)
    setting = SETTINGS[settings_of(method)[-1]]
    runs = setting.runs(4, 1)
    start = setting.of(runs).initial(runs)[:1].expand(4, -1).clone()
    _, xs = path(algorithm, setting.of(runs), runs, 5, start)
    ends = {tuple(row) for row in xs[:, -1].tolist()}
    assert algorithm.together or len(ends) == (4 if algorithm.preferred else 1)


# the state


@every
def test_a_checkpoint_continues_to_the_bit(method: str, tmp_path: Path) -> None:
    """Saved at mid-run and loaded with weights_only into new objects; every tensor has the runs first."""
    steps, pause = (4, 2) if algorithm_of(method).derivative_free else (24, 11)
    outputs = (*OUTPUTS, "adaptive_two_pass")
    rules = {name: make_output(name) for name in outputs}
    for name in settings_of(method):
        setting = SETTINGS[name]

        def parts(setting: Any = setting) -> tuple[Oracle, Algorithm, Runs]:
            runs = setting.runs(2, 2)
            return setting.of(runs), algorithm_of(method), runs

        oracle, algorithm, runs = parts()
        through, xs = path(algorithm, oracle, runs, steps, outputs=outputs)
        oracle, algorithm, runs = parts()
        first = loop.start(oracle, algorithm, rules, oracle.initial(runs), runs, steps)
        torch.save(loop.advance(oracle, algorithm, rules, first, pause), tmp_path / "state.pt")
        loaded = torch.load(tmp_path / "state.pt", weights_only=True)
        assert loaded["t"] == pause
        assert torch.equal(loaded["theta"], xs[:, pause])
        for where, value in cases.tensors(loaded):
            assert len(value) == 4, f"{where} has shape {tuple(value.shape)}"
            # less where runs share what is the same for all
            assert value.untyped_storage().nbytes() <= value.nbytes, f"{where} drags its neighbours along"
        oracle, algorithm, runs = parts()
        cases.equal(through, loop.advance(oracle, algorithm, rules, loaded, steps))


@every
def test_the_type_of_the_iterate_is_kept(method: str) -> None:
    """float32 in, float32 out, and the same direction up to its rounding."""
    algorithm = algorithm_of(method)
    for name in settings_of(method):
        setting = SETTINGS[name]
        runs = setting.runs(3, 1)
        start = setting.of(runs).initial(runs).float()
        paths = {}
        for dtype in (torch.float32, F64):
            state, xs = path(algorithm, setting.of(runs), runs, 2, start.to(dtype))
            assert xs.dtype == dtype, name
            assert state["kkt"].dtype == F64
            paths[dtype] = xs
        assert float((paths[torch.float32] - paths[F64]).abs().max()) < 1e-3, name


# what it requests, and what it promises


@every_name
def test_it_requests_what_it_declares(method: str) -> None:
    """No more in any setting; and each of its needs in one of them."""
    requests: set[str] = set()
    needs: set[str] = set()
    algorithm = algorithm_of(method)
    for name in settings_of(method):
        setting = SETTINGS[name]
        runs = setting.runs(3, 1)
        oracle = cases.Watched(setting.of(runs))
        rules = {rule: make_output(rule) for rule in algorithm.outputs}
        state = loop.start(oracle, algorithm, rules, oracle.initial(runs), runs, 4)
        oracle.requests.clear()  # those of the outputs' first state
        state = loop.advance(oracle, algorithm, {}, {**state, "out": {}}, 4)
        assert len(oracle.samples) == 4 * algorithm.samples
        declared = algorithm.needs(loop.seen_by(algorithm, oracle).spec)
        assert oracle.requests - {"values", "vjp"} <= declared, name
        assert "vjp" not in oracle.requests or not algorithm.derivative_free
        X: Set = oracle.spec.X
        assert torch.equal(X.project(state["theta"]), state["theta"]), name
        requests |= oracle.requests
        needs |= declared
    assert needs <= requests
    assert needs <= {"jacobian", "jvp", "hvp"}


def values_of(algorithm: Algorithm, field: str) -> list[float]:
    """Two values of a field that its class accepts, near the one of its file."""
    value = getattr(algorithm, field)
    ladder = [0.7, 1.4, 0.3, 2.0]
    tried = [*(f * value for f in ladder), *ladder, 0.0, 0.05] if value and isinstance(value, float) else []
    tried += [0, 1, 2] if isinstance(value, int) and value is not False else [*ladder, 0.05]
    values: list[float] = []
    for number in tried:
        try:
            dataclasses.replace(algorithm, **{field: number})
        except MobenchError:
            continue
        values += [number] if number not in values else []
    return values[:2]


PROMISES = [(m, field) for m in ALGORITHMS for field in sorted(cases.class_of("algorithm", m).varies)]


@pytest.mark.parametrize(("method", "field"), PROMISES)
def test_a_field_that_varies_is_computed_with_as_a_number(method: str, field: str) -> None:
    """A column of values gives each run what the number gives it; and the method itself stays as it is."""
    algorithm = algorithm_of(method)
    before = getattr(algorithm, field)
    values = values_of(algorithm, field)
    assert len(values) == 2, f"no two values of {field} are accepted"
    for name in settings_of(method):
        setting = SETTINGS[name]
        runs = Runs.product(setting.runs(2, 1).all, [0, 1], 2)
        assert runs.variant is not None
        column = torch.tensor(values, dtype=F64)[runs.variant].unsqueeze(1)
        algorithm.stacked({field: column}).advice(setting.of(runs).spec)
        _, together = path(algorithm.stacked({field: column}), setting.of(runs), runs, 6, outputs=("last",))
        for v, value in enumerate(values):
            mine = [r for r in range(len(runs)) if int(runs.variant[r]) == v]
            few = runs.take(mine)
            number = dataclasses.replace(algorithm, **{field: value})
            _, alone = path(number, setting.of(few), few, 6, outputs=("last",))
            torch.testing.assert_close(together[mine], alone, rtol=0, atol=1e-12, msg=cases.said(name))
    assert getattr(algorithm, field) == before
