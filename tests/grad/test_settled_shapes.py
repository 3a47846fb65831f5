"""What is known of the shapes that a Loop carries."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from loop_models import check, model_of, numbers

from amp_rewrite.grad.prepare import prepare
from amp_rewrite.grad.settled_shapes import settle_loop_shapes

LOOP = """(float[2,3] s, float[3,3] w, int64 n) => (float[A,B] y) {
    f, g = Loop(n, , s, s) <body = turn (int64 i, bool go, float h, float k)
            => (bool on, float h1, float k1) {
        on = Identity(go)
        h1 = Tanh(k)
        k1 = BODY
    }>
    y = MatMul(g, w)
}"""


def loop(body: str) -> ir.Model:
    """Return a model of whose states the body tells no shape."""
    model = model_of(LOOP.replace("BODY", body))
    graph = next(a.as_graph() for node in model.graph for a in node.attributes.values())
    for value in (*graph.inputs[2:], *graph.outputs[1:]):
        value.shape = None
    return model


def shapes(model: ir.Model) -> list[list[object]]:
    outputs = model.graph[0].outputs
    return [[] if v.shape is None else list(v.shape.dims) for v in outputs]


def test_states_that_keep_their_shapes_have_them_after_the_loop_too() -> None:
    model = loop("Add(h, k)")
    prepare(model)
    assert shapes(model) == [[2, 3], [2, 3]]


def test_a_length_that_grows_is_not_known_in_what_depends_on_it_either() -> None:
    model = loop("Concat<axis = 0>(h, k)")
    prepare(model)
    (h, k) = shapes(model)
    assert [isinstance(length, int) for length in (*h, *k)] == [False, True, False, True]


def test_a_rank_that_changes_is_not_known() -> None:
    model = loop("Unsqueeze(k, n)")
    assert not settle_loop_shapes(model)


def test_a_product_behind_a_loop_is_differentiated() -> None:
    feeds = {"s": numbers(2, 3), "w": numbers(3, 3)}
    text = LOOP.replace("BODY", "Mul(h, k)").replace("float h", "float[2,3] h")
    for name in ("k)", "h1", "k1)"):
        text = text.replace(f"float {name}", f"float[2,3] {name}")
    check(text, {**feeds, "n": np.array(2)})
