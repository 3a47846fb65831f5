"""Other forms of what a step computes, which OpenVINO is faster at.

Blocks: `grad.rules.pooling` puts blocks of four values side by side by three Concat, which is
fastest on ONNX Runtime. OpenVINO copies the elements of a Concat of columns one by one, and is fast
at DepthToSpace.

Gemm: OpenVINO 2026.4 reads alpha = 1 as a Multiply, which it leaves out in float32 alone. In
bfloat16 it writes one more copy of an operand in front of every product, of the activations of 1024
tokens say: of a small BERT's step 3 %. MatMul has none.

Factors: OpenVINO computes elementwise operators together, those on (1, C, 1, 1) with those on (N,
C, H, W) that read them, so that 1 / sqrt(variance + epsilon) is computed for each of N C H W
elements. Steps of `bench.py train` in bfloat16, OpenVINO 2026.4.1, two threads of an Intel Xeon
with AMX: the ResNet takes 13.2 ms in place of 17.9, the digits CNN 3.9 in place of 5.4.

Updates: OpenVINO 2026.4 computes a chain of operators of one element as one node, but of the values
in it one at most may be an output of the model: Adam's w, m and v are three nodes that hand tensors
on to each other, 50 bytes of traffic per weight with a gradient in bfloat16. Computed apart, with
what is common computed again, each of them reads gradient and states and writes one output: 38
bytes, and no node has two outputs. An MLP's step in bfloat16 takes 3 to 7 % less time. OpenVINO
joins equal nodes again; those of a copy are told apart by a factor of 1 that no constant has: it
comes from outside. They round as the engine likes, the next w and m in their last digits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import prod

import onnx_ir as ir

from amp_rewrite.graph.step_part import Part, part_of
from amp_rewrite.graph.traits import operator
from amp_rewrite.graph.traverse import remove_unused_nodes
from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.builder.known import dims, is_float, same_shape, take_place

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


def spell_out_gemms(model: ir.Model) -> None:
    """Replace Gemm that neither scale nor lack an operand, in place; types and shapes are known."""
    b = Builder(model, scope="products", part=Part.GRADIENT)
    for node in list(model.graph):
        inputs = node.inputs
        if node.op_type != "Gemm" or node.domain or inputs[0] is None or inputs[1] is None:
            continue
        if any(node.attributes.get_float(name, 1.0) != 1.0 for name in ("alpha", "beta")):
            continue
        before = len(b.added)
        x, y = (
            b.transpose(value, [1, 0]) if node.attributes.get_int(name, 0) else value
            for value, name in ((inputs[0], "transA"), (inputs[1], "transB"))
        )
        product = b.matmul(x, y)
        product = (
            b.add(product, inputs[2]) if len(inputs) > 2 and inputs[2] is not None else product
        )
        for added in b.added[before:]:
            added.metadata_props.clear()
            added.metadata_props.update(node.metadata_props)
        take_place(product, node.outputs[0])
        model.graph.remove(node, safe=True)
    if b.added:
        model.graph.sort()


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


_LARGE = 4096
"""From that many elements on; for fewer, another node costs more than a copy."""

# operators: those of one element that updates consist of.
_ELEMENTS = "Add Sub Mul Div Neg Abs Sign Sqrt Reciprocal Pow Max Min Where Cast"


def separate_updates(model: ir.Model, states: Collection[str]) -> None:
    """Compute large outputs apart that share operators of one element, in place.

    Types and shapes are known.
    """
    graph = model.graph
    counter = next((v for v in graph.inputs if v.name in states and _counts(v)), None)
    if counter is None:
        return
    order = {node: index for index, node in enumerate(graph)}
    copies: dict[ir.Node, int] = {}
    b = Builder(model, scope="separate", part=Part.UPDATE)
    ones: dict[tuple[int, ir.DataType], ir.Value] = {}

    def told_apart(leaf: ir.Value) -> ir.Value:
        """Return a leaf times the factor 1 of the copy that is being made."""
        key = copy, b.type_of(leaf)
        ones[key] = ones[key] if key in ones else b.cast(b.equal(counter, counter), key[1])
        return b.mul(leaf, ones[key])

    for output in list(graph.outputs):
        chain = sorted(_chain(output), key=order.__getitem__)
        copy = max((copies[node] for node in chain if node in copies), default=0)
        copies.update(dict.fromkeys(chain, copy + 1))
        if copy:
            _copy(b, chain, output, told_apart)
    if ones:
        graph.sort()
        remove_unused_nodes(graph)


def _counts(value: ir.Value) -> bool:
    return value.dtype is ir.DataType.INT64 and dims(value) == ()


def _chain(output: ir.Value) -> set[ir.Node]:
    """Return the nodes that compute a large output of its own elements, for updates alone."""
    lengths = dims(output) or ()
    nodes: set[ir.Node] = set()
    left = [output] if prod(length or 0 for length in lengths) >= _LARGE else []
    while left:
        node = left.pop().producer()
        if node is None or node in nodes or dims(node.outputs[0]) != lengths or not _updates(node):
            continue
        if all(_updates(use.node) for use in node.outputs[0].uses()):
            nodes.add(node)
            left.extend(value for value in node.inputs if value is not None)
    return nodes


def _updates(node: ir.Node) -> bool:
    elementwise = node.op_type in _ELEMENTS.split() and not node.domain
    return elementwise and (part_of(node) is Part.UPDATE or node.op_type == "Cast")


def _copy(
    b: Builder, chain: list[ir.Node], output: ir.Value, told_apart: Callable[[ir.Value], ir.Value]
) -> None:
    """Compute an output by nodes of its own, each of which differs from what it is a copy of."""
    copies: dict[ir.Value, ir.Value] = {}
    for node in chain:
        old = node.outputs[0]
        inputs = [value if value is None else copies.get(value, value) for value in node.inputs]
        own = [v for v in inputs if v is not None and same_shape(v, old) and is_float(v)]
        if own and inputs == list(node.inputs):
            inputs[inputs.index(own[0])] = told_apart(own[0])
        new = b.op(node.op_type, *inputs, **{a.name: a.value for a in node.attributes.values()})
        new.type, new.shape = old.type, old.shape
        copies[old] = new
    new, name = copies[output], output.name
    output.name = f"{name}:shared"
    new.name = name
    b.graph.outputs[:] = [new if value is output else value for value in b.graph.outputs]
