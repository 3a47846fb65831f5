"""Which part of a painting a target with measured costs keeps low, against brute force."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

import onnx
import pytest
import random_models
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from rewrite_text import lists_of, rewritten

from amp_rewrite import targets
from amp_rewrite.dtypes import FLOAT16, FLOAT32
from amp_rewrite.graph.constants import constant_tensor
from amp_rewrite.graph.flat import ABSENT, MAIN
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.graph.traits import operator
from amp_rewrite.kernels import costs
from amp_rewrite.kernels.costs import CostTable
from amp_rewrite.rewriting.paint.cheapest import CheapestRegions
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.pipeline import paint
from amp_rewrite.rewriting.paint.weighing import Weighing
from amp_rewrite.rewriting.plan.options import RewriteOptions
from amp_rewrite.rewriting.plan.paint_context import paint_context

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]

FAMILIES = {
    "product": ["MatMul", "Gemm"],
    "elementwise": ["Add", "Sub", "Mul", "Sum", "Mean", "Relu", "Neg", "Sigmoid", "Tanh", "Max"],
    "move": ["Identity", "Reshape", "Concat", "Split", "Transpose", "Where"],
    "softmax": ["Softmax", "ReduceMean"],
}
PLAIN = tuple(op for operators in FAMILIES.values() for op in operators)
"""Operators whose vertices may have any type, whatever that of others is."""


def table_of(numbers: Iterator[int]) -> dict[str, Any]:
    """Return a table of costs made of small numbers; elements and products count for little."""
    rows = [
        {"family": f, "type": t, "call": next(numbers), "element": next(numbers) % 2, "mac": 0}
        for f in FAMILIES
        for t in ("float32", "float16")
    ]
    casts = [
        {"to": t, "producer": p, "consumer": c, "call": next(numbers)}
        for p, c in (("none", "*"), ("*", "elementwise"), ("*", "*"))
        for t in ("float32", "float16")
    ]
    joins = [
        {
            "producer": p,
            "consumer": "elementwise",
            "saves": {t: {"call": next(numbers)} for t in ("float32", "float16")},
        }
        for p in ("product", "elementwise")
    ]
    texts = {"version": 1, "runtime": "none", "device": "none", "source": "this test"}
    return {**texts, "families": FAMILIES, "costs": rows, "casts": casts, "joins": joins}


TABLES = st.lists(st.integers(0, 12), min_size=40, max_size=40).map(lambda n: table_of(iter(n)))


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that gives the target "fast" a table of costs."""
    fast = targets.Target("fast", "cuda", costs="fast")
    monkeypatch.setattr(targets, "TARGETS", (*targets.TARGETS, fast))

    def with_table(data: dict[str, Any]) -> CostTable:
        table = costs.parse(data, "fast")
        monkeypatch.setattr(costs, "load", lambda _name: table)
        return table

    return with_table


class Predicted:
    """The running time of a model, counted node by node and value by value."""

    def __init__(self, context: PaintContext, weighing: Weighing) -> None:
        self.graph, self.flat = context.type_graph, context.type_graph.flat
        self.table, self.elements = weighing.table, weighing.elements.tolist()
        self.sizes = weighing.sizes

    def of(self, low: Collection[int]) -> float:
        """Return the microseconds if some vertices are low."""
        nodes = sum(self.node(node, low) for node in range(self.flat.n_nodes))
        values = [v for v in range(self.flat.n_values) if self.graph.is_float32(v)]
        joined: set[int] = set()
        return nodes + sum(self.cast(v, low) - self.saved(v, low, joined) for v in values)

    def family(self, node: int) -> str:
        return self.table.family(operator(self.flat.called(node)))

    def node(self, node: int, low: Collection[int]) -> float:
        vertices, family = self.graph.vertices_of(node), self.family(node)
        if not vertices or not self.table.is_weighed(family, FLOAT16):
            return 0
        first = self.graph.source[self.flat.outputs_of(node)[0]]
        counted = vertices[0] if first == ABSENT else first
        ends = (*self.flat.inputs_of(node), *self.flat.outputs_of(node))
        moved = sum(self.elements[v] for v in ends if v != ABSENT and self.graph.is_float32(v))
        macs = self.sizes.multiply_accumulates(node) or 0
        return self.table.node(family, FLOAT16 if counted in low else FLOAT32, moved, macs)

    def readers(self, value: int) -> list[tuple[int, str]]:
        flat = self.flat
        found = [(self.graph.reads[s], self.family(flat.reader(s))) for s in flat.uses(value)]
        return found + [(ABSENT, "none")] * (value in flat.bodies[MAIN].outputs)

    def cast(self, value: int, low: Collection[int]) -> float:
        if constant_tensor(self.graph, value) is not None:
            return 0
        maker = self.graph.source[value]
        to = FLOAT32 if maker in low else FLOAT16
        if all((reader in low) == (maker in low) for reader, _ in self.readers(value)):
            return 0
        family = "none" if maker == ABSENT else self.family(self.graph.nodes[maker])
        rates = [self.table.cast(to, family, f) for _, f in self.readers(value)]
        return max(rate.takes(self.elements[value]) for rate in rates)

    def saved(self, value: int, low: Collection[int], joined: set[int]) -> float:
        maker, readers = self.graph.source[value], {*self.readers(value)}
        if maker == ABSENT or len(readers) != 1:
            return 0
        ((reader, family),) = readers
        if reader == ABSENT or reader in joined:
            return 0
        of_maker = self.family(self.graph.nodes[maker])
        if (of_maker, family, "float32") not in self.table.joins:
            return 0
        joined.add(reader)
        if (maker in low) != (reader in low):
            return 0
        type_ = "float16" if maker in low else "float32"
        return self.table.joins[of_maker, family, type_].takes(self.elements[value])


def painted(model: onnx.ModelProto, table: CostTable, **options: Any) -> Any:
    """Return what is known of a model, what is weighed, and the painting before the choice."""
    chosen = RewriteOptions(target="schema", **options)
    context = paint_context(read_flat(model), lists_of("float16"), chosen)
    weighing = Weighing(table, chosen.preference, context.type_graph.flat)
    return context, weighing, paint(replace(context, moves_casts=False)).painting


@settings(max_examples=60, deadline=None, suppress_health_check=QUIET)
@given(
    st.lists(
        st.tuples(
            st.sampled_from((*PLAIN, "Exp", "MatMul", "MatMul")),
            st.integers(0, 5),
            st.integers(0, 5),
            st.just(()),
        ),
        min_size=2,
        max_size=9,
    ),
    TABLES,
    st.integers(0, 9),
)
def test_no_other_part_of_a_painting_is_predicted_to_be_faster(
    steps: Any, data: dict[str, Any], seed: int
) -> None:
    model = random_models.build(steps, seed, 2)
    context, weighing, painting = painted(model, costs.parse(data, "t"))
    may_be = [*painting.allowed()]
    assume(1 <= len(may_be) <= 9)
    marks = CheapestRegions(context, weighing, painting).marks((), ())
    found = {v for v in may_be if v not in marks}
    predicted = Predicted(context, weighing)
    others = [{*part} for n in range(len(may_be) + 1) for part in itertools.combinations(may_be, n)]
    least = min(predicted.of(part) for part in others)
    assert predicted.of(found) == pytest.approx(least)
    as_fast = [p for p in others if predicted.of(p) == pytest.approx(least)]
    assert all(found <= part for part in as_fast)


@settings(max_examples=40, deadline=None, suppress_health_check=QUIET)
@given(random_models.steps(), random_models.assignments(), TABLES, st.booleans(), st.integers(0, 9))
def test_every_choice_keeps_the_invariants_and_a_second_one_changes_nothing(
    steps: Any, assigned: dict[str, str], data: dict[str, Any], keep: bool, seed: int
) -> None:
    model = random_models.build(steps, seed, 2)
    with pytest.MonkeyPatch.context() as patch:
        fast = targets.Target("fast", "cuda", costs="fast")
        patch.setattr(targets, "TARGETS", (*targets.TARGETS, fast))
        table = costs.parse(data, "fast")
        patch.setattr(costs, "load", lambda _name: table)
        lists = random_models.lists_from(assigned)
        rewritten(model, target="fast", lists=lists, keep_io_types=keep)
