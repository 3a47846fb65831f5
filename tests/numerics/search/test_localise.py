"""localise: the first node that departs, the one that contributes most, absorbed infinities."""

import json
import math

import numpy as np
import onnx.parser
import pytest

import amp_rewrite as amp
from amp_rewrite.errors import DataError, GraphError
from amp_rewrite.numerics.emulate import evaluate
from amp_rewrite.numerics.repaint.repaint import Repainter
from amp_rewrite.numerics.search.gates import GatedModel
from amp_rewrite.numerics.search.localise import distance, localise
from amp_rewrite.rewriting.plan.options import RewriteOptions


def model(body, weights, opset=17, inputs="float[2,4] x"):
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> g ({inputs}) => (float[2,4] y)'
    return onnx.parser.parse_model(f"{text} <{weights}> {{{body}}}")


def square(value, name="w"):
    return f"float[4,4] {name} = {{{','.join([f'{value:g}'] * 16)}}}"


def random(scale=1.0):
    rng = np.random.default_rng(0)
    return {"x": (scale * rng.uniform(0.5, 1.5, (2, 4))).astype(np.float32)}


CHAIN = model(
    "[a] h = MatMul(x, w) [b] i = MatMul(h, v) [c] j = Sub(i, h) [d] y = MatMul(j, w)",
    f"{square(0.3)}, {square(2000, 'v')}",
)


def mixed(source, **options):
    return amp.rewrite(source, target="schema", **options).model


def test_a_model_that_holds_has_no_first_node():
    found = localise(CHAIN, mixed(CHAIN), random(1.0))
    assert found.holds
    assert found.first is None
    assert found.outputs["y"] < found.tolerance
    assert {error.node for error in found.ranking} == {"a", "b", "c", "d"}


def test_an_overflow_is_named_where_it_happens():
    found = localise(CHAIN, mixed(CHAIN), random(20.0))
    assert not found.holds
    assert found.first is not None
    assert found.first.node == "b"
    assert found.most is not None
    assert found.most.node == "b"
    assert math.isinf(found.outputs["y"])


def test_the_node_that_contributes_most_is_found_by_running_it_alone():
    cancels = model(
        "[a] h = MatMul(x, w) [scale] i = Relu(h) [plus] k = Add(i, big) [minus] l = Sub(k, big)"
        "[d] y = MatMul(l, w)",
        f"{square(0.3)}, float big = {{2000}}",
    )
    found = localise(cancels, mixed(cancels), random(1.0))
    assert not found.holds
    assert found.most is not None
    assert found.most.node == "plus"
    assert found.ranking[1].node == "minus"
    assert found.most.contribution > 0.01
    assert found.tried == len(found.ranking)


def test_a_budget_of_nothing_still_tries_the_most_suspicious():
    found = localise(CHAIN, mixed(CHAIN), random(20.0), budget=0.0)
    assert found.tried == 1
    assert found.most is not None
    assert found.most.node == "b"
    assert any(math.isnan(error.contribution) for error in found.ranking)


def test_every_batch_counts():
    data = [random(1.0), random(20.0)]
    assert localise(CHAIN, mixed(CHAIN), data[:1]).holds
    assert not localise(CHAIN, mixed(CHAIN), data).holds


def test_bfloat16_is_recognised():
    low = mixed(CHAIN, precision="bfloat16")
    found = localise(CHAIN, low, random(20.0))
    assert math.isfinite(found.outputs["y"])


def test_nodes_that_stayed_float32_are_not_blamed():
    kept = mixed(CHAIN, deny_nodes=["b", "c", "d"])
    found = localise(CHAIN, kept, random(20.0))
    assert found.holds
    assert [error.node for error in found.ranking] == ["a"]


def test_the_json_form_has_no_bare_infinity():
    text = json.dumps(localise(CHAIN, mixed(CHAIN), random(20.0)).to_dict(), allow_nan=False)
    assert json.loads(text)["first"]["node"] == "b"


def test_a_model_without_low_precision_is_refused():
    with pytest.raises(DataError, match="no low-precision value"):
        localise(CHAIN, CHAIN, random())


def test_two_models_that_do_not_belong_together_are_refused():
    other = model("[p] y = MatMul(x, w)", square(1))
    with pytest.raises(DataError, match="no node is low-precision"):
        localise(other, mixed(CHAIN), random())


def test_no_data_are_refused():
    with pytest.raises(DataError, match="no batch"):
        localise(CHAIN, mixed(CHAIN), [])


def test_an_opset_without_where_is_refused():
    old = model("[a] y = MatMul(x, w)", square(1), opset=8)
    with pytest.raises(GraphError, match="opset is too old"):
        localise(old, mixed(old), random())


def test_distances_ignore_what_float32_itself_does_not_know():
    inf = np.array([1, np.inf, np.nan], np.float32)
    assert distance(inf, inf) == 0
    assert distance(inf, np.array([1, 0, 0], np.float32)) == 0
    assert math.isinf(distance(np.array([1.0]), np.array([np.inf])))
    assert math.isinf(distance(np.zeros(2), np.ones(2)))
    assert distance(np.zeros(2), np.zeros(2)) == 0


def test_open_gates_compute_what_the_rewritten_model_computes():
    nested = model(
        """[a] h = MatMul(x, w)
        [if] k = If(c) <then_branch = t () => (float[2,4] p) {[in_then] p = MatMul(h, v)},
                        else_branch = e () => (float[2,4] q) {[in_else] q = Add(h, h)}>
        [loop] l = Loop(n, on, k) <body = b (int64 i, bool c0, float[2,4] s)
            => (bool c1, float[2,4] r) {[same] c1 = Identity(c0) [step] r = MatMul(s, w)}>
        [z] y = Mul(l, l)""",
        f"{square(0.3)}, {square(0.7, 'v')}, bool on = {{1}}",
        inputs="float[2,4] x, bool c, int64 n",
    )
    painter = Repainter.of(nested, RewriteOptions(target="schema"))
    result = painter.rewrite()
    gated = GatedModel.of(painter, painter.paintable(result))
    for taken in (False, True):
        feeds = {**random(), "c": np.array(taken), "n": np.array(2, np.int64)}
        low = gated.run(feeds, painter.low_slots(result))
        assert np.array_equal(low["y"], evaluate(result.model, feeds)["y"])
        plain = gated.run(feeds, ())
        assert np.array_equal(plain["y"], evaluate(nested, feeds)["y"])
        assert not np.array_equal(plain["y"], low["y"])


def attention(scores):
    """Return attention with a mask that is added to the scores, and these nodes for both."""
    source = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 18]> g (float[1,8,16] x, float[1,8,8] mask) => '
        "(float[1,8,16] y) { [q] q = MatMul(x, wq) [k] k = MatMul(x, wk) [v] v = MatMul(x, wv) "
        f"[t] t = Transpose <perm = [0,2,1]> (k) [s] s = MatMul(q, t) {scores} "
        "[y] y = MatMul(p, v) }"
    )
    rng = np.random.default_rng(0)
    for name in ("wq", "wk", "wv"):
        weight = (rng.standard_normal((16, 16)) / 4).astype(np.float32)
        source.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    return source


@pytest.mark.parametrize("first", [0, 4])
def test_fills_of_masks_and_rows_masked_whole_do_not_depart(first):
    wide = attention("[a] a = Add(s, mask) [p] p = Softmax(a)")
    low = attention(
        "[c] h = Cast <to = 10> (s) [d] m = Cast <to = 10> (mask) [a] a = Add(h, m) "
        "[p] b = Softmax(a) [e] p = Cast <to = 1> (b)"
    )
    mask = np.where(np.tril(np.ones((8, 8))), 0, -3e38).astype(np.float32)
    mask[:, :first] = -3e38
    x = np.random.default_rng(1).standard_normal((1, 8, 16)).astype(np.float32)
    found = localise(wide, low, {"x": x, "mask": mask[None]}, target="schema")
    assert {error.node for error in found.ranking} == {"a", "p"}
    assert (found.first, found.absorbed) == (None, ())
    assert found.holds


def test_the_first_to_depart_was_tried_alone():
    magnified = model(
        "r = Relu(x) [a] h = MatMul(r, w) [far] i = Add(h, big) [back] k = Sub(i, big) "
        "[d] y = MatMul(k, w)",
        f"{square(0.3)}, float big = {{2000}}",
    )
    low = mixed(magnified, deny_nodes=["back", "d"])
    found = localise(magnified, low, random(1.0))
    assert not found.holds
    assert (found.first, found.most.node) == (None, "far")
