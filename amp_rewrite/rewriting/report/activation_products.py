"""Products of three activations or more: their size follows from no weight, and nothing bounds it.

State-space models multiply C, B, the step, the input and a gate; RWKV and linear attention without
a quotient multiply queries, keys and values. Some training keeps such products small, some does
not, and no estimate that starts from weights can tell: they are low, and the user is warned.
"""

from __future__ import annotations

from typing import NamedTuple

from amp_rewrite.dtypes import may_leave_range
from amp_rewrite.graph.constants import constant_tensor
from amp_rewrite.graph.elements import FLOAT32_TYPES
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.reach import data_of
from amp_rewrite.graph.step_part import part_in
from amp_rewrite.graph.traits import Trait, having, operator, row_of
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.painting import Painting, Reason

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

# operators: those with a divisor, the last input.
_QUOTIENTS = ("Div", "Reciprocal")

_MULTIPLYING = having(Trait.MULTIPLIES) | {"Pow", *_QUOTIENTS}

# operators: those that give the right number for an infinity.
_SATURATING = frozenset({"Atan", "Erf", "HardSigmoid", "Sigmoid", "Softsign", "Tanh"})


class _Size(NamedTuple):
    """How many activations are multiplied in a value, and the first low node on the way to it.

    The node is one that makes or reads a product of several; ABSENT if there is none.
    """

    factors: float
    node: int = ABSENT


_ACTIVATION, _BOUNDED = _Size(1), _Size(0)


def unbounded_product(context: PaintContext, painting: Painting) -> str | None:
    """Return the first low node with a product of several activations to rely on, and why.

    None in a training step, whose loss scale has an eye on infinities.
    """
    flat, sizes = context.type_graph.flat, _Sizes(context, painting)
    if not (may_leave_range(context.low) and painting.allow.any() and _multiplies_data(context)):
        return None
    if _is_step(context):
        return None
    reached: list[_Size] = []
    for node in range(flat.n_nodes):
        reached += sizes.sweep(node)
    reached += [sizes[value] for value in flat.main.outputs]
    first = min((s for s in reached if s.node != ABSENT), key=lambda s: s.node, default=None)
    if first is None:
        return None
    name, end = flat.node_names[first.node], f"{context.low.name} ends at {context.low.max:.6g}"
    return f"{name} has a product of {first.factors:.2g} activations that nothing bounds, {end}"


def _multiplies_data(context: PaintContext) -> bool:
    """Tell whether any node multiplies or divides two activations, or raises one to a power."""
    graph, flat = context.type_graph, context.type_graph.flat
    return any(
        operator(called) == "Pow"
        or sum(v != ABSENT and constant_tensor(graph, v) is None for v in flat.inputs_of(node)) > 1
        for node in range(flat.n_nodes)
        if operator(called := flat.called(node)) in _MULTIPLYING
    )


def _is_step(context: PaintContext) -> bool:
    """Tell whether a model trains: it has variables, or nodes that say which part they are."""
    flat = context.type_graph.flat
    parts = (part_in(flat.metadata_of(node)) for node in range(flat.n_nodes))
    return bool(context.variables) or any(part is not None for part in parts)


class _Sizes:
    """The sizes of values, in execution order."""

    def __init__(self, context: PaintContext, painting: Painting) -> None:
        self._graph, self._intervals = context.type_graph, context.values.intervals
        self._flat, self._known = context.type_graph.flat, dict[int, _Size]()
        self._painting = painting
        self._known |= dict.fromkeys(self._flat.main.inputs, _BOUNDED)  # as estimates take them

    def __getitem__(self, value: int) -> _Size:
        """Return the size of a value; what nobody says anything of is one activation."""
        size = self._known.get(value)
        if size is None or size.factors:
            bounds = self._intervals[value]
            is_constant = constant_tensor(self._graph, value) is not None
            size = _BOUNDED if is_constant or bounds.magnitude <= _SMALL else size or _ACTIVATION
            self._known[value] = size
        return size

    def sweep(self, node: int) -> list[_Size]:
        """Learn what a node makes, and return the sizes that it takes the model's word for."""
        flat, types = self._flat, self._graph.types
        operands = [v for v in data_of(flat, node) if types[v] in FLOAT32_TYPES]
        sizes = [self[value] for value in operands]
        factors = (
            self._factors(node, operands, [size.factors for size in sizes]) if operands else None
        )
        if flat.is_call(node):  # nobody looked into the function: it is taken to be harmless
            self._known |= dict.fromkeys(flat.outputs_of(node), _BOUNDED)
            return []
        if factors is None:
            is_end = operator(flat.called(node)) not in _SATURATING
            return [self._at(node, s.factors, [s]) for s in sizes] if is_end else []
        result_size = self._at(node, factors, sizes)
        self._known |= dict.fromkeys(flat.outputs_of(node), result_size)
        return []

    def _at(self, node: int, factors: float, sizes: list[_Size]) -> _Size:
        """Return the size of what a node makes or reads, of operands of these sizes."""
        if factors < _SEVERAL:
            return _Size(factors)
        vertices = self._graph.vertices_of(node)
        here = [node] if any(self._painting.is_allow(v) for v in vertices) else []
        earlier = [size.node for size in sizes if size.node != ABSENT]
        return _Size(factors, min([*earlier, *here], default=ABSENT))

    def _factors(self, node: int, operands: list[int], factors: list[float]) -> float | None:
        """Return how many factors a node's results have; None where it starts anew, as a layer."""
        called = self._flat.called(node)
        name, traits = operator(called), row_of(called).traits
        if Trait.MULTIPLIES in traits and Trait.HANDS_ON not in traits:
            constants = [constant_tensor(self._graph, v) is not None for v in operands]
            is_layer = Trait.CONTRACTS in traits and any(constants)
            return None if is_layer else sum(factors)
        if name == "Pow" and len(operands) > 1 and self._intervals[operands[1]].is_point:
            return factors[0] * self._intervals[operands[1]].low
        if name in _QUOTIENTS:
            return (factors[0] if name == "Div" else 0.0) - factors[-1]
        if name == "Sqrt":
            return factors[0] / 2
        return max(factors) if name in _GROWING else None


def first_likely_overflow(context: PaintContext, painting: Painting) -> str | None:
    """Return the first node that an estimate keeps float32, or that may overflow, and why."""
    kept = (v for v, m in context.excluded.items() if m.reason is Reason.LIKELY_OVERFLOW)
    first = min(kept, default=None)
    if first is None:
        return unbounded_product(context, painting)
    name, detail = context.type_graph.node_name(first), context.excluded[first].detail
    return f"{name} stays float32: {detail}"
