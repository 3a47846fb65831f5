"""tune: the least float32 by the error budget, held against a run of the model."""

from __future__ import annotations

import math
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from hot_chains import chain, data
from planted_faults import FAULTS

import amp_rewrite as amp
from amp_rewrite.errors import DataError, OptionError, SaveError
from amp_rewrite.numerics.budget.contributions import measure
from amp_rewrite.numerics.budget.fit import Fit, limits_of
from amp_rewrite.numerics.budget.tolerance import Tolerance
from amp_rewrite.numerics.budget.tune import tune
from amp_rewrite.numerics.emulate import evaluate
from amp_rewrite.numerics.repaint.repaint import Repainter
from amp_rewrite.rewriting.plan.options import RewriteOptions

TOLERANCE = Tolerance("max-relative", 0.01)
each_fault = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)


def test_nothing_is_kept_where_the_tolerance_holds_anyway() -> None:
    found = tune(chain(()), data(), TOLERANCE, target="schema")
    assert (found.keep, found.holds) == ((), True)
    assert found.loss <= TOLERANCE.limit
    assert found.predicted <= 1


def test_the_nodes_around_each_overflow_are_kept_and_no_other() -> None:
    found = tune(chain((2, 7)), data(), TOLERANCE, target="schema")
    assert set(found.keep) == {"n2", "n3", "n7", "n8"}
    assert found.holds
    assert math.isinf(found.before)
    assert found.loss <= TOLERANCE.limit


def test_the_result_is_an_op_list_that_rewrite_takes(tmp_path: Path) -> None:
    output = tmp_path / "keep.yaml"
    found = tune(chain((4,)), data(), TOLERANCE, target="schema", output=output)
    assert output.read_text() == found.to_yaml() + ("" if found.to_yaml().endswith("\n") else "\n")
    result = amp.rewrite(chain((4,)), lists=str(output), target="schema")
    kept = {n.name for n in result.report.nodes if n.variables["T"].dtype == "float32"}
    assert kept == {"n4", "n5"}


@each_fault
def test_a_planted_fault_is_kept_float32(fault: Any) -> None:
    tolerance = Tolerance("max-relative", 0.02)
    found = tune(fault.model, fault.data, tolerance, target="schema")
    assert found.holds
    lists = [*found.rules]
    result = amp.rewrite(fault.model, target="schema", deny_nodes=[r.node for r in lists])
    for feeds in fault.data:
        one, other = (evaluate(m, feeds)["y"] for m in (fault.model, result.model))
        assert np.abs(other - one).max() <= 0.02 * np.abs(one).max()


@each_fault
def test_the_budget_names_the_culprit_of_a_planted_fault(fault: Any) -> None:
    mixed = amp.rewrite(fault.model, target="schema").model
    budget = amp.error_budget(fault.model, fault.data, rewritten=mixed)
    assert max(budget.predicted.values()) > 0.02
    worst = [each for _, _, each in budget.shares()][:3]
    makers = {o: n.name for n in fault.model.graph.node for o in n.output}
    named = {each.node for each in worst} | {makers.get(each.value) for each in worst}
    near = {o for n in fault.model.graph.node if n.name in fault.culprits for o in n.input}
    assert named & set(fault.culprits) or {each.value for each in worst} & near


def test_a_spent_budget_keeps_everything_and_does_not_hold() -> None:
    found = tune(chain((4,)), data(), TOLERANCE, target="schema", budget=1e-9)
    assert not found.holds
    assert len(found.keep) == 10


def test_a_budget_ends_what_does_not_end() -> None:
    start = time.monotonic()
    found = tune(endless(), [{"x": np.ones(4, np.float32)}], TOLERANCE, budget=0.3)
    assert time.monotonic() - start < 20  # it would never end; the limit is for slow machines
    assert not found.holds
    assert set(found.keep) >= {"a", "b"}


def endless() -> ir.Model:
    """Return two products behind a loop of 2^40 steps."""
    return ir.from_onnx_text(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[2] y)
        <float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}, float[4,2] v = {1,2,3,4,5,6,7,8}> {
        go = Constant<value = bool {1}>() count = Constant<value = int64 {1099511627776}>()
        [loop] l = Loop(count, go, x) <body =
          b (int64 i, bool c, float[4] h) => (bool d, float[4] n) {
          d = Identity(c) n = Tanh(h) }>
        [a] p = MatMul(l, w) [b] y = MatMul(p, v) }"""
    )


def weighted(text: str, **weights: Any) -> onnx.ModelProto:
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    arrays = ((name, np.asarray(array, np.float32)) for name, array in weights.items())
    made.graph.initializer.extend(onnx.numpy_helper.from_array(a, name) for name, a in arrays)
    return made


def test_what_all_operands_of_a_softmax_share_is_no_error() -> None:
    rng = np.random.default_rng(0)
    made = weighted(
        """g (float[8,16] x) => (float[8,5] p) { [e] h = MatMul(x, w) [m] l = MatMul(h, v)
        [sq] q = Mul(h, h) [ss] s = ReduceSum<keepdims=1>(q, ax) [d] m = Sub(l, s)
        [p] p = Softmax(m) }""",
        w=3 * rng.standard_normal((16, 16)),
        v=rng.standard_normal((16, 5)) / 16,
    )
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.array([-1], np.int64), "ax"))
    feeds = [{"x": rng.standard_normal((8, 16)).astype(np.float32)} for _ in range(3)]
    found = tune(made, feeds, 0.01)
    assert found.holds
    assert not {"e", "m"} & {*found.keep}


def test_a_choice_that_just_holds_is_better_than_float32_alone() -> None:
    rng = np.random.default_rng(0)
    made = weighted(
        """g (float[4,16] x) => (float[4,4] y) {
        [a] h = MatMul(x, w) [b] t = Tanh(h) [c] y = MatMul(t, v) }""",
        w=rng.standard_normal((16, 16)),
        v=rng.standard_normal((16, 4)),
    )
    painter = Repainter.of(made, RewriteOptions())
    measured = measure(painter, [{"x": rng.standard_normal((4, 16)).astype(np.float32)}])

    def loss_of(rules: Any) -> float:
        return 0.95 if painter.paint(rules).painting.allow.any() else 0.0

    found = Fit(painter, measured, limits_of(measured, Tolerance("error", 0.01)), loss_of).run()
    assert found is not None
    assert (found.loss, found.holds) == (0.95, True)


def test_what_overflows_has_a_price_where_a_probability_is_let_alone() -> None:
    rng = np.random.default_rng(0)
    made = weighted(
        """g (float[4,16] x) => (float[4,4] p) { [a] h = MatMul(x, w) [e] u = Tanh(h)
        [big] b = MatMul(u, s) [t] t = Softsign(b) [add] k = Add(t, u) [c] y = MatMul(k, v)
        [p] p = Sigmoid(y) }""",
        w=rng.standard_normal((16, 16)),
        s=3e4 * rng.standard_normal((16, 16)),
        v=rng.standard_normal((16, 4)),
    )
    feeds = [{"x": rng.standard_normal((4, 16)).astype(np.float32)} for _ in range(2)]
    with warnings.catch_warnings(action="error", category=RuntimeWarning):
        assert tune(made, feeds, 1e-5).budget is not None


def test_an_op_list_is_not_written_in_place_of_a_model_or_data(tmp_path: Path) -> None:
    for name in ("a.onnx", "a.npz"):
        with pytest.raises(SaveError, match=rf"{name}: an op list is written; expected NAME.yaml"):
            tune(chain(()), data(), TOLERANCE, output=tmp_path / name)
        with pytest.raises(SaveError, match="an op list is written"):
            tune(chain(()), data(), TOLERANCE).save(tmp_path / name)
    assert not [*tmp_path.iterdir()]


def test_no_data_and_no_tolerance_are_refused() -> None:
    with pytest.raises(DataError, match="no batch"):
        tune(chain(()), [], TOLERANCE)
    with pytest.raises(OptionError, match="impossible tolerance"):
        tune(chain(()), data(), rtol=-1)


def cancelling() -> onnx.ModelProto:
    """Return the difference of two products of almost the same weights, which are not 16 bits."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal(16)
    weights = ", ".join(
        f"float[4,4] {name} = {{{','.join(f'{n:.9g}' for n in numbers)}}}"
        for name, numbers in (("w", w), ("v", w + 1e-3 * rng.standard_normal(16)))
    )
    return onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2,4] x) => (float[2,4] y)'
        f"<{weights}> {{ [a] h = MatMul(x, w) [b] i = MatMul(x, v) [d] y = Sub(h, i) }}"
    )


def test_rounded_weights_count() -> None:
    found = tune(cancelling(), data(), TOLERANCE, target="schema")
    assert found.holds
    assert set(found.keep) >= {"a", "b"}


def padded_attention() -> tuple[onnx.ModelProto, list[dict[str, np.ndarray]]]:
    """Return causal attention, and sequences with padding on the left of which no row sees any."""
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 18]>
        g (float[2,6,16] x, float[2,6,6] mask) => (float[2,6,16] y) {
          q = MatMul(x, wq) k = MatMul(x, wk) kt = Transpose<perm=[0,2,1]>(k)
          s = MatMul(q, kt) m = Add(s, mask) p = Softmax(m) y = MatMul(p, x) }"""
    )
    rng = np.random.default_rng(0)
    for name in ("wq", "wk"):
        weight = (rng.standard_normal((16, 16)) / 4).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    keep = np.tril(np.ones((2, 6, 6), np.bool_))
    keep[0, :, :2] = False
    mask = np.where(keep, 0, -1e4).astype(np.float32)
    x = rng.standard_normal((2, 6, 16)).astype(np.float32)
    return model, [{"x": x, "mask": mask}]


def test_a_mask_keeps_nothing_float32() -> None:
    model, feeds = padded_attention()
    ways: dict[str, Any] = {"target": "schema", "allow_nodes": ("*",)}
    found = tune(model, feeds, Tolerance("cosine", 1e-4), **ways)
    assert (found.keep, found.holds) == ((), True)


TRACKED = [{"s": np.array([1000, 1.1], np.float32), "z": np.array([1001.3], np.float32)}]
"""A place of 1000 and a speed of 1, and where it is seen."""


def tracker() -> onnx.ModelProto:
    """Return a Kalman filter's update: in 8 bits the difference of two places is 0 or 8."""
    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 18]> g (float[2] s, float[1] z) => (float[2] out)
        <int64[1] first = {0}> {
          p = MatMul(F, s) place = Gather(p, first) r = Sub(z, place)
          c = MatMul(K, r) out = Add(p, c) }"""
    )
    for name, weight in {"F": [[1.0, 0.1], [0.0, 1.0]], "K": [[0.3], [0.4]]}.items():
        array = np.array(weight, np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


@pytest.mark.parametrize("rtol", [None, 0.01])
def test_convert_keeps_what_a_small_slice_needs(rtol: float | None) -> None:
    made = amp.convert(tracker(), TRACKED, precision="bfloat16", rtol=rtol, budget=30)
    assert (made.ok, made.is_low, made.nothing_left) == (True, True, None)
    assert made.kept is not None
    assert made.kept.rules


def test_a_small_slice_counts() -> None:
    tolerance = Tolerance("max-relative", 0.01)
    found = amp.tune(tracker(), TRACKED, tolerance, precision="bfloat16", budget=30)
    assert found.before > 0.01 >= found.loss
    assert found.keep
