"""How many terms an operator adds up for one element of its result, as far as shapes tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

from amp_rewrite.graph.constants import is_repeated
from amp_rewrite.graph.flat import ABSENT, IDENTITY, FlatGraph
from amp_rewrite.graph.proto.stored import StoredTensor
from amp_rewrite.graph.sizes import product_of
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
    inputs = flat.inputs_of(node)
    shapes = [None if v == ABSENT else _shape(flat, v) for v in inputs]
    attributes = {name: a.value for name, a in flat.attributes(node).items()}
    if rule in (_reduced, _cumulated):
        attributes["axes"] = _axes(flat, inputs, attributes)
        shapes[0] = shapes[0] or _chosen(flat, inputs[0])
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
    if shape is not None and (None not in shape or not is_repeated(flat, value)):
        return shape
    maker = flat.producer[value]
    if maker != ABSENT and flat.called(maker).op_type == "DequantizeLinear":
        return _shape(flat, flat.inputs_of(maker)[0])
    if is_repeated(flat, value):
        lengths = next((_constant(flat, v) for v in flat.inputs_of(flat.producer[value])), None)
        return None if lengths is None else [int(length) for length in lengths.numpy()]
    held = _constant(flat, value)
    return None if held is None else held.numpy().shape


def _constant(flat: FlatGraph, value: int) -> StoredTensor | None:
    """Return the contents of an initializer or a Constant; None for any other value."""
    maker = flat.producer[value]
    return flat.initializer(value) if maker == ABSENT else flat.held(maker)


def _axes(flat: FlatGraph, inputs: Sequence[int], attributes: dict[str, Any]) -> Any:
    """Return the axes of a reduction; () for all of them, None if they are not known."""
    if "axes" in attributes or len(inputs) < 2 or inputs[1] == ABSENT:
        return attributes.get("axes", ())
    axes = _constant(flat, inputs[1])
    return None if axes is None else [int(axis) for axis in axes.numpy().reshape(-1)]


def _chosen(flat: FlatGraph, value: int) -> Shape | None:
    """Return the last length of what TopK chooses along the last axis, as all that is known."""
    node = flat.producer[value]
    if node == ABSENT or flat.called(node)[:2] != ("", "TopK") or len(flat.inputs_of(node)) < 2:
        return None
    axis, count = flat.attributes(node).get("axis"), _constant(flat, flat.inputs_of(node)[1])
    if count is None or (axis is not None and axis.value != -1):
        return None
    return _Last(int(count.numpy().reshape(-1)[0]))


class _Last(tuple[int]):
    """A shape of which nothing is known but its last length."""

    __slots__ = ()

    def __new__(cls, length: int) -> Self:
        """Take the length."""
        return super().__new__(cls, (length,))


def _reduced(shapes: Sequence[Shape | None], attributes: dict[str, Any]) -> int | None:
    shape, axes = shapes[0], attributes["axes"]
    if shape is None or axes is None or (isinstance(shape, _Last) and list(axes) != [-1]):
        return None
    if not axes:
        return 1 if attributes.get("noop_with_empty_axes", 0) else product_of(shape)
    inside = [axis for axis in axes if -len(shape) <= axis < len(shape)]
    return product_of([shape[axis] for axis in inside]) if len(inside) == len(axes) else None


def _cumulated(shapes: Sequence[Shape | None], attributes: dict[str, Any]) -> int | None:
    return _reduced(shapes, attributes) if attributes["axes"] else None


def _gemm(shapes: Sequence[Shape | None], attributes: dict[str, Any]) -> int | None:
    left = _length(shapes[0], 0 if attributes.get("transA", 0) else 1)
    return left or _length(shapes[1], 1 if attributes.get("transB", 0) else 0)


def _conv_transpose(shapes: Sequence[Shape | None], attributes: dict[str, Any]) -> int | None:
    weight, channels = shapes[1], _length(shapes[1], 0)
    window = product_of(weight and weight[2:])
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
    return product_of([*lengths.values()])


def _length(shape: Shape | None, axis: int) -> int | None:
    """Return the length of an axis; the only one where the shape has no such axis."""
    if not shape:
        return None
    return shape[axis] if -len(shape) <= axis < len(shape) else shape[0]


_RULES: dict[str, Callable[[Sequence[Shape | None], dict[str, Any]], int | None]] = {
    "AveragePool": lambda _, attributes: product_of(attributes.get("kernel_shape")),
    "CumSum": _cumulated,
    "Conv": lambda shapes, _: product_of(shapes[1] and shapes[1][1:]),
    "ConvTranspose": _conv_transpose,
    "Einsum": lambda shapes, attributes: einsum_terms(str(attributes.get("equation", "")), shapes),
    "Gemm": _gemm,
    "GlobalAveragePool": lambda shapes, _: product_of(shapes[0] and shapes[0][2:]),
    "MatMul": lambda shapes, _: _length(shapes[0], -1) or _length(shapes[1], -2),
    "ReduceL1": _reduced,
    "ReduceL2": _reduced,
    "ReduceMean": _reduced,
    "ReduceSum": _reduced,
    "ReduceSumSquare": _reduced,
}
