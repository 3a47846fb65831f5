"""tune: minimal sets, a budget, resuming, and the best result always on disk."""

import math
import time

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest
from hot_chains import chain, data

import amp_rewrite as amp
from amp_rewrite.errors import DataError, OptionError, OutOfTimeError
from amp_rewrite.numerics.search.tolerance import Tolerance
from amp_rewrite.numerics.search.tune import tune
from amp_rewrite.runtimes.ort.sessions import Session

TOLERANCE = Tolerance("max-relative", 0.01)


def test_nothing_is_kept_where_the_tolerance_holds_anyway():
    found = tune(chain(()), data(), TOLERANCE, target="schema")
    assert found.keep == ()
    assert found.minimal
    assert found.loss == found.before <= TOLERANCE.limit


def test_the_nodes_around_each_overflow_are_kept_and_no_other():
    found = tune(chain((2, 7)), data(), TOLERANCE, target="schema")
    assert set(found.keep) == {"n2", "n3", "n7", "n8"}
    assert found.minimal
    assert found.smallest
    assert math.isinf(found.before)
    assert found.loss <= TOLERANCE.limit


def test_the_result_is_an_op_list_that_convert_takes(tmp_path):
    output = tmp_path / "keep.yaml"
    found = tune(chain((4,)), data(), TOLERANCE, target="schema", output=output)
    assert output.read_text() == found.to_yaml() + ("" if found.to_yaml().endswith("\n") else "\n")
    result = amp.rewrite(chain((4,)), lists=str(output), target="schema")
    kept = {n.name for n in result.report.nodes if n.variables["T"].dtype == "float32"}
    assert kept == {"n4", "n5"}


def test_the_best_set_so_far_is_on_disk_when_the_search_is_interrupted(tmp_path):
    output = tmp_path / "keep.yaml"

    def interrupt(step):
        if step.best is not None and step.best < 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(chain((4,)), data(), TOLERANCE, target="schema", output=output, progress=interrupt)
    result = amp.rewrite(chain((4,)), lists=str(output), target="schema")
    assert 0 < result.report.summary.nodes_converted < 10


def test_a_spent_budget_gives_a_set_that_holds_without_claiming_that_it_is_minimal():
    found = tune(chain((4,)), data(), TOLERANCE, target="schema", budget=1e-9)
    assert not found.minimal
    assert len(found.keep) == 10


def test_no_data_are_refused():
    with pytest.raises(DataError, match="no batch"):
        tune(chain(()), [], TOLERANCE)


@pytest.mark.parametrize(
    ("metric", "reference", "found", "loss"),
    [
        ("max-relative", [1.0, -4.0], [1.0, -3.0], 0.25),
        ("max-relative", [0.0, 0.0], [0.0, 1.0], math.inf),
        ("cosine", [1.0, 0.0], [0.0, 1.0], 1.0),
        ("cosine", [1.0, 1.0], [2.0, 2.0], 0.0),
        ("cosine", [0.0, 0.0], [0.0, 0.0], 0.0),
        ("top1", [[1.0, 2.0], [3.0, 1.0]], [[2.0, 1.0], [3.0, 1.0]], 0.5),
        ("top1", [[1.0], [3.0]], [[2.0], [3.0]], 0.0),
        ("max-relative", [1.0, 2.0], [1.0, math.inf], math.inf),
        ("max-relative", [1.0, math.inf], [1.0, math.inf], 0.0),
        ("max-relative", [1.0], [1.0, 2.0], math.inf),
    ],
)
def test_metrics(metric, reference, found, loss):
    one, other = np.array(reference, np.float32), np.array(found, np.float32)
    assert Tolerance(metric, 0.0).loss(one, other) == pytest.approx(loss, abs=1e-12)


def test_integers_are_compared_by_share():
    assert Tolerance("cosine", 0.0).loss(np.array([1, 2]), np.array([1, 3])) == 0.5


def test_an_unknown_metric_is_refused():
    with pytest.raises(OptionError, match="unknown metric"):
        Tolerance("mse", 0.1)
    with pytest.raises(OptionError, match="impossible tolerance"):
        Tolerance("cosine", -1.0)


def cancelling():
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


def test_a_tolerance_that_the_weights_alone_exceed_is_said_before_the_search():
    heard = []
    found = tune(
        cancelling(),
        data(),
        TOLERANCE,
        target="schema",
        warn=lambda line: heard.append(line),
        progress=lambda step: heard.append(step.trials),
    )
    assert found.control is not None
    assert found.control > TOLERANCE.limit
    assert heard[:2] == [1, found.beyond]
    assert "rounding the weights alone to float16" in heard[1]
    assert "rtol 0.01 is below the loss" in heard[1]
    assert found.unmet is None


def test_a_budget_that_ends_early_is_said_with_what_the_weights_alone_bring():
    def end(_):
        raise OutOfTimeError("the time is over")

    found = tune(cancelling(), data(), TOLERANCE, target="schema", budget=60, warn=end)
    assert not found.minimal
    unmet, beyond = str(found.unmet), str(found.beyond)
    assert unmet.startswith("Time ran out after 60 s; more ")
    assert unmet.endswith(beyond)


def test_a_budget_ends_what_comes_before_the_search_as_well():
    start = time.monotonic()
    found = tune(endless(), [{"x": np.ones(4, np.float32)}], TOLERANCE, budget=0.3)
    assert time.monotonic() - start < 20  # it would never end; the limit is for slow machines
    assert (found.loss, math.isnan(found.before)) == (0.0, True)
    assert set(found.keep) >= {"a", "b"}
    assert "not measured without" in found.to_yaml()


def test_an_estimate_gets_a_share_of_the_budget():
    def estimate(model, batches, precision):
        Session(endless()).run({"x": np.ones(4, np.float32)})

    start = time.monotonic()
    found = tune(chain((4,)), data(), TOLERANCE, target="schema", budget=5, estimate=estimate)  # pyright: ignore[reportArgumentType]
    assert time.monotonic() - start < 20
    assert found.loss <= TOLERANCE.limit
    assert {"n4", "n5"} <= set(found.keep)


def endless():
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


def test_nothing_is_said_of_weights_where_the_arithmetic_is_to_blame():
    heard = []
    found = tune(chain((2,)), data(), TOLERANCE, target="schema", warn=heard.append)
    assert (heard, found.beyond) == ([], None)
    assert found.control is not None
    assert found.control <= TOLERANCE.limit


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


@pytest.mark.parametrize("metric", ["max-relative", "cosine"])
def test_rows_that_are_masked_whole_keep_nothing_float32(metric):
    model, feeds = padded_attention()
    limit = {"max-relative": 0.02, "cosine": 1e-4}[metric]
    ways = {"target": "schema", "allow_nodes": ("*",)}
    found = tune(model, feeds, Tolerance(metric, limit), **ways)
    assert (found.keep, found.loss <= limit) == ((), True)


ROUTER = """<ir_version: 10, opset_import: ["" : 18]> g (float[4,16] x) => (float[4,8] y)
  <int64[1] k = {4}, float none = {0}> {
  s = MatMul(x, w) v, i = TopK(s, k) least = ReduceMin<keepdims=1>(v, last)
  in = LessOrEqual(s, least) kept = Where(in, none, s) y = Softmax(kept) }"""


def test_other_places_that_a_router_fills_are_no_overflow():
    """Where rounding chooses another group, what was finite is minus infinity, as in verify."""
    model = onnx.parser.parse_model(ROUTER)
    rng = np.random.default_rng(3)
    weight = rng.standard_normal((16, 4)).astype(np.float32)
    weight = np.concatenate([weight, weight * (1 + 1e-4 * rng.standard_normal((16, 4)))], 1)
    weights = {"w": weight.astype(np.float32), "last": np.array([-1])}
    for name, each in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(each, name))
    (none,) = (t for t in model.graph.initializer if t.name == "none")
    none.CopyFrom(onnx.numpy_helper.from_array(np.array(-np.inf, np.float32), "none"))
    feeds = [{"x": rng.standard_normal((4, 16)).astype(np.float32)} for _ in range(4)]
    found = tune(model, feeds, Tolerance("cosine", 2.0), target="schema")
    assert found.keep == ()
