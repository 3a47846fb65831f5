"""Products of three activations or more: their size follows from no weight, and nothing bounds it.

State-space models multiply C, B, the step, the input and a gate; RWKV and linear attention without
a quotient multiply queries, keys and values. Some training keeps such products small, some does
not, and no estimate that starts from weights can tell: they are low, and the user is warned.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from amp_rewrite.graph.constants import constant_tensor
from amp_rewrite.graph.elements import FLOAT32_TYPES
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.traits import Trait, having, operator, row_of
from amp_rewrite.rewriting.paint.beyond_range import may_leave_range
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.painting import Painting

_SEVERAL = 3
"""From how many factors on: two are a gated layer, or scores, and models are trained in them."""

_SMALL = 256.0
"""What cannot exceed this counts as no factor: gates, probabilities, what was normalised."""

# operators: those whose results grow as their data do.
_GROWING = having(
    *(Trait.MOVES, Trait.HANDS_ON, Trait.CASTS, Trait.ADDS, Trait.HOMOGENEOUS, Trait.SUMS_UP)
) | {
    *("Celu", "Clip", "Elu", "Gelu", "HardSwish", "Max", "Min", "Mish", "Relu", "Selu"),
    *("Softplus", "Sub", "Swish"),
}

# operators: those that give the right number for an infinity.
_SATURATING = frozenset({"Atan", "Erf", "HardSigmoid", "Sigmoid", "Softsign", "Tanh"})


class _Size(NamedTuple):
    """How many activations are multiplied in a value, and which node multiplied the third."""

    factors: float
    product: int = ABSENT


_ACTIVATION, _BOUNDED = _Size(1), _Size(0)


def unbounded_product(context: PaintContext, painting: Painting) -> str | None:
    """Return the first low product of several activations that anything relies on, and why.

    None in a training step, whose loss scale has an eye on infinities.
    """
    if not may_leave_range(context.low) or context.variables or not painting.allow.any():
        return None
    flat, sizes = context.type_graph.flat, _Sizes(context)
    reached: list[_Size] = []
    for node in range(flat.n_nodes):
        reached += sizes.sweep(node)
    reached += [sizes[value] for value in flat.main.outputs]
    low = [size for size in reached if size.product != ABSENT and _is_low(context, painting, size)]
    if not low:
        return None
    first = min(low, key=lambda size: size.product)
    name, end = flat.node_names[first.product], f"{context.low.name} ends at {context.low.max:.6g}"
    return f"{name} multiplies the third of {first.factors:.2g} activations, unbounded, and {end}"


def _is_low(context: PaintContext, painting: Painting, size: _Size) -> bool:
    vertices = context.type_graph.vertices_of(size.product)
    return any(painting.is_allow(vertex) for vertex in vertices)


class _Sizes:
    """The sizes of values, in execution order."""

    def __init__(self, context: PaintContext) -> None:
        self._graph, self._intervals = context.type_graph, context.values.intervals
        self._flat, self._known = context.type_graph.flat, dict[int, _Size]()
        self._hidden = {value for group in context.groups for value in group.inner}

    def __getitem__(self, value: int) -> _Size:
        """Return the size of a value; what nobody says anything of is one activation."""
        known = self._known.get(value)
        if known is None or known.factors:
            bounds = self._intervals[value]
            is_constant = constant_tensor(self._graph, value) is not None
            known = _BOUNDED if is_constant or bounds.magnitude <= _SMALL else known or _ACTIVATION
            self._known[value] = known
        return known

    def sweep(self, node: int) -> list[_Size]:
        """Learn what a node makes, and return the sizes that it takes the model's word for."""
        flat, row = self._flat, row_of(self._flat.called(node))
        inputs = [
            v for k, v in enumerate(flat.inputs_of(node)) if row.data is None or k in row.data
        ]
        given = [v for v in inputs if v != ABSENT and self._graph.types[v] in FLOAT32_TYPES]
        sizes = [self[value] for value in given]
        found = self._made(node, given, sizes) if given else None
        for value in flat.outputs_of(node):
            if found is not None and value not in self._hidden:
                self._known[value] = found
        is_end = found is None and operator(flat.called(node)) not in _SATURATING
        return sizes if is_end else []

    def _made(self, node: int, given: list[int], sizes: list[_Size]) -> _Size | None:
        """Return the size of a node's results; None where it starts anew, as behind a layer."""
        called = self._flat.called(node)
        name, traits = operator(called), row_of(called).traits
        if Trait.MULTIPLIES in traits and Trait.HANDS_ON not in traits:
            constants = [constant_tensor(self._graph, v) is not None for v in given]
            if Trait.CONTRACTS in traits and any(constants):
                return None
            return _product(node, sum(size.factors for size in sizes), sizes)
        if name == "Pow" and len(given) > 1 and self._intervals[given[1]].is_point:
            exponent = self._intervals[given[1]].low
            return _product(node, max(sizes[0].factors * exponent, 0.0), sizes)
        if name == "Div" and len(sizes) > 1:
            return _product(node, max(sizes[0].factors - sizes[1].factors, 0.0), sizes)
        if name == "Sqrt":
            return _product(node, sizes[0].factors / 2, sizes)
        return max(sizes, key=lambda size: size.factors) if name in _GROWING else None


def _product(node: int, factors: float, operands: list[_Size]) -> _Size:
    """Return the size of a product; who multiplied the third factor is remembered."""
    if not _SEVERAL <= factors < math.inf:
        return _Size(factors)
    earlier = [size.product for size in operands if size.product != ABSENT]
    return _Size(factors, min(earlier, default=node))
