"""Gradients of Loop."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from loop_models import check, differentiated, model_of, numbers, run

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.grad import Builder, GradientError, IndexedSlices, gradients
from amp_rewrite.grad.prepare import prepare

RECURRENCE = """(float[N,H] s, float[H,H] w, float[T,N,H] x, int64 n)
        => (float[N,H] f, float[M,N,H] y) {
    f, y = Loop(n, , s) <body = turn (int64 i, bool go, float[N,H] h)
            => (bool on, float[N,H] k, float[N,H] o) {
        on = Identity(go)
        p = MatMul(h, w)
        q = Gather<axis = 0>(x, i)
        a = Add(p, q)
        k = Tanh(a)
        o = Mul(k, h)
    }>
}"""


@pytest.mark.parametrize(("turns", "opset"), [(0, 18), (1, 18), (3, 18), (3, 16)])
def test_a_recurrence_with_outer_weights_is_differentiated(turns: int, opset: int) -> None:
    feeds = {"s": numbers(2, 3), "w": numbers(3, 3), "x": numbers(4, 2, 3), "n": np.array(turns)}
    check(RECURRENCE, feeds, opset)


def test_a_loop_that_a_condition_ends_is_differentiated_over_the_turns_that_it_took() -> None:
    text = """(float[3] x, float limit, bool go) => (float[3] y, int64[M] numbers) {
        y, numbers = Loop(, go, x) <body = turn (int64 i, bool c, float[3] a)
                => (bool more, float[3] b, int64 n) {
            b = Mul(a, x)
            size = ReduceSum<keepdims = 0>(b)
            more = Less(size, limit)
            n = Identity(i)
        }>
    }"""
    x = np.array([1.1, 1.3, 0.9])
    feeds = {"x": x, "limit": np.array(6.0), "go": np.array(True)}
    model = model_of(text.replace("float", "double"))
    differentiated(model, ["x"])
    found = run(model, {**feeds, "u_y": np.ones(3)})
    turns = len(found["numbers"])
    assert turns > 2
    np.testing.assert_allclose(found["g_x"], (turns + 1) * x**turns, rtol=FLOAT32.rtol)


def test_states_that_depend_on_each_other_and_constant_ones_are_told_apart() -> None:
    text = """(float[2] x, float[2] w, int64 n) => (float[2] a, float[2] b) {
        one = Constant<value = float {1.0}>()
        c, a, b = Loop(n, , one, x, x) <
            body = turn (int64 i, bool go, float c0, float[2] a0, float[2] b0)
                => (bool on, float c1, float[2] a1, float[2] b1) {
            on = Identity(go)
            half = Constant<value = float {0.5}>()
            c1 = Mul(c0, half)
            a1 = Mul(b0, w)
            p = Mul(a0, c0)
            b1 = Add(p, b0)
        }>
    }"""
    check(text, {"x": numbers(2), "w": numbers(2) + 2, "n": np.array(4)})


def test_a_state_that_turns_pass_through_or_replace_has_its_gradient() -> None:
    text = """(float[2] x, float[2] z, float[2] w, int64 n)
            => (float[2] a, float[2] b, float[M,2] y) {
        a, b, y = Loop(n, , x, z) <body = turn (int64 i, bool go, float[2] a0, float[2] b0)
                => (bool on, float[2] a1, float[2] b1, float[2] o) {
            on = Identity(go)
            a1 = Identity(a0)
            b1 = Exp(w)
            o = Mul(a0, b0)
        }>
    }"""
    check(text, {"x": numbers(2), "z": numbers(2) + 1, "w": numbers(2), "n": np.array(3)})


def test_loops_and_branches_inside_a_loop_are_differentiated() -> None:
    text = """(float[2] x, float[2] w, int64 n) => (float[2] y) {
        y = Loop(n, , x) <body = outer (int64 i, bool go, float[2] a) => (bool on, float[2] b) {
            on = Identity(go)
            two = Constant<value = int64 {2}>()
            c = Loop(two, , a) <body = inner (int64 j, bool ongoing, float[2] p)
                    => (bool more, float[2] q) {
                more = Identity(ongoing)
                r = Mul(p, w)
                q = Tanh(r)
            }>
            one = Constant<value = int64 {1}>()
            first = Less(i, one)
            b = If(first) <
                then_branch = t () => (float[2] d) { d = Mul(c, w) },
                else_branch = e () => (float[2] g) { g = Add(c, w) }
            >
        }>
    }"""
    check(text, {"x": numbers(2), "w": numbers(2) + 1, "n": np.array(3)})


def test_a_table_of_which_turns_gather_rows_gets_a_sparse_gradient() -> None:
    text = """(float[5,2] table, int64[T] rows, float[2] s, int64 n) => (float[2] y) {
        y = Loop(n, , s) <body = turn (int64 i, bool go, float[2] a) => (bool on, float[2] b) {
            on = Identity(go)
            row = Gather(rows, i)
            v = Gather(table, row)
            p = Mul(a, v)
            b = Add(p, v)
        }>
    }"""
    feeds = {"table": numbers(5, 2), "rows": np.array([3, 1, 3]), "s": numbers(2), "n": np.array(3)}
    model = check(text, feeds)
    model = model_of(text)
    assert isinstance(differentiated(model, ["table"])[0], IndexedSlices)


def test_the_gradient_of_a_matrix_is_one_product_behind_the_loop() -> None:
    text = RECURRENCE.replace("N,H", "2,3").replace("H,H", "3,3")
    feeds = {"s": numbers(2, 3), "w": numbers(3, 3), "x": numbers(4, 2, 3), "n": np.array(3)}
    model = check(text, feeds)
    backward = [node for node in model.graph if node.op_type == "Loop"][1]
    carried = [value.dtype for value in backward.inputs[2:] if value is not None]
    assert len(carried) == 1  # the gradient of the state, and no sum
    check(text, {**feeds, "n": np.array(0)})


def test_what_stops_a_gradient_inside_a_loop_lets_others_through() -> None:
    model = model_of(
        """(float[3] x, float[2] w, int64 n, bool c) => (float[3] y, float[T, 2] z) {
        y, z = Loop (n, , x) <body = body (int64 i, bool go, float[3] a)
            => (bool more, float[3] b, float[2] part) {
                more = Identity(go)
                [inside] stopped = OptionalGetElement(a)
                s = ReduceSum <keepdims = 0> (stopped)
                part = If (c) <
                    then_branch = t () => (float[2] p) { p = Mul(w, s) },
                    else_branch = e () => (float[2] q) { q = Neg(w) }
                >
                b = Add(a, a) }> }"""
    )
    prepare(model)
    b, graph = Builder(model), model.graph
    stops: dict[ir.Node, str] = {}
    y, z = graph.outputs
    found = gradients(b, {v: b.ones_like(v) for v in (y, z)}, graph.inputs[:2], stops=stops)
    assert {node.name: why for node, why in stops.items()} == {
        "inside": "an operator has no gradient rule"
    }
    assert all(node in graph[0].attributes["body"].as_graph() for node in stops)
    for name, gradient in zip("xw", found, strict=True):
        assert isinstance(gradient, ir.Value)
        gradient.name = f"g_{name}"
        graph.outputs.append(gradient)
    feeds = {"x": np.array([1, 2, 3], "f"), "w": np.ones(2, "f"), "n": np.array(3)}
    got = run(model, feeds | {"c": np.array(True)})
    np.testing.assert_array_equal(got["g_x"], [8, 8, 8])
    np.testing.assert_array_equal(got["g_w"], [6 + 12 + 24] * 2)


REFUSED = {
    "changes its shape": "b = Concat<axis = 0>(a, a)",
    "no gradient rule": "b = OptionalGetElement(a)",
    "random numbers inside": "b = RandomNormalLike(a)",
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_loop_that_cannot_be_differentiated_is_refused_and_left_as_it_was(what: str) -> None:
    model = model_of(
        """(float[3] x, int64 n) => (float[3] y) {
        [the_loop] y = Loop (n, , x) <body = body (int64 i, bool go, float[3] a)
            => (bool more, float[L] b) { more = Identity(go) [inside] """
        + REFUSED[what]
        + " }> }"
    )
    prepare(model)
    b, before = Builder(model), ir.to_proto(model).SerializeToString()
    y = model.graph.outputs[0]
    with pytest.raises(GradientError, match=f"'(the_loop|inside)'.*{what}"):
        gradients(b, {y: y}, [model.graph.inputs[0]])
    assert ir.to_proto(model).SerializeToString() == before
