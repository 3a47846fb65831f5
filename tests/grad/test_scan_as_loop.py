"""Scan becomes a Loop before it is differentiated."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from loop_models import check, differentiated, model_of, numbers

import amp_rewrite as amp
from amp_rewrite.grad import GradientError
from amp_rewrite.grad.prepare import prepare

SCAN = """(float[2,3] s, float[2,3] c, float[5,2,3] x, float[2,5,3] z, float[3,3] w)
        => (float[2,3] f, float[2,3] g, float[5,2,3] y, float[2,3,5] v) {
    [scan] f, g, y, v = Scan<num_scan_inputs = 2, scan_input_axes = [0, AXIS],
            scan_input_directions = [FIRST, SECOND], scan_output_axes = [0, LAST],
            scan_output_directions = [SECOND, FIRST],
            body = turn (float[2,3] h, float[2,3] k, float[2,3] xt, float[2,3] zt)
            => (float[2,3] h1, float[2,3] k1, float[2,3] yt, float[2,3] vt) {
        p = MatMul(h, w)
        a = Add(p, xt)
        h1 = Tanh(a)
        k1 = Mul(k, zt)
        yt = Mul(h, k1)
        vt = Exp(a)
    }>(s, c, x, z)
}"""
FEEDS = {
    "s": numbers(2, 3),
    "c": numbers(2, 3),
    "x": numbers(5, 2, 3),
    "z": numbers(2, 5, 3),
    "w": numbers(3, 3),
}


def scan(first: int, second: int, *, negative: bool) -> str:
    axes = ("-2", "-1") if negative else ("1", "2")
    text = SCAN.replace("AXIS", axes[0]).replace("LAST", axes[1])
    return text.replace("FIRST", str(first)).replace("SECOND", str(second))


@pytest.mark.share(4)
@pytest.mark.parametrize("opset", [16, 18, 23])
@pytest.mark.parametrize(("first", "second"), [(0, 0), (0, 1), (1, 0)])
def test_a_scan_of_several_states_inputs_and_outputs_is_differentiated(
    first: int, second: int, opset: int
) -> None:
    model = check(scan(first, second, negative=opset == 23), FEEDS, opset)
    assert not any(node.op_type == "Scan" for node in model.graph.all_nodes())
    assert model.graph.node("scan").op_type == "Loop"


def test_a_scan_without_states_is_differentiated() -> None:
    text = """(float[4,2] x, float[2] w) => (float[4,2] y) {
        y = Scan<num_scan_inputs = 1, body = turn (float[2] a) => (float[2] b) {
            p = Mul(a, w)
            b = Exp(p)
        }>(x)
    }"""
    check(text, {"x": numbers(4, 2), "w": numbers(2)})


def test_a_scan_inside_a_scan_is_differentiated() -> None:
    text = """(float[2] s, float[3,4,2] x) => (float[2] f) {
        f = Scan<num_scan_inputs = 1, body = rows (float[2] a, float[4,2] row) => (float[2] b) {
            b = Scan<num_scan_inputs = 1, body = cells (float[2] c, float[2] e) => (float[2] d) {
                p = Mul(c, e)
                q = Add(p, a)
                d = Tanh(q)
            }>(a, row)
        }>(s, x)
    }"""
    check(text, {"s": numbers(2), "x": numbers(3, 4, 2)})


def test_a_weight_inside_the_body_is_trained_by_its_name() -> None:
    text = """(float[T,2] x, float[2] s) => (float[2] f) {
        f = Scan<num_scan_inputs = 1, body = turn (float[2] a, float[2] xt) => (float[2] b)
                <float[2] inner_weight = {1.0, 2.0}> {
            p = Mul(inner_weight, xt)
            b = Add(a, p)
        }>(s, x)
    }"""
    loss = amp.value(model_of(text), "f").sum()
    train_op = amp.optimizers.GradientDescent(0.5).minimize(loss)
    with amp.TrainingSession(train_op) as session:
        session.run({"x": np.array([[1, 2], [3, 4]], "f"), "s": np.zeros(2, "f")})
        found = session.state_dict()["inner_weight"]
    np.testing.assert_allclose(found, [1 - 0.5 * 4, 2 - 0.5 * 6])


def test_a_scan_along_an_axis_of_unknown_place_stays_and_is_refused() -> None:
    model = model_of(
        """(float[3,T] x) => (float[T,3] y) {
        [scan] y = Scan<num_scan_inputs = 1, scan_input_axes = [-1],
            body = turn (float[3] a) => (float[3] b) { b = Exp(a) }>(x)
        }"""
    )
    model.graph.inputs[0].shape = None
    prepare(model)
    assert model.graph.node("scan").op_type == "Scan"
    with pytest.raises(GradientError, match=r"'scan'.*no gradient rule"):
        differentiated(model, ["x"])


def test_a_model_without_a_scan_is_left_as_it_is() -> None:
    model = model_of("(float[3] x) => (float[3] y) { y = Exp(x) }")
    before = ir.to_proto(model).SerializeToString()
    prepare(model)
    assert ir.to_proto(model).SerializeToString() == before
