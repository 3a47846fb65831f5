"""Other forms of what a step computes, which an engine is faster at, or computes rightly.

Blocks: `grad.rules.pooling` puts blocks of four values side by side by three Concat, which is
fastest on ONNX Runtime. OpenVINO copies the elements of a Concat of columns one by one, and is fast
at DepthToSpace.

Factors: OpenVINO computes elementwise operators together, those on (1, C, 1, 1) with those on (N,
C, H, W) that read them, so that 1 / sqrt(variance + epsilon) is computed for each of N C H W
elements. Steps of `bench.py train` in bfloat16, OpenVINO 2026.4.1, two threads of an Intel Xeon
with AMX: the ResNet takes 13.2 ms in place of 17.9, the digits CNN 3.9 in place of 5.4.

Random numbers: `builder.random_numbers` hashes in int64, modulo 2^32. An engine that computes int64
in int32 keeps the low bits of sums and products, but loses quotients and remainders, and one that
divides and compares int32 in float32 loses all digits beyond 24 bits. Here quotients are of numbers
that float32 holds exactly, and comparisons are with 0.
"""

from __future__ import annotations

from math import prod

import numpy as np
import onnx_ir as ir

from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.builder.known import constant_tensor, dims, input_of, take_place
from amp_rewrite.grad.builder.random_numbers import (
    DIVISORS,
    FACTORS,
    LAST_DIVISOR,
    MODULUS,
    POSITION,
)
from amp_rewrite.graph.step_part import Part, part_in
from amp_rewrite.graph.traits import operator
from amp_rewrite.graph.traverse import remove_unused_nodes

_APART = 6
"""The rank of values (N, C, H, 1, W, 1), of which two make columns and four make blocks."""

_INT32, _UINT8 = ir.DataType.INT32, ir.DataType.UINT8
_HALF = MODULUS // 2
_BYTE = 1 << 8


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
    """Return the elementwise nodes whose results are broadcast later, with their shapes."""
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


def compute_random_in_32_bits(model: ir.Model) -> None:
    """Replace the int64 arithmetic of random numbers, and their comparisons, in place.

    Keys, which are single numbers, stay int64 but for their last step, which wraps them. Types are
    known.
    """
    b = Builder(model, scope="random32", part=Part.RANDOM)
    for node in list(model.graph):
        if _hash_ends(node):
            take_place(_numbers(b, *_count_and_key(node)), node.outputs[0])
        elif node.op_type == "GreaterOrEqual" and part_in(node.metadata_props) is Part.RANDOM:
            take_place(_at_least(b, input_of(node, 0), input_of(node, 1)), node.outputs[0])
    model.graph.sort()
    remove_unused_nodes(model.graph)  # what is wide is warned of, used or not


def _hash_ends(node: ir.Node) -> bool:
    """Return whether a node casts hashed numbers, from which 2^31 is subtracted, to int32."""
    if node.op_type != "Cast" or node.attributes["to"].as_int() != _INT32.value:
        return False
    centred = input_of(node, 0).producer()
    remainder = None if centred is None else centred.inputs[0]
    last = None if remainder is None else remainder.producer()
    return _is(centred, "Sub", _HALF) and _is(last, "Mod", MODULUS)


def _is(node: ir.Node | None, operator: str, number: int) -> bool:
    """Return whether a node is arithmetic with a constant."""
    if node is None or node.op_type != operator or node.domain:
        return False
    tensor = constant_tensor(input_of(node, 1))
    return tensor is not None and tensor.size == 1 and int(tensor.numpy().reshape(-1)[0]) == number


def _count_and_key(cast: ir.Node) -> tuple[ir.Value, ir.Value]:
    """Return what `random_numbers` was asked for: how many numbers, and their key."""
    path = [cast]
    while path[-1].op_type != "Range":
        following = input_of(path[-1], 0).producer()
        assert following is not None, "random numbers begin with their positions"
        path.append(following)
    return input_of(path[-1], 1), input_of(path[-3], 1)


def _numbers(b: Builder, count: ir.Value, key: ir.Value) -> ir.Value:
    """Return `count` random numbers before their last permutation, int32.

    They are one more where an engine computes how many: it may have divided to get there.
    """
    more = count if b.array(count) is not None else b.op("Add", count, b.constant(1))
    positions = b.cast(b.op("Range", b.constant(0), more, b.constant(1)), _INT32)
    x = b.op("Add", b.op("Mul", positions, _constant(b, POSITION)), _wrapped(b, key))
    for factor, divisor in zip(FACTORS, DIVISORS, strict=True):
        x = b.op("Add", x, _quotient(b, x, divisor))
        x = b.op("Mul", x, _constant(b, factor))
    x = b.op("Add", x, _quotient(b, x, LAST_DIVISOR))
    return b.op("Sub", x, _constant(b, _HALF))


def _constant(b: Builder, number: int) -> ir.Value:
    """Return a number modulo 2^32, as int32."""
    return b.constant(np.array(number % MODULUS, np.uint32).view(np.int32))


def _wrapped(b: Builder, key: ir.Value) -> ir.Value:
    """Return an int64 number modulo 2^32, as int32."""
    centred = b.op("Mod", b.op("Add", key, b.constant(_HALF)), b.constant(MODULUS))
    return b.cast(b.op("Sub", centred, b.constant(_HALF)), _INT32)


def _quotient(b: Builder, x: ir.Value, divisor: int) -> ir.Value:
    """Return int32 numbers, read as uint32, divided by a power of two of at least 256.

    Without its lowest byte a number has 24 bits, which float32 holds.
    """
    byte = b.cast(b.cast(x, _UINT8), _INT32)
    upper = b.op("Div", b.op("Sub", x, byte), _constant(b, _BYTE))
    negative = b.cast(b.less(upper, _constant(b, 0)), _INT32)
    upper = b.op("Add", upper, b.op("Mul", negative, _constant(b, MODULUS // _BYTE)))
    return upper if divisor == _BYTE else b.op("Div", upper, _constant(b, divisor // _BYTE))


def _at_least(b: Builder, x: ir.Value, limit: ir.Value) -> ir.Value:
    """Return whether int32 numbers are at least a limit."""
    return b.equal(b.op("Sub", b.op("Max", x, limit), x), _constant(b, 0))
