"""Which values of a backward pass are proportional to its seed.

A gradient is linear in the seed, so that multiplying the seed by s multiplies the gradient by s,
and by nothing else. A backward pass in which something else is mixed in (weight decay, clipping, a
constant that the seed is shared with) does not have that property, and dividing by s at its end
would change the training. The rules, with degree 1 for "proportional" and 0 for "independent":

    product      the degrees add up, and must not reach 2
    quotient     numerator minus denominator, of which the first must not be the smaller
    sum          all terms have one degree, exact zeros aside
    comparison   as a sum: a threshold would have to be scaled as well; the result has degree 0
    homogeneous  reductions and moves of data, of which a positive factor comes out: the largest
    call         of a function, of another domain or control flow: the largest
    other        degree 0 only
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import InjectError
from amp_rewrite.graph.names import place
from amp_rewrite.graph.traverse import captured

_PRODUCT = frozenset({"Conv", "ConvTranspose", "Einsum", "MatMul", "Mul"})
_SUM = {
    "Add": None,
    "Concat": None,
    "Max": None,
    "Mean": None,
    "Min": None,
    "Pad": (0, 2),
    "ScatterElements": (0, 2),
    "ScatterND": (0, 2),
    "SequenceConstruct": None,
    "Sub": None,
    "Sum": None,
    "Where": (1, 2),
}
"""Operator -> the inputs that are terms; None is all."""
_COMPARISON = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
_HOMOGENEOUS = frozenset(
    {
        *("Abs", "Cast", "Identity", "LeakyRelu", "Neg", "PRelu", "Relu"),
        *("CumSum", "ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum"),
        *("AveragePool", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "LpPool"),
        *("MaxPool", "MaxRoiPool", "MaxUnpool", "RoiAlign"),
        *("Compress", "Gather", "GatherElements", "GatherND", "OneHot", "Slice", "TopK", "Unique"),
        *("CenterCropPad", "Col2Im", "DepthToSpace", "Flatten", "SpaceToDepth", "Split"),
        *("Squeeze", "Transpose", "Trilu", "Unsqueeze", "Tile", "Upsample", "ReverseSequence"),
        *("DFT", "GridSample", "RotaryEmbedding", "STFT", "Scatter", "TensorScatter"),
        *("ConcatFromSequence", "SequenceAt", "SequenceErase", "SequenceInsert"),
        *("Optional", "OptionalGetElement", "SplitToSequence"),
        *("If", "Loop", "Scan", "SequenceMap"),
    }
)
"""Operators whose result has the largest degree of their inputs: f(s x) = s f(x) for s > 0."""
_INDEPENDENT = frozenset(
    {
        *("ArgMax", "ArgMin", "ConstantOfShape", "EyeLike", "NonZero", "OptionalHasElement"),
        *("RandomNormalLike", "RandomUniformLike", "SequenceLength", "Shape", "Sign", "Size"),
    }
)
"""Operators whose result a positive factor does not change."""
_FIRST = frozenset({"CastLike", "Dropout", "Expand", "Reshape", "Resize"})
"""Operators of which only the first input counts."""
_MOVES = frozenset({"Cast", "Expand", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators whose result is zero where their first input is."""


def proportional(nodes: Iterable[ir.Node], seed: ir.Value) -> tuple[ir.Value, ...]:
    """Return the floating-point values that are proportional to the seed, in order.

    Args:
        nodes: What lies between the seed and the gradients, sorted.
        seed: The seed.

    Raises:
        InjectError: A node mixes in something that is not.
    """
    degree: dict[ir.Value, int] = {seed: 1}
    for node in nodes:
        found = _degree(node, degree)
        degree.update({v: found for v in node.outputs if _is_float(v)})
    del degree[seed]
    return tuple(v for v, d in degree.items() if d)


def _is_float(value: ir.Value) -> bool:
    """Return whether a value may carry a factor; sequences and what has no known type may."""
    return value.dtype is None or value.dtype.is_floating_point()


def _degree(node: ir.Node, degree: dict[ir.Value, int]) -> int:
    inputs = [0 if v is None else degree.get(v, 0) for v in node.inputs]
    inner = [degree.get(v, 0) for v in captured(node)]
    kind = node.op_type if node.domain == "" else ""
    if kind in _PRODUCT:
        return _product(node, inputs)
    if kind == "Div":
        return _quotient(node, *inputs)
    if kind == "Gemm":
        product = _product(node, inputs[:2])
        return product if len(inputs) < 3 else _sum(node, [product, inputs[2]], node.inputs[1:])
    if kind in _SUM:
        terms = _SUM[kind] or range(len(inputs))
        places = [i for i in terms if i < len(inputs) and node.inputs[i] is not None]
        return _sum(node, [inputs[i] for i in places], [node.inputs[i] for i in places])
    if kind in _COMPARISON:
        return _comparison(node, inputs)
    counted = inputs[:1] if kind in _FIRST else [*inputs, *inner]
    if kind in _INDEPENDENT or not any(counted):
        return 0
    if kind and kind not in _HOMOGENEOUS | _FIRST:
        raise _mixed(node, f"{kind} of a scaled value, which is not linear")
    return max(counted)


def _comparison(node: ir.Node, degrees: list[int]) -> int:
    counted = [d for d, v in zip(degrees, node.inputs, strict=True) if d or not _is_zero(v)]
    if counted and min(counted) < max(counted):
        raise _mixed(node, "a comparison of a scaled value and one that is not")
    return 0


def _product(node: ir.Node, factors: list[int]) -> int:
    if sum(factors) > 1:
        raise _mixed(node, "a product of two scaled values")
    return sum(factors)


def _quotient(node: ir.Node, numerator: int, denominator: int) -> int:
    if denominator > numerator:
        raise _mixed(node, "a division by a scaled value")
    return numerator - denominator


def _sum(node: ir.Node, degrees: list[int], terms: Iterable[ir.Value | None]) -> int:
    counted = [d for d, term in zip(degrees, terms, strict=True) if d or not _is_zero(term)]
    if counted and min(counted) < max(counted):
        raise _mixed(node, "a sum of a scaled value and one that is not")
    return max(counted, default=0)


def _is_zero(value: ir.Value | None) -> bool:
    """Return whether a value is known to be zero."""
    if value is None:
        return True
    tensor = ir.convenience.get_const_tensor(value)
    if tensor is not None and not value.is_graph_input():
        return tensor.size == 0 or not np.any(tensor.numpy())
    node = value.producer()
    if node is None or node.domain:
        return False
    if node.op_type == "ConstantOfShape":
        fill = node.attributes.get("value")
        return fill is None or not np.any(fill.as_tensor().numpy())
    if node.op_type == "Mul":
        return any(_is_zero(v) for v in node.inputs)
    return node.op_type in _MOVES and _is_zero(node.inputs[0])


def _mixed(node: ir.Node, found: str) -> InjectError:
    return InjectError(
        "between the seed and the gradients, a node does not keep the loss scale",
        where=place(node),
        found=found,
        expected="gradients that are proportional to the seed",
        remedy="name the gradients before weight decay or clipping, and a seed that is used for "
        "nothing else",
    )
