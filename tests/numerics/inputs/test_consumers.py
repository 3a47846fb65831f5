"""Following values through nodes and bodies."""

from __future__ import annotations

import onnx

import amp_rewrite as amp
from amp_rewrite.numerics.inputs.consumers import Consumers, constant, moves

HEADER = '<ir_version: 9, opset_import: ["" : 17]>'


def reached(text: str, name: str = "x") -> set[str]:
    """Return the operators that the numbers of an input reach by moving alone."""
    model = amp.load(onnx.parser.parse_model(HEADER + text))
    value = next(v for v in model.graph.inputs if v.name == name)
    return {node.op_type for node, _ in Consumers(model).uses(value, moves)}


def test_what_moves_numbers_passes_them_on_and_arithmetic_does_not() -> None:
    assert reached(
        "g (float[2,3] x) => (float[3,2] y) { a = Transpose(x) b = Neg(a) y = Sin(b) }"
    ) == {"Transpose", "Neg"}


def test_a_shape_or_an_index_moves_nothing() -> None:
    assert reached(
        "g (int64[2] x, float[6] d) => (float[a,b] y) { r = Reshape(d, x) y = Neg(r) }"
    ) == {"Reshape"}


def test_numbers_enter_branches_and_come_out_of_them() -> None:
    assert "Sin" in reached(
        """g (float[2] x, bool c) => (float[2] y) {
          z = If (c) <
            then_branch = t () => (float[2] p) { p = Identity(x) },
            else_branch = e () => (float[2] q) { q = Neg(x) }>
          y = Sin(z) }"""
    )


def test_numbers_enter_loops_and_come_out_of_them() -> None:
    found = reached(
        """g (float[2] x, int64 n, bool c) => (float[2] y) {
          z = Loop (n, c, x) <
            body = b (int64 i, bool k, float[2] p) => (bool k2, float[2] q) {
              k2 = Identity(k) q = Identity(p) }>
          y = Cos(z) }"""
    )
    assert {"Loop", "Identity", "Cos"} <= found


def test_the_number_of_iterations_is_not_carried() -> None:
    found = reached(
        """g (int64 x, bool c, float[2] s) => (float[2] y) {
          y = Loop (x, c, s) <
            body = b (int64 i, bool k, float[2] p) => (bool k2, float[2] q) {
              k2 = Not(k) q = Neg(p) }> }"""
    )
    assert found == {"Loop"}


def test_a_constant_is_an_initializer_or_the_value_of_a_node() -> None:
    model = amp.load(
        onnx.parser.parse_model(
            HEADER
            + """g (float[1] x) => (float[1] y) <float[1] w = {2}> {
              c = Constant <value = float[1] {3}> () a = Mul(x, w) b = Mul(a, c) y = Mul(b, x) }"""
        )
    )
    found = [constant(node.inputs[1]) for node in model.graph if node.op_type == "Mul"]
    assert [None if t is None else t.numpy().item() for t in found] == [2, 3, None]
