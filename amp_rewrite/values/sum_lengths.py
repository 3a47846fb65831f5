"""How many terms an operator adds up for one element of its result, as far as shapes tell.

Bounds, estimates, rules about long sums and the share of the arithmetic all ask the table of forms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from amp_rewrite.graph.constants import is_repeated
from amp_rewrite.graph.flat import ABSENT, IDENTITY, Array, FlatGraph, Operator
from amp_rewrite.graph.proto.stored import StoredTensor
from amp_rewrite.graph.sizes import product_of
from amp_rewrite.graph.traits import Trait, has, operator

Shape = Sequence[int | None]


class Seen:
    """A node, and what shapes tell of what it reads: recorded, inferred, or those of constants."""

    def __init__(self, flat: FlatGraph, node: int) -> None:
        """Look at a node."""
        self.flat, self.node, self.inputs = flat, node, flat.inputs_of(node)

    def has(self, index: int) -> bool:
        """Tell whether an input is there."""
        return index < len(self.inputs) and self.inputs[index] != ABSENT

    def shape(self, index: int) -> Shape | None:
        """Return the shape of an input as far as it is known."""
        return _shape(self.flat, self.inputs[index]) if self.has(index) else None

    def last(self) -> int | None:
        """Return the last length of the first input where its shape is not known, if it is."""
        return _chosen(self.flat, self.inputs[0])

    def array(self, index: int) -> Array | None:
        """Return the elements of an input that is a constant and not too long."""
        held = _constant(self.flat, self.inputs[index]) if self.has(index) else None
        return None if held is None else held.numpy()

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return the value of an attribute that is there and no reference, or the default.

        Nobody checks attributes of foreign operators: one of another kind than the default counts
        as left out.
        """
        attribute = self.flat.attributes(self.node).get(name)
        if attribute is None or attribute.value is None:
            return default
        kinds = _KINDS.get(type(default))
        return attribute.value if kinds is None or isinstance(attribute.value, kinds) else default

    @property
    def terms(self) -> int | None:
        """How many terms an element of the result has at most, zeros of padding included."""
        form = FORMS.get(operator(self.flat.called(self.node)))
        return None if form is None else form(self)


_KINDS: Mapping[type, tuple[type, ...]] = {int: (int,), float: (int, float), str: (str, bytes)}
"""Type of a default -> those that an attribute may have in its place."""


def count_terms(flat: FlatGraph, node: int) -> int | None:
    """Return the number of terms of a node's sums; None if it is not known."""
    return Seen(flat, node).terms


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
    return flat.tensors.get(value) if maker == ABSENT else flat.held(maker)


def _chosen(flat: FlatGraph, value: int) -> int | None:
    """Return the last length of what TopK chooses along the last axis; None for anything else."""
    node = flat.producer[value]
    if node == ABSENT or flat.called(node)[:2] != ("", "TopK") or len(flat.inputs_of(node)) < 2:
        return None
    axis, count = flat.attributes(node).get("axis"), _constant(flat, flat.inputs_of(node)[1])
    if count is None or (axis is not None and axis.value != -1):
        return None
    return int(count.numpy().reshape(-1)[0])


def _length(shape: Shape | None, axis: int) -> int | None:
    """Return the length of an axis; the only one where the shape has no such axis."""
    if not shape:
        return None
    return shape[axis] if -len(shape) <= axis < len(shape) else shape[0]


def _window(node: Seen, start: int) -> int | None:
    """Return the product of the lengths of a weight from an axis on."""
    shape = node.shape(1)
    return None if shape is None else product_of(shape[start:])


def _matmul(node: Seen) -> int | None:
    if node.attribute("transBatchA", 0) or node.attribute("transBatchB", 0):
        return None  # an axis of the batch stands elsewhere
    left = _length(node.shape(0), -2 if node.attribute("transA", 0) else -1)
    return left or _length(node.shape(1), -1 if node.attribute("transB", 0) else -2)


def _gemm(node: Seen) -> int | None:
    right = _length(node.shape(1), 1 if node.attribute("transB", 0) else 0)
    return right or _length(node.shape(0), 0 if node.attribute("transA", 0) else 1)


def _conv_transpose(node: Seen) -> int | None:
    """Return how many weights an element meets: those of its group, a window each, at most."""
    channels, window = _length(node.shape(1), 0), _window(node, 2)
    if channels is None or window is None:
        return None
    return channels // max(node.attribute("group", 1), 1) * window


def _einsum(node: Seen) -> int | None:
    equation = str(node.attribute("equation", ""))
    return einsum_terms(equation, [node.shape(k) for k in range(equation.count(",") + 1)])


def einsum_terms(equation: str, shapes: Sequence[Shape | None]) -> int | None:
    """Return the product of the lengths of the letters that the result lacks; None if unknown."""
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


def _reduced(node: Seen) -> int | None:
    axes = node.attribute("axes")
    if axes is None and node.has(1):
        held = node.array(1)
        if held is None:
            return None
        axes = [int(axis) for axis in held.reshape(-1)]
    shape = node.shape(0)
    if shape is None:
        is_last = axes is not None and list(axes) == [-1]
        return node.last() if is_last else None
    if not axes:
        return 1 if node.attribute("noop_with_empty_axes", 0) else product_of(shape)
    inside = [axis for axis in axes if -len(shape) <= axis < len(shape)]
    return product_of([shape[axis] for axis in inside]) if len(inside) == len(axes) else None


def _cumulated(node: Seen) -> int | None:
    held = node.array(1)
    return None if held is None or held.size != 1 else _reduced(node)


def _global_pool(node: Seen) -> int | None:
    shape = node.shape(0)
    return product_of(None if shape is None else shape[2:])


def _scattered(node: Seen, *, tuples: bool) -> int | None:
    """Return how many updates there are, all of which may go to one element."""
    shape = node.shape(1)
    return product_of(None if shape is None else shape[: -1 if tuples else None])


def _transformed(node: Seen) -> int | None:
    """Return the longest of the axes behind the batch, without that of real and imaginary parts."""
    shape = node.shape(0)
    lengths = [*filter(None, shape[1:-1])] if shape else []
    return max(lengths) if shape and lengths and len(lengths) == len(shape) - 2 else None


def _framed(node: Seen) -> int | None:
    window, frame = node.shape(2), node.array(3)
    return int(frame.max()) if frame is not None else window[0] if window else None


Form = Callable[[Seen], int | None]

PRODUCTS: Mapping[str, Form] = {
    "Conv": lambda node: _window(node, 1),
    "ConvTranspose": _conv_transpose,
    "Einsum": _einsum,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "com.microsoft::FusedConv": lambda node: _window(node, 1),
    "com.microsoft::FusedGemm": _gemm,
    "com.microsoft::FusedMatMul": _matmul,
    "com.microsoft::TransposeMatMul": _matmul,
}
"""Operators that add up products of their first two inputs, as in traits.py -> how many."""

FORMS: Mapping[str, Form] = {
    **PRODUCTS,
    "AveragePool": lambda node: product_of(node.attribute("kernel_shape")),
    "CumSum": _cumulated,
    "DFT": _transformed,
    "GlobalAveragePool": _global_pool,
    "ReduceL1": _reduced,
    "ReduceL2": _reduced,
    "ReduceMean": _reduced,
    "ReduceSum": _reduced,
    "ReduceSumSquare": _reduced,
    "STFT": _framed,
    "ScatterElements": lambda node: _scattered(node, tuples=False),
    "ScatterND": lambda node: _scattered(node, tuples=True),
    "com.microsoft::MatMulNBits": lambda node: node.attribute("K", 0) or None,
}
"""Operators that add up -> how many terms an element of the result has."""


class InnerSum(NamedTuple):
    """A sum inside an operator: the inputs that are added, and the output that gives it.

    SkipLayerNormalization normalizes x + skip + bias, which kernels hold in the type of x.
    """

    terms: tuple[int, ...]
    output: int


INNER_SUMS: Mapping[str, InnerSum] = {
    "SkipGroupNorm": InnerSum((0, 3, 4), 1),
    "SkipLayerNormalization": InnerSum((0, 1, 4), 3),
    "SkipSimplifiedLayerNormalization": InnerSum((0, 1, 3), 3),
}
"""Operator of com.microsoft -> the sum inside."""


def inner_sum(called: Operator) -> InnerSum | None:
    """Return the sum inside an operator; None if there is none."""
    return INNER_SUMS.get(called.op_type) if called.domain == "com.microsoft" else None


def terms_of(flat: FlatGraph, node: int, inner: InnerSum) -> list[int]:
    """Return the values that a node adds up."""
    inputs = flat.inputs_of(node)
    return [inputs[k] for k in inner.terms if k < len(inputs) and inputs[k] != ABSENT]
