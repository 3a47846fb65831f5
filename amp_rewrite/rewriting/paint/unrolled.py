"""Recurrences without a loop: one weight multiplies what it has made, step after step.

Exporters unroll loops whose length is known: x1 = A x0 + B u0, x2 = A x1 + B u1, and so on. What
holds of the state of a loop (passes/keep_states.py) holds of these values: they are rounded at each
step, and poles near 1 move where A is rounded. Only arithmetic that is linear may lie between two
products with A; a bounded function, a normalization, a Relu or a layer with weights of its own ends
the way, so that networks that share weights between their layers are none.

Evidence: an oscillator unrolled over 300 steps: error 4.7 % of the output's size in float16 and 6.9
% in bfloat16 without it, 0.05 % and 0.26 % with it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator

from amp_rewrite.graph.constants import moved_from, stored_tensor
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.traits import Trait, having, is_one, operator
from amp_rewrite.rewriting.paint.formulas import Formulas, is_product
from amp_rewrite.rewriting.paint.painting import Color, Mark, Reason

# operators: arithmetic whose result grows in proportion with what it reads.
LINEAR = (
    having(Trait.MOVES, Trait.CASTS, Trait.CHANGES_SIGN, Trait.ADDS, Trait.SUMS_UP, Trait.AVERAGES)
    | having(Trait.HANDS_ON)
    | {"Div", "Mean", "Mul", "Sub"}
) - (having(Trait.JUMPS) | {"Attention", "CausalConvWithState", "LinearAttention"})

FEW = 8
"""So many steps are no more than that many layers of a network, through which errors add up too."""


class Unrolled(Formulas):
    """The recurrences of a model that no loop makes."""

    def marks(self) -> dict[int, Mark]:
        """Return the marks of what lies between the first and the last product with a weight."""
        weights = self._weights()
        steps = list(self._on_ways(range(len(self.flat.operator)), weights, set(weights)))
        products: dict[int, set[int]] = {}
        for node in steps:
            if node in weights:
                products.setdefault(weights[node], set()).add(node)
        marks: dict[int, Mark] = {}
        for weight, of_it in products.items():
            name = self.flat.value_names[weight]
            mark = Mark(Color.NONE, Reason.CARRIED, None, f"a state that {name} multiplies again")
            between = steps[bisect_left(steps, min(of_it)) : bisect_right(steps, max(of_it))]
            for node in self._on_ways(between, weights, of_it):
                marks |= dict.fromkeys(self.graph.vertices_of(node), mark)
        return marks

    def _weights(self) -> dict[int, int]:
        """Return, by node, the constant that it multiplies data with, of those used often."""
        flat = self.flat
        multiply = {
            k
            for k, called in enumerate(flat.operators)
            if is_product(called) or is_one(called, "Mul")
        }
        nodes = [n for n, number in enumerate(flat.operator) if number in multiply]
        if len(nodes) <= FEW:
            return {}
        weight_of = {n: weight for n in nodes if (weight := self._weight(n)) != ABSENT}
        times = Counter(weight_of.values())
        return {n: weight for n, weight in weight_of.items() if times[weight] > FEW}

    def _weight(self, node: int) -> int:
        """Return the constant, of more than one element, that a node multiplies data with."""
        for value in self.data(node)[:2]:
            source = moved_from(self.flat, value)
            held = None if source == ABSENT else stored_tensor(self.flat, source)
            if held is not None:
                return source if held.size > 1 else ABSENT
        return ABSENT

    def _on_ways(
        self, nodes: Iterable[int], weights: dict[int, int], counted: set[int]
    ) -> Iterator[int]:
        """Yield the nodes on ways with more than a few counted ones, from the first to the last.

        Args:
            nodes: Those that are looked at, in execution order.
            weights: What nodes multiply with; products with other constants end a way.
            counted: The nodes that count as steps.
        """
        if len(counted) <= FEW:
            return
        flat, kinds, way = self.flat, self.flat.operator, list[int]()
        products = {k for k, called in enumerate(flat.operators) if is_product(called)}
        linear = {k for k, o in enumerate(flat.operators) if operator(o) in LINEAR} - products
        before: dict[int, int] = {}
        for node in nodes:
            kind = kinds[node]
            if kind not in linear and not (kind in products and self._passes(node, weights)):
                continue
            steps = self._steps_before(node, before) + (node in counted)
            if steps:
                before[node] = steps
                way.append(node)
        if max(before.values(), default=0) <= FEW:
            return
        behind: dict[int, int] = {}
        for node in reversed(way):
            read = (reader for v in self.flat.outputs_of(node) for reader in self.flat.readers(v))
            behind[node] = max((behind.get(n, 0) for n in read), default=0) + (node in counted)
        for node in way:
            steps = before[node] + behind[node] - (node in counted)
            if behind[node] and steps > FEW:
                yield node

    def _steps_before(self, node: int, before: dict[int, int]) -> int:
        """Return how many steps lie behind the data of a node."""
        producer = self.flat.producer
        if not any(producer[v] in before for v in self.flat.inputs_of(node) if v != ABSENT):
            return 0
        return max((before.get(producer[v], 0) for v in self.data(node)), default=0)

    def _passes(self, product: int, weights: dict[int, int]) -> bool:
        """Tell whether a product is with a weight that is used often, or of two computed values."""
        return product in weights or not any(self.is_constant(v) for v in self.factors(product))
