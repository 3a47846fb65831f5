"""Which values of a backward pass are proportional to its seed.

A gradient is linear in the seed, so that multiplying the seed by s multiplies the gradient by s,
and by nothing else. A backward pass in which something else is mixed in (weight decay, clipping, a
constant that the seed is shared with) does not have that property, and dividing by s at its end
would change the training. The rules, with degree 1 for "proportional" and 0 for "independent":

    product      the degrees add up, and must not reach 2
    quotient     numerator minus denominator, of which the first must not be the smaller
    homogeneous  sums, reductions and moves of data, of which a positive factor comes out: all data
                 have one degree, exact zeros aside, and nothing else has any
    comparison   as a sum: a threshold would have to be scaled as well; the result has degree 0
    call         of a function, of another domain or control flow: the largest
    other        degree 0 only
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import InjectError
from amp_rewrite.grad.builder.known import constant_tensor, is_float
from amp_rewrite.graph.names import place
from amp_rewrite.graph.traits import Trait, has, operator, row_of
from amp_rewrite.graph.traverse import captured

# operators: those that are homogeneous in some modes only.
_CONDITIONS: Mapping[str, Callable[[ir.Node], bool]] = {
    "Resize": lambda node: node.attributes.get_float("extrapolation_value", 0.0) == 0,
    **dict.fromkeys(
        ("ScatterElements", "ScatterND"),
        lambda node: node.attributes.get_string("reduction", "none") != "mul",
    ),
}
"""Operator that is homogeneous in some modes -> whether a node of it is."""


def proportional(nodes: Iterable[ir.Node], seed: ir.Value) -> tuple[ir.Value, ...]:
    """Return the float values of sorted nodes that are proportional to the seed, in order."""
    degree: dict[ir.Value, int] = {seed: 1}
    for node in nodes:
        result = _degree(node, degree)
        degree.update({v: result for v in node.outputs if is_float(v, unknown=True)})
    del degree[seed]
    return tuple(v for v, d in degree.items() if d)


def _degree(node: ir.Node, degree: dict[ir.Value, int]) -> int:
    inputs = [0 if v is None else degree.get(v, 0) for v in node.inputs]
    traits = row_of(node).traits
    rules = [_OF_OPERATORS.get(operator(node)), *(r for t, r in _OF_TRAITS.items() if t in traits)]
    rule = next((rule for rule in rules if rule is not None), None)
    if rule is not None:
        return rule(node, inputs)
    all_degrees = [*inputs, *(degree.get(v, 0) for v in captured(node))]
    if Trait.SCALE_INVARIANT in traits or not any(all_degrees):
        return 0
    if node.domain or Trait.SUBGRAPHS in traits:
        return max(all_degrees)
    return _homogeneous(node, inputs)


def _homogeneous(node: ir.Node, inputs: list[int]) -> int:
    """Return the degree of what a positive factor of all data comes out of."""
    row = row_of(node)
    data = range(len(inputs)) if row.data is None else row.data
    condition = _CONDITIONS.get(operator(node))
    is_homogeneous = has(node, Trait.HOMOGENEOUS) if condition is None else condition(node)
    if not is_homogeneous or any(d for i, d in enumerate(inputs) if i not in data):
        raise _mixed(node, f"{operator(node)} of a scaled value, which is not linear")
    present = [i for i in data if i < len(inputs) and node.inputs[i] is not None]
    return _sum(node, [inputs[i] for i in present], [node.inputs[i] for i in present])


def _comparison(node: ir.Node, degrees: list[int]) -> int:
    _sum(node, degrees, node.inputs, "a comparison")
    return 0


def _product(node: ir.Node, factors: list[int]) -> int:
    if sum(factors) > 1:
        raise _mixed(node, "a product of two scaled values")
    return sum(factors)


def _product_and_term(node: ir.Node, inputs: list[int]) -> int:
    product = _product(node, inputs[:2])
    return product if len(inputs) < 3 else _sum(node, [product, inputs[2]], node.inputs[1:])


def _quotient(node: ir.Node, inputs: list[int]) -> int:
    numerator, denominator = inputs
    if denominator > numerator:
        raise _mixed(node, "a division by a scaled value")
    return numerator - denominator


def _sum(
    node: ir.Node, degrees: list[int], terms: Iterable[ir.Value | None], what: str = "a sum"
) -> int:
    counted = [d for d, term in zip(degrees, terms, strict=True) if d or not _is_zero(term)]
    if counted and min(counted) < max(counted):
        raise _mixed(node, f"{what} of a scaled value and one that is not")
    return max(counted, default=0)


_Rule = Callable[[ir.Node, list[int]], int]
"""(node, degrees of its inputs) -> degree of its outputs."""

# Those whose inputs have parts of their own.
_OF_OPERATORS: Mapping[str, _Rule] = {"Div": _quotient, "Gemm": _product_and_term}

_OF_TRAITS: Mapping[Trait, _Rule] = {
    Trait.MULTIPLIES: _product,
    Trait.COMPARES: _comparison,
    Trait.CASTS: lambda _, inputs: inputs[0],
}
"""Trait -> rule; the first that a node has counts."""


def _is_zero(value: ir.Value | None) -> bool:
    """Return whether a value is known to be zero."""
    if value is None:
        return True
    tensor = constant_tensor(value)
    if tensor is not None:
        return tensor.size == 0 or not np.any(tensor.numpy())
    node = value.producer()
    if node is None:
        return False
    if operator(node) == "ConstantOfShape":
        fill = node.attributes.get("value")
        return fill is None or not np.any(fill.as_tensor().numpy())
    if operator(node) == "Mul":
        return any(_is_zero(v) for v in node.inputs)
    return has(node, Trait.MOVES, Trait.CASTS) and all(map(_is_zero, row_of(node).data_of(node)))


def _mixed(node: ir.Node, mixture: str) -> InjectError:
    return InjectError(
        "between the seed and the gradients, a node does not keep the loss scale",
        where=place(node),
        found=mixture,
        expected="gradients that are proportional to the seed",
        remedy="name the gradients before weight decay or clipping, and a seed that is used for "
        "nothing else",
    )
