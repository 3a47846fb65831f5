"""Scale what leaves the range of the low type, as far as constants can take the factors."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.graph.constants import constant_tensor, stored_tensor
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT, FlatGraph
from amp_rewrite.graph.step_metadata import step_description
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.painting import Painting
from amp_rewrite.rewriting.paint.value_facts import ValueFacts
from amp_rewrite.rewriting.plan.casts import CastPlan
from amp_rewrite.rewriting.scaling.borders import solve_with_borders
from amp_rewrite.rewriting.scaling.needs import Measured, Needs, limit_of
from amp_rewrite.rewriting.scaling.noted_exponents import exponents_noted
from amp_rewrite.rewriting.scaling.scaled_model import scaled_flat
from amp_rewrite.rewriting.scaling.scaling import Border, ScaledSet, Scaling, Unscaled
from amp_rewrite.values.scales.call import Product, System
from amp_rewrite.values.scales.equations import scale_system
from amp_rewrite.values.scales.solve import Roof, Solution, solve
from amp_rewrite.values.weight_stats import WeightStats

_ATTEMPTS = 8
"""How often sets are given up whose factors some constant cannot take, before all are."""

_STEP = "the weights of a training step are no constants that could take a factor"
"""Why nothing is scaled in a training step."""

_DIGITS = 16.0
"""How many times the smallest normal number the largest element of a scaled factor has to be:
normal weights have a standard deviation of a fifth of that, above the smallest normal number."""


def scale_model(
    flat: FlatGraph, needs: Needs, preserved: Iterable[int] = (), *, adds_nodes: bool = False
) -> Scaling | None:
    """Return a model in which what overflows is scaled; None if nothing has to be."""
    context, graph = needs.context, needs.context.type_graph
    choice = _Choice(flat, graph, context.values, context.low, [*preserved], adds_nodes)
    choice.limits, choice.read_limits = needs.limits_of_results(), needs.limits()
    choice.largest, choice.kept, choice.roof = needs.largest, needs.kept(), needs.roof
    return choice.given_up(_STEP) if step_description(flat) else choice.made()


def scale_given(
    flat: FlatGraph,
    own: TypeGraph,
    form: PaintContext,
    measured: Measured | None = None,
    *,
    adds_nodes: bool = False,
) -> Scaling | None:
    """Return a model in 16 bits in which what overflows is scaled; None if nothing has to be."""
    needs, facts = Needs(form, measured), ValueFacts(own, form.low)
    of_form = form.type_graph.flat.value_names
    by_name = {name: value for value, name in enumerate(flat.value_names) if name}
    numbers = {v: by_name[name] for v, name in enumerate(of_form) if name in by_name}
    choice = _Choice(flat, own, facts, form.low, [], adds_nodes)
    choice.limits = {numbers[v]: k for v, k in needs.limits_of_results().items() if v in numbers}
    choice.read_limits = {numbers[v]: k for v, k in needs.limits().items() if v in numbers}
    choice.largest = {numbers[v]: k for v, k in needs.largest.items() if v in numbers}
    choice.kept = frozenset(numbers[v] for v in needs.kept() if v in numbers)
    values = {number: value for value, number in numbers.items()}
    choice.roof = lambda value: needs.roof(values[value]) if value in values else math.inf
    return choice.made()


NO_SAVING = "scaling it would save no cast and no float32 node"
"""Why nothing is scaled where it could be."""

Rewrite = tuple[TypeGraph, Painting, CastPlan]


def saved_by_scaling(
    scaling: Scaling, before: Rewrite, after: Rewrite, *, adds_nodes: bool
) -> Scaling | None:
    """Return a scaling with what it saved; None if it saved neither a Cast nor a float32 node.

    Under `adds_nodes` a float32 node less is worth any number of Casts.
    """
    casts = len(before[2].casts) - len(after[2].casts)
    nodes = int(after[1].allow.sum()) - int(before[1].allow.sum()) - len(scaling.borders)
    is_worse = nodes < 0 or (casts < 0 and not (adds_nodes and nodes))
    if is_worse or not (casts or nodes):
        return None
    return replace(scaling, casts_saved=casts, variables_saved=nodes)


@dataclass
class _Choice:
    """Which sets are scaled, and by how much.

    Attributes:
        limits: Value -> the largest exponent with which it, and what it is summed from, fits.
        read_limits: Value -> the largest exponent with which it fits where it is read.
        largest: Value -> its largest magnitude, where that is known.
        kept: Constants that keep a reader in float32, since they do not fit.
        roof: Tells the largest exponent of a value that has no limit.
    """

    flat: FlatGraph
    graph: TypeGraph
    facts: ValueFacts
    low: DType
    preserved: list[int]
    adds_nodes: bool
    limits: Mapping[int, float] = field(default_factory=dict)
    read_limits: Mapping[int, float] = field(default_factory=dict)
    largest: Mapping[int, float] = field(default_factory=dict)
    kept: frozenset[int] = frozenset()
    roof: Roof | None = None

    def made(self) -> Scaling | None:
        best = self._best()
        return best if best is not None and (best.sets or best.unscaled) else None

    def _best(self) -> Scaling | None:
        plain = self._made(adds_nodes=False)
        is_enough = plain is not None and not plain.unscaled
        if not self.adds_nodes or is_enough or all(k >= 0 for k in self.limits.values()):
            return plain
        cut = self._made(adds_nodes=True, spares_numbers=True)
        if cut is None or cut.unscaled:
            cut = self._made(adds_nodes=True)
        if cut is None or (plain is not None and plain.nodes_left <= cut.nodes_left):
            return plain
        return cut

    def _made(self, *, adds_nodes: bool, spares_numbers: bool = False) -> Scaling | None:
        """Return a scaling; with `spares_numbers` no epsilon vanishes that a Mul saves."""
        given_up: dict[int, str] = {}
        for _ in range(_ATTEMPTS):
            system = scale_system(self.flat, self.graph.types, self.preserved, borders=adds_nodes)
            for element, why in given_up.items():
                system.exponents.pin(element, why)
            held = self._limits_of_constants(system)
            limits = {**self.limits, **held}
            if adds_nodes:
                solution = solve_with_borders(system, limits, self.read_limits, self.roof)
            else:
                solution = solve(system, limits, self.roof)
            unfit = self._unfit(system, solution, spares_numbers=spares_numbers)
            if not unfit:
                return self._scaling(system, solution)
            given_up |= unfit
        return self.given_up(next(iter(given_up.values())))

    def _limits_of_constants(self, system: System) -> dict[int, float]:
        """Return, by element, the largest exponent with which a constant fits."""
        value_of, limits = system.value_of, dict[int, float]()
        held = {c: constant_tensor(self.graph, value_of(c)) for c in sorted(system.constants)}
        for constant, tensor in held.items():
            if tensor is not None:
                value = value_of(constant)
                limit = limit_of(self.facts.stats(value, tensor).max_abs, self.low, 1.0)
                limits[constant] = limit if value in self.kept else max(0.0, limit)
        return limits

    def given_up(self, why: str) -> Scaling | None:
        """Return a scaling of nothing, for what is largest leaves the range for a reason."""
        if not self.largest:
            return None
        top = max(self.largest, key=lambda v: self.largest[v])
        nodes = self._makers(v for v in self.largest if self.limits.get(v, 0.0) < 0)
        left = Unscaled(self.flat.value_names[top], self.largest[top], why, nodes)
        return Scaling(self.flat, (), (left,))

    def _unfit(self, system: System, found: Solution, *, spares_numbers: bool) -> dict[int, str]:
        """Return an element of each set that some constant speaks against, and why."""
        low, facts, unfit = self.low, self.facts, dict[int, str]()
        factors = [(e, p) for p in reversed(system.products) for e, _ in reversed(p.factors)]
        products = {system.exponents.find(e)[0]: p for e, p in factors if found.derived}
        for element in sorted(system.constants & found.exponents.keys()):
            value, exponent = system.value_of(element), found.exponents[element]
            tensor = constant_tensor(self.graph, value)
            if tensor is None:
                continue
            why = _refusal(facts.stats(value, tensor), exponent, low)
            if why is None and element in found.derived:
                why = _lost_digits(facts.stats(value, tensor), exponent, low)
            if why is None and spares_numbers and tensor.size == 1:
                why = _rounded(facts.stats(value, tensor).max_abs, exponent, low)
            if why is not None:
                told = f"the constant {self.flat.value_names[value]} {why}"
                unfit |= dict.fromkeys(_involved(system, found, element, products), told)
        return unfit | self._unfit_attributes(system, found)

    def _unfit_attributes(self, system: System, found: Solution) -> dict[int, str]:
        """Return an element of each set of which an attribute would leave the range of float32."""
        unfit: dict[int, str] = {}
        for node, name, default, element, ratio in system.attributes:
            exponent = found.exponents.get(element, 0) * ratio
            held = self.flat.attributes(node).get(name)
            number = default if held is None else held.value
            if not exponent or not isinstance(number, int | float) or not number:
                continue
            scaled = abs(math.ldexp(number, exponent))
            if not FLOAT32.smallest_normal <= scaled <= FLOAT32.max:
                of = self.flat.node_names[node]
                unfit[element] = f"the {name} of {of} would leave the range of float32"
        return unfit

    def _scaling(self, system: System, found: Solution) -> Scaling:
        if not found.exponents:
            return Scaling(self.flat, (), self._unscaled(system, found))
        note = exponents_noted(system, found.exponents)
        scaled = scaled_flat(system, found.exponents, note)
        taken = Counter(found.derived.values())  # by result
        scaled_sets = (
            self._set(system, found, members, taken) for members in found.chosen.values()
        )
        sets = tuple(each for each in scaled_sets if each.values or not system.links)
        left, lost = self._unscaled(system, found), self._subnormal(system, found)
        return Scaling(scaled, sets, left, lost, borders=self._borders(scaled, found))

    def _borders(self, scaled: FlatGraph, found: Solution) -> tuple[Border, ...]:
        own, borders_added = {*self.flat.node_names}, list[Border]()
        numbers = {name: value for value, name in enumerate(self.flat.value_names) if name}
        for node in scaled.nodes_of("Mul"):
            if scaled.node_names[node] in own:
                continue
            value, factor = scaled.inputs_of(node)
            held = stored_tensor(scaled, factor)
            assert held is not None, "a factor is a constant"
            name = scaled.value_names[value]
            before = found.exponents.get(numbers[name], 0)
            after = before + round(math.log2(np.asarray(held.numpy()).astype(np.float64).item()))
            slots = scaled.uses(scaled.outputs_of(node)[0])
            readers = dict.fromkeys(scaled.node_names[scaled.reader(slot)] for slot in slots)
            borders_added.append(Border(scaled.node_names[node], name, before, after, (*readers,)))
        return (*borders_added,)

    def _set(
        self, system: System, found: Solution, members: list[int], taken: Mapping[int, int]
    ) -> ScaledSet:
        """Return what is told of a set; `taken` counts the constants that follow from a result."""
        names, n_values = self.flat.value_names, self.flat.n_values
        values = sorted(e for e in members if e < n_values and found.exponents.get(e))
        largest = self.largest
        top = max(values, key=lambda v: largest.get(v, 0.0), default=members[0])
        exponent, reached = found.exponents.get(top, 0), largest.get(top, 0.0)
        own = system.constants & {*members}
        first = names[values[0]] if values else names[system.value_of(members[0])]
        told = {names[v]: found.exponents[v] for v in values}
        exponents = {self.flat.producer[v]: found.exponents[v] for v in reversed(values)}
        nodes = {self.flat.node_names[n]: exponents[n] for n in sorted(exponents) if n != ABSENT}
        after = math.ldexp(reached, exponent)
        taken_in = len(own) + sum(taken.get(member, 0) for member in {*members})
        return ScaledSet(
            first, names[top] if values else first, told, nodes, exponent, reached, after, taken_in
        )

    def _unscaled(self, system: System, found: Solution) -> tuple[Unscaled, ...]:
        by_root: dict[int, list[int]] = {}
        for value in self.largest:
            root, _ = system.exponents.find(value)
            if root in found.refused:
                by_root.setdefault(root, []).append(value)
        left: dict[int, Unscaled] = {}
        for root, values in by_root.items():
            top = max(values, key=lambda v: self.largest[v])
            nodes = self._makers(v for v in values if self.limits.get(v, 0.0) < 0)
            name = self.flat.value_names[top]
            left[top] = Unscaled(name, self.largest[top], found.refused[root], nodes)
        return tuple(left[top] for top in sorted(left))

    def _makers(self, values: Iterable[int]) -> tuple[str, ...]:
        makers = {self.flat.producer[value] for value in values} - {ABSENT}
        return tuple(self.flat.node_names[node] for node in sorted(makers))

    def _subnormal(self, system: System, found: Solution) -> int:
        """Return how many constants have elements below the smallest normal number now only."""
        count, low = 0, self.low
        for element in system.constants & found.exponents.keys():
            value = system.value_of(element)
            tensor = constant_tensor(self.graph, value)
            if tensor is None:
                continue
            small = self.facts.stats(value, tensor).smallest_nonzero_abs
            after = math.inf if small is None else small * 2.0 ** found.exponents[element]
            count += after < low.smallest_normal <= (small or math.inf)
        return count


def _involved(
    system: System, found: Solution, element: int, products: Mapping[int, Product]
) -> list[int]:
    """Return elements of the sets whose exponents a constant takes part in."""
    if element not in found.derived:
        return [element]
    product = products[system.exponents.find(element)[0]]
    members = (product.result, *(e for e, _ in product.factors))
    return [e for e in members if e in found.exponents and e not in found.derived]


def _lost_digits(stats: WeightStats, exponent: int, low: DType) -> str | None:
    """Return that weights would become subnormal, if they would lose digits for it."""
    is_cut = stats.max_abs * 2.0**exponent < _DIGITS * low.smallest_normal
    return "would become subnormal" if stats.max_abs and is_cut and exponent < 0 else None


def _rounded(number: float, exponent: int, low: DType) -> str | None:
    """Return that a single number would become subnormal, if the type does not hold it then."""
    scaled = math.ldexp(number, exponent)
    is_cut = (
        exponent < 0 and scaled < low.smallest_normal and math.fmod(scaled, low.smallest_subnormal)
    )
    return "would become subnormal" if is_cut else None


def _refusal(stats: WeightStats, exponent: int, low: DType) -> str | None:
    """Return why a constant cannot be multiplied by a power of two, or None."""
    largest, smallest = stats.max_abs, stats.smallest_nonzero_abs
    if stats.nans or stats.infs:
        return "holds NaN" if stats.nans else "holds infinite numbers"
    if largest * 2.0**exponent >= low.overflow and largest < low.overflow:
        return "would leave the range"
    if smallest is not None and smallest * 2.0**exponent < FLOAT32.smallest_normal:
        return "would leave the range of float32"
    return None
