"""How many terms an operator adds up for one element of its result, as far as shapes tell."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from amp_rewrite.graph.constants import is_repeated
from amp_rewrite.graph.flat import ABSENT, IDENTITY, FlatGraph, Tensor
from amp_rewrite.graph.traits import Trait, has

Shape = Sequence[int | None]


def count_terms(flat: FlatGraph, node: int) -> int | None:
    """Return the number of terms of a node's sums; None if it is not known.

    Zeros that padding adds count as terms.
    """
    called = flat.called(node)
    rule = _RULES.get(called.op_type)
    if rule is None:
        return None
    shapes = [None if v == ABSENT else _shape(flat, v) for v in flat.inputs_of(node)]
    attributes = {name: a.value for name, a in flat.attributes(node).items()}
    return rule([*shapes, None, None], attributes)


def _shape(flat: FlatGraph, value: int) -> Shape | None:
    """Return the recorded shape of a value, a Constant's, or what ConstantOfShape is given.

    That of a result of Cast or Identity is that of what it reads; quantised weights have the shape
    of what DequantizeLinear reads.
    """
    shape = flat.shape(value)
    while shape is None and (node := flat.producer[value]) != ABSENT:
        called = flat.called(node)
        if not (has(called, Trait.CASTS) or called == IDENTITY) or not flat.inputs_of(node):
            break
        value = flat.inputs_of(node)[0]
        shape = flat.shape(value)
    if shape is not None:
        return shape
    maker = flat.producer[value]
    if maker != ABSENT and flat.called(maker).op_type == "DequantizeLinear":
        return _shape(flat, flat.inputs_of(maker)[0])
    if is_repeated(flat, value):
        given = next((_constant(flat, v) for v in flat.inputs_of(flat.producer[value])), None)
        return None if given is None else [int(length) for length in given.numpy()]
    held = _constant(flat, value)
    return None if held is None else held.numpy().shape


def _constant(flat: FlatGraph, value: int) -> Tensor | None:
    """Return the contents of an initializer or a Constant; None for any other value."""
    maker = flat.producer[value]
    return flat.initializer(value) if maker == ABSENT else flat.held(maker)


def _gemm(shapes: Sequence[Shape | None], attributes: dict[str, Any]) -> int | None:
    left = _length(shapes[0], 0 if attributes.get("transA", 0) else 1)
    return left or _length(shapes[1], 1 if attributes.get("transB", 0) else 0)


def _conv_transpose(shapes: Sequence[Shape | None], attributes: dict[str, Any]) -> int | None:
    weight, channels = shapes[1], _length(shapes[1], 0)
    window = _product(weight, 2)
    if channels is None or window is None:
        return None
    return channels // attributes.get("group", 1) * window


def einsum_terms(equation: str, shapes: Sequence[Shape | None]) -> int | None:
    """Return the product of the lengths of the letters that the result lacks; None if unknown.

    It is 1 if the result has them all: an outer product.
    """
    text = equation.replace(" ", "")
    left, arrow, right = text.replace("...", "").partition("->")
    if not arrow:
        right = "".join(c for c in set(left) if left.count(c) == 1)
    lengths: dict[str, int | None] = {c: None for c in left if c not in {",", *right}}
    if "..." in text:
        return None if lengths else 1
    for term, shape in zip(left.split(","), shapes, strict=False):
        for letter, length in zip(reversed(term), reversed(shape or ()), strict=False):
            if letter in lengths and length is not None:
                lengths[letter] = max(length, lengths[letter] or 0)
    known = [length for length in lengths.values() if length is not None]
    return math.prod(known) if len(known) == len(lengths) else None


def _length(shape: Shape | None, axis: int) -> int | None:
    """Return the length of an axis; the only one where the shape has no such axis."""
    if not shape:
        return None
    return shape[axis] if -len(shape) <= axis < len(shape) else shape[0]


def _product(shape: Shape | None, start: int) -> int | None:
    if shape is None:
        return None
    found = [length for length in shape[start:] if length is not None]
    return math.prod(found) if len(found) == len(shape[start:]) else None


_RULES: dict[str, Callable[[Sequence[Shape | None], dict[str, Any]], int | None]] = {
    "AveragePool": lambda _, attributes: _product(attributes.get("kernel_shape"), 0),
    "Conv": lambda shapes, _: _product(shapes[1], 1),
    "ConvTranspose": _conv_transpose,
    "Einsum": lambda shapes, attributes: einsum_terms(str(attributes.get("equation", "")), shapes),
    "Gemm": _gemm,
    "GlobalAveragePool": lambda shapes, _: _product(shapes[0], 2),
    "MatMul": lambda shapes, _: _length(shapes[0], -1) or _length(shapes[1], -2),
}
