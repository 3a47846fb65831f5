"""Other forms of what a step computes, which OpenVINO is faster at.

Blocks: `grad.rules.pooling` puts blocks of four values side by side by three Concat, which is
fastest on ONNX Runtime. OpenVINO copies the elements of a Concat of columns one by one, and is fast
at DepthToSpace.

Factors: OpenVINO computes elementwise operators together, those on (1, C, 1, 1) with those on (N,
C, H, W) that read them, so that 1 / sqrt(variance + epsilon) is computed for each of N C H W
elements. Steps of `bench.py train` in bfloat16, OpenVINO 2026.4.1, two threads of an Intel Xeon
with AMX: the ResNet takes 13.2 ms in place of 17.9, the digits CNN 3.9 in place of 5.4.
"""

from __future__ import annotations

from math import prod

import onnx_ir as ir

from amp_rewrite.graph.step_part import Part
from amp_rewrite.graph.traits import operator
from amp_rewrite.graph.traverse import remove_unused_nodes
from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.builder.known import dims, take_place

_APART = 6
"""The rank of values (N, C, H, 1, W, 1), of which two make columns and four make blocks."""


def move_blocks(model: ir.Model) -> None:
    """Replace Concat of columns and of rows, in place, in a step of known types and shapes."""
    b = Builder(model, scope="blocks", part=Part.GRADIENT)
    for node in list(model.graph):
        parts = _parts(node)
        if not parts or None in (dims(node.outputs[0]) or (None,)):
            continue
        joined = b.concat(parts, 1)
        space = b.op("DepthToSpace", joined, blocksize=2)
        take_place(b.reshape_like(space, node.outputs[0]), node.outputs[0])
    if b.added:
        model.graph.sort()
        remove_unused_nodes(model.graph)


def _parts(node: ir.Node) -> list[ir.Value]:
    """Return the four values (N, C, H, W) that a node puts side by side; none if it does not."""
    rows = _joined(node, 3)
    columns = [part for row in rows for part in _joined(row.producer(), 5)]
    apart = [value.producer() for value in columns]
    # operators: those that make a value one of rank 6.
    sources = [
        n.inputs[0] for n in apart if n is not None and n.op_type in ("Unsqueeze", "Reshape")
    ]
    parts = [value for value in sources if value is not None and len(dims(value) or ()) == 4]
    return parts if len(parts) == 4 else []


def _joined(node: ir.Node | None, axis: int) -> list[ir.Value]:
    """Return the two inputs of a Concat along an axis of values of rank 6, or none."""
    if node is None or node.op_type != "Concat" or node.attributes.get_int("axis", 0) != axis:
        return []
    values = [value for value in node.inputs if value is not None]
    return values if len(values) == 2 and len(dims(values[0]) or ()) == _APART else []


# operators: those whose results have, at each place, what their inputs have there makes.
ELEMENTWISE = "Abs Add Cast Div Exp Identity Log Max Min Mul Neg Pow Reciprocal Sign Sqrt Sub Tanh"


def separate_factors(model: ir.Model) -> None:
    """Compute as vectors what is broadcast afterwards, in place, in a step of known shapes.

    Across a Reshape that changes the rank, OpenVINO computes nothing together.
    """
    b = Builder(model, scope="apart", part=Part.GRADIENT)
    vectors: dict[ir.Value, ir.Value] = {}
    factors = _factors(model.graph)
    for node in factors:
        for index, value in enumerate(node.inputs):
            if value is None or value.producer() in factors or len(dims(value) or ()) < 2:
                continue  # a number, or a vector itself from here on
            if value not in vectors:
                vectors[value] = b.reshape(value, [-1])
            node.replace_input_with(index, vectors[value])
    for node, shape in factors.items():
        factor = node.outputs[0]
        factor.shape = ir.Shape([prod(shape)])
        others = [use for use in factor.uses() if use.node not in factors]
        if others:
            whole = b.reshape(factor, shape)
            for user, index in others:
                user.replace_input_with(index, whole)
    if b.added:
        model.graph.sort()


def _factors(graph: ir.Graph) -> dict[ir.Node, tuple[int, ...]]:
    """Return the elementwise nodes behind which something is broadcast, with their shapes."""
    factors: dict[ir.Node, tuple[int, ...]] = {}
    for node in reversed(graph):
        shape, output = _made(node), node.outputs[0]
        if shape is None or len(shape) < 2 or prod(shape) < 2 or output.is_graph_output():
            continue
        users = output.consumers()
        if all(v is not None and _fits(v, shape) for v in node.inputs) and any(
            user in factors or prod(_made(user) or ()) > prod(shape) for user in users
        ):
            factors[node] = shape
    return factors


def _made(node: ir.Node) -> tuple[int, ...] | None:
    """Return the shape of what an elementwise node makes, if it is known."""
    shape = dims(node.outputs[0]) if operator(node) in ELEMENTWISE.split() else None
    return None if shape is None or None in shape else tuple(d or 0 for d in shape)


def _fits(value: ir.Value, shape: tuple[int, ...]) -> bool:
    """Return whether a value has a shape, or is a single number."""
    return dims(value) in (shape, (1,) * len(dims(value) or ()))
