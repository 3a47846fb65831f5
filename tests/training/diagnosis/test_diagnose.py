"""What underflow takes is told by layers, with the scales between which they live."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sick_steps import BATCH, LARGE, T, X, scaled, step

import amp_rewrite as amp
from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.training.diagnosis.diagnosis import Diagnosis

pytestmark = pytest.mark.filterwarnings("ignore::amp_rewrite.errors.AmpWarning")


_HALF = FLOAT16.smallest_subnormal / 2


def found(loss_scale: float, precision: str = "float16") -> Diagnosis:
    with amp.TrainingSession(step(optimizer=scaled(loss_scale)), precision=precision) as session:
        return session.diagnose(BATCH)


def test_without_a_scale_all_is_lost_and_at_the_one_named_nothing_is() -> None:
    sick = found(1.0)
    (layer,) = sick.losing()
    assert (layer.layer, layer.zeros, layer.lost) == ("first", 1.0, 1.0)
    assert sick.scales is not None
    lives, most = sick.scales
    well = found(lives)
    assert well.losing(0.011) == []
    assert well.scales == (lives, most)
    assert found(lives / 4).losing(0.011)
    assert well.finite


def test_the_largest_scale_is_the_last_at_which_nothing_overflows() -> None:
    with amp.TrainingSession(step(optimizer=scaled(1.0)), precision="float16") as session:
        exact = session.diagnose(BATCH)
        assert exact.scales is not None
        largest = exact.scales[1]
    assert found(largest).finite
    with amp.TrainingSession(step(optimizer=scaled(largest * 2)), precision="float16") as session:
        after = session.diagnose(BATCH)
    assert not after.finite
    assert after.first is not None
    assert after.first.part == "backward"


def test_the_share_that_is_lost_is_that_of_numbers_below_half_the_smallest() -> None:
    """The gradient that arrives at the first layer, computed in float64."""
    x, w = BATCH["x"].astype(np.float64), np.arange(1.0, 9).reshape(4, 2)
    e = np.exp(x @ w)
    arriving = 1024 * 2 / e.size * (e * 1e-5) * 1e-5 * e
    of_weights = np.abs(x.T @ np.where(arriving < _HALF, 0, arriving))
    (layer,) = [layer for layer in found(1024.0).layers if layer.layer == "first"]
    assert layer.lost == max(np.mean(arriving < _HALF), np.mean(of_weights < _HALF))
    assert 0 < layer.lost < 1


def test_float32_has_no_layers_and_bfloat16_loses_nothing() -> None:
    with amp.TrainingSession(step()) as session:
        plain = session.diagnose(BATCH)
    assert (plain.layers, plain.scales) == ((), None)
    assert found(1.0, "bfloat16").losing() == []


MASK = """
    [mask] m = Where (no, minus_infinity, e)
    [chance] p = Softmax (m)
    [diff] d = Sub (p, t)
    [square] s = Mul (d, d)"""


def first(nodes: Any = None, feeds: Any = None, **given: Any) -> Any:
    made = step(**({} if nodes is None else {"nodes": nodes}), **given)
    with amp.TrainingSession(made) as session:
        before = session.state_dict()
        found = session.diagnose(BATCH if feeds is None else feeds)
        after = session.state_dict()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert found.finite == (found.first is None)
    return found.first


def test_a_step_that_is_well_has_no_first_value() -> None:
    assert first() is None


def test_an_overflow_of_the_forward_pass() -> None:
    found = first(feeds=LARGE)
    assert (found.node, found.op, found.part, found.layer) == ("act", "Exp", "forward", None)
    largest = np.abs(LARGE["x"] @ np.arange(1, 9, dtype=np.float32).reshape(4, 2)).max()
    assert found.reached == pytest.approx(largest, rel=1e-5)
    assert found.infinite > 0 == found.nan
    assert found.elements == 16
    assert "'e', which Exp 'act' computes (forward) from magnitudes of at most" in found.text()


def test_a_root_of_zero_is_found_in_the_backward_pass() -> None:
    nodes = """[zero] z = Sub (e, e) p = Constant <value = float {0.4}> () [root] r = Pow (z, p)
        [diff] d = Sub (r, t) [square] s = Mul (d, d)"""
    found = first(nodes, feeds={"x": X, "t": T + 1})
    assert (found.part, found.layer) == ("backward", "root")
    assert "(backward of 'root')" in found.text()


def test_a_branch_that_is_not_taken_is_found_where_it_overflows() -> None:
    """The trap of a choice between a number and a quotient: 0 times infinity, on the way back."""
    nodes = """
        [zero] z = Sub (e, e)
        [share] q = Div (e, z)
        [never] no = Less (e, z)
        [choice] c = Where (no, q, e)
        [diff] d = Sub (c, t) [square] s = Mul (d, d)"""
    found = first(nodes)
    assert (found.node, found.part) == ("share", "forward")


@pytest.mark.parametrize(("masked", "found"), [("{0, 1}", None), ("{1, 1}", "chance")])
def test_the_infinity_of_a_mask_counts_only_where_it_makes_nan(masked: str, found: Any) -> None:
    nodes = f"""
        [rows] no = Constant <value = bool[2] {masked}> ()
        [infinity] minus_infinity = Constant <value = float {{-inf}}> ()
        {MASK}"""
    named = first(nodes)
    assert (named and named.node) == found
    assert named is None or (named.op, named.nan) == ("Softmax", 16)


def test_a_fed_number_and_a_state() -> None:
    spoilt = {"x": X.copy(), "t": T}
    spoilt["x"][0, 0] = np.nan
    assert first(feeds=spoilt).text() == "1 NaN of 32 elements of 'x', an input of the step"
    with amp.TrainingSession(step()) as session:
        session.assign_state("w", np.full((4, 2), np.inf, np.float32))
        found = session.diagnose(BATCH).first
    assert found is not None
    assert (found.value, found.part, found.infinite) == ("w", "state", 8)


def test_what_overflows_in_low_precision_alone() -> None:
    feeds = {"x": np.full((8, 4), -1e5, np.float32), "t": T}
    assert first(feeds=feeds) is None
    with amp.TrainingSession(step(optimizer=scaled()), precision="float16") as session:
        found = session.diagnose(feeds)
    assert (found.precision, found.loss_scale) == ("float16", 2.0**15)
    assert found.first is not None
    assert (found.first.op, found.first.part, found.first.infinite) == ("Cast", "forward", 32)
    assert found.first.reached == 1e5


def test_a_diagnosis_of_the_last_run_begins_where_it_began() -> None:
    with amp.TrainingSession(step(optimizer=amp.optimizers.SGD(1e30))) as session:
        session.run(BATCH)
        assert session.diagnose(BATCH, last=True).finite
        now = session.diagnose(BATCH).first
    assert now is not None
    assert now.part == "forward"
