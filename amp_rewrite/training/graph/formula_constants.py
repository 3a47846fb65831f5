"""Constants of formulas among the weights of a model: an attention scale, an epsilon, an exponent.

Exporters store them as initializers or as Constant nodes, as they do weights. Training must leave
them alone. No single fact tells them apart; these do:

1. A number that is an exponent, a bound, or what a mask puts in the place of other numbers.
2. A single number that does arithmetic with longer computed values, whose name has no dot although
   other weights' names have: those are paths of parameters in modules.
3. A single number that a Constant node held and that does such arithmetic; where products have
   their weights in initializers, all of them, and longer tensors that do arithmetic alone.
4. The scale of a normalisation that is 1 throughout, and a bias that is 0, named as in 2. or held
   as in 3. (GroupNorm is exported as InstanceNormalization without scale and bias).
5. A single number that multiplies rows of a table and is the root of their length: the scale of
   embeddings (A. Vaswani et al., "Attention Is All You Need", 2017, section 3.4,
   https://arxiv.org/abs/1706.03762), which Gemma keeps in a buffer of a module.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import onnx_ir as ir

from amp_rewrite.dtypes import BFLOAT16
from amp_rewrite.graph.traits import Trait, has, operator
from amp_rewrite.training.graph.weights import Use, forward_uses

# operators: those that do arithmetic, element by element, with what they read.
_ARITHMETIC = ("Add", "Div", "Max", "Min", "Mul", "Pow", "Sub", "Sum")

# operators: those one of whose inputs nobody trains a single number for.
_PLACES = {"Pow": (1,), "Max": None, "Min": None, "Where": (1, 2)}
"""Operator -> the inputs at which a single number is not a parameter; None is every one."""

# operators: normalisations, whose second and third inputs are a scale and a bias. With those of
# BatchNormalization its statistics would be frozen, which is another matter.
_NORMALISATIONS = ("GroupNormalization", "InstanceNormalization", "LayerNormalization")
_NEUTRAL = {1: 1.0, 2: 0.0}
"""Input of a normalisation -> the number that changes nothing there."""


def formula_constants(weights: Collection[ir.Value], from_nodes: Collection[str]) -> list[ir.Value]:
    """Return the weights that are constants of formulas; `from_nodes` names Constants' weights."""
    paths = any("." in str(v.name) for v in weights if str(v.name) not in from_nodes)
    stored = any(_contracts(v) for v in weights if str(v.name) not in from_nodes)
    separate = stored and not any(_contracts(v) for v in weights if str(v.name) in from_nodes)
    return [v for v in weights if _is_constant(v, str(v.name) in from_nodes, paths, separate)]


def _is_constant(value: ir.Value, from_node: bool, paths: bool, separate: bool) -> bool:
    """Return whether a weight is a constant, `from_node` one that a Constant node held.

    `paths` says whether names of weights are paths, `separate` whether initializers hold all.
    """
    uses = list(forward_uses(value))
    if not uses:
        return False
    named = paths and "." not in str(value.name) and not from_node
    held = from_node and separate
    if (named or held) and all(_is_neutral(value, use) for use in uses):
        return True
    if not _is_number(value):
        return held and all(_is_arithmetic(value, use) for use in uses)
    if held or all(_is_no_parameter(use) or _is_embedding_scale(value, use) for use in uses):
        return True
    arithmetic = all(_is_no_parameter(use) or _is_arithmetic(value, use) for use in uses)
    return arithmetic and (from_node or named)


def _is_no_parameter(use: Use) -> bool:
    node, index = use
    places = _PLACES.get(operator(node), ())
    return places is None or index in places


def _is_embedding_scale(value: ir.Value, use: Use) -> bool:
    """Return whether a number multiplies rows of a table and is the square root of their length.

    It may be rounded to bfloat16, in which such models are trained.
    """
    node, _ = use
    tensor = value.const_value
    if operator(node) != "Mul" or tensor is None:
        return False
    number = float(tensor.numpy().reshape(()))
    lengths = [n for v in node.inputs if (n := _row_length(v)) is not None]
    return any(math.isclose(number, math.sqrt(n), rel_tol=BFLOAT16.epsilon) for n in lengths)


def _row_length(value: ir.Value | None) -> int | None:
    """Return the length of the rows that a value holds, if it was read from a table of numbers."""
    source = _before_casts(value)
    node = None if source is None else source.producer()
    if node is None or operator(node) != "Gather":
        return None
    table = _before_casts(node.inputs[0])
    if table is None or not table.is_initializer() or table.shape is None or len(table.shape) != 2:
        return None
    length = table.shape[1]
    return length if isinstance(length, int) and length > 1 else None


def _before_casts(value: ir.Value | None) -> ir.Value | None:
    """Return what a value was before it was cast."""
    while value is not None and (node := value.producer()) is not None and has(node, Trait.CASTS):
        value = node.inputs[0]
    return value


def _is_neutral(value: ir.Value, use: Use) -> bool:
    """Return whether a weight is a scale of 1, or a bias of 0, of a normalisation."""
    node, index = use
    if operator(node) not in _NORMALISATIONS or index not in _NEUTRAL:
        return False
    tensor = value.const_value
    return tensor is not None and bool((tensor.numpy() == _NEUTRAL[index]).all())


def _is_arithmetic(value: ir.Value, use: Use) -> bool:
    """Return whether a weight does arithmetic with what is computed, and is broadcast if it can be.

    The bias of a layer with one output is a single number too: what it is added to has one element
    along its last axis.
    """
    node, _ = use
    if operator(node) not in _ARITHMETIC:
        return False
    others = [v for v in node.inputs if v is not None and v is not value]
    if any(v.is_initializer() for v in others):
        return False
    return not (_is_number(value) and any(_ends_with_one(value, other) for other in others))


def _ends_with_one(value: ir.Value, other: ir.Value) -> bool:
    rank = 0 if value.shape is None else len(value.shape.dims)
    if not rank or other.shape is None or not len(other.shape.dims):
        return False
    return other.shape.dims[-1] == 1


def _is_number(value: ir.Value) -> bool:
    return value.shape is not None and math.prod(value.shape.numpy()) == 1


def _contracts(value: ir.Value) -> bool:
    """Return whether a value is the weight of a product, or a table."""
    contracting = (
        node for node, index in forward_uses(value) if index < 2 or operator(node) == "Einsum"
    )
    return any(has(node, Trait.CONTRACTS) or operator(node) == "Gather" for node in contracting)
