"""Which part of a painting a target with measured costs keeps low, against brute force."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
import random_models
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from onnx import numpy_helper
from rewrite_text import lists_of, parse, reasons, rewritten

import amp_rewrite as amp
from amp_rewrite import targets
from amp_rewrite.dtypes import FLOAT16, FLOAT32
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.constants import constant_tensor
from amp_rewrite.graph.flat import ABSENT, MAIN
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.graph.traits import operator
from amp_rewrite.kernels import cost_files as costs
from amp_rewrite.kernels.costs import CostTable
from amp_rewrite.oplists import ListName, NodeRule
from amp_rewrite.rewriting.paint import cheapest
from amp_rewrite.rewriting.paint.cheapest import CheapestRegions
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.pipeline import paint
from amp_rewrite.rewriting.paint.running_time import UNIT, RunningTime
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
    texts |= {"provider": "none", "driver": ""}
    return {**texts, "families": FAMILIES, "costs": rows, "casts": casts, "joins": joins}


TABLES = st.lists(st.integers(0, 12), min_size=40, max_size=40).map(lambda n: table_of(iter(n)))


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that gives the target "fast" a table of costs."""
    fast = targets.Target("fast", "cuda", costs={"": "fast"})
    monkeypatch.setattr(targets, "TARGETS", (*targets.TARGETS, fast))
    monkeypatch.setattr(cheapest, "LEAST_CALL", 0)  # time alone, whatever little is saved

    def with_table(data: dict[str, Any]) -> CostTable:
        table = costs.parse({"least_rounding": 0, **data}, "fast")
        monkeypatch.setattr(costs, "load", lambda _name: table)
        return table

    return with_table


class Predicted:
    """The running time of a model, counted node by node and value by value."""

    def __init__(self, context: PaintContext, weighing: Weighing) -> None:
        self.graph, self.flat = context.type_graph, context.type_graph.flat
        self.table, self.elements = weighing.table, weighing.elements.tolist()
        self.sizes, self.prices = weighing.sizes, weighing.prices
        self.clear = context.on(ListName.CLEAR)

    def of(self, low: Collection[int]) -> float:
        """Return the microseconds if some vertices are low."""
        nodes = sum(self.node(node, low) for node in range(self.flat.n_nodes))
        values = [v for v in range(self.flat.n_values) if self.graph.is_float32(v)]
        joined: set[int] = set()
        time = nodes + sum(self.cast(v, low) - self.saved(v, low, joined) for v in values)
        return time + sum(self.rounding(v, low) for v in values)

    def rounding(self, value: int, low: Collection[int]) -> float:
        """Return what is counted for a value that is rounded where it is made, or read."""
        if self.prices is None:
            return 0
        price = float(self.prices[value]) / UNIT
        readers = {reader for reader, _ in self.readers(value) if reader in low}
        if constant_tensor(self.graph, value) is not None:
            return price * len(readers)
        maker = self.graph.source[value]
        return price * (not self.clear[maker] if maker in low else bool(readers))

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
        saved = self.table.joins[of_maker, family, type_].takes(self.elements[value])
        ends = (self.graph.nodes[maker], self.graph.nodes[reader])
        return min(saved, *(self.node(node, low) for node in ends))


def painted(model: onnx.ModelProto, table: CostTable, **options: Any) -> Any:
    """Return what is known of a model, what is weighed, and the painting before the choice."""
    chosen = RewriteOptions(target="schema", **options)
    context = paint_context(read_flat(model), lists_of("float16"), chosen)
    weighing = Weighing(table, chosen.preference, context.type_graph.flat)
    return context, weighing, paint(replace(context, moves_casts=False)).painting


@settings(max_examples=12, suppress_health_check=QUIET)
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
    st.integers(0, 4),
)
def test_no_other_part_of_a_painting_is_predicted_to_be_faster(
    steps: Any, data: dict[str, Any], seed: int, dearest: int
) -> None:
    model = random_models.build(steps, seed, 2)
    context, weighing, painting = painted(model, costs.parse({**data, "least_rounding": 0}, "t"))
    if dearest:  # rounding counts, too
        values = context.type_graph.flat.n_values
        prices = UNIT * np.random.default_rng(seed).integers(0, dearest, values)
        weighing = replace(weighing, prices=prices)
    may_be = [*painting.allowed()]
    assume(1 <= len(may_be) <= 9)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("LEAST_SHARE", "LEAST_CALL"):
            patch.setattr(cheapest, name, 0)
        marks = CheapestRegions(context, weighing, painting).marks((), ())
    found = {v for v in may_be if v not in marks}
    predicted = Predicted(context, weighing)
    sizes = range(len(may_be) + 1)
    others = [{*part} for n in sizes for part in itertools.combinations(may_be, n)]
    idle = RunningTime(context, weighing).idle  # what hands a value on has the type of its maker
    others = [p for p in others if all((a in p) == (b in p) for a, b in idle)]
    least = min(predicted.of(part) for part in others)
    assert predicted.of(found) == pytest.approx(least)
    as_fast = [p for p in others if predicted.of(p) == pytest.approx(least)]
    assert all(found <= part for part in as_fast)


@settings(max_examples=12, suppress_health_check=QUIET)
@given(random_models.steps(), random_models.assignments(), TABLES, st.booleans(), st.integers(0, 9))
def test_every_choice_keeps_the_invariants_and_a_second_one_changes_nothing(
    steps: Any, assigned: dict[str, str], data: dict[str, Any], keep: bool, seed: int
) -> None:
    model = random_models.build(steps, seed, 2)
    with pytest.MonkeyPatch.context() as patch:
        fast = targets.Target("fast", "cuda", costs={"": "fast"})
        patch.setattr(targets, "TARGETS", (*targets.TARGETS, fast))
        table = costs.parse({"least_rounding": 0, **data}, "fast")
        patch.setattr(costs, "load", lambda _name: table)
        lists = random_models.lists_from(assigned)
        rewritten(model, target="fast", lists=lists, keep_io_types=keep)


def flat_table(**takes: tuple[float, float]) -> dict[str, Any]:
    """Return a table of families that take so long a call in float32 and in float16; casts: 1."""
    texts = {"version": 1, "runtime": "none", "device": "none", "source": "this test"}
    texts |= {"provider": "none", "driver": ""}
    rows = [
        {"family": family, "type": type_, "call": call}
        for family, calls in takes.items()
        for type_, call in zip(("float32", "float16"), calls, strict=True)
    ]
    casts = [
        {"to": type_, "producer": "*", "consumer": "*", "call": 1}
        for type_ in ("float32", "float16")
    ]
    families = {family: FAMILIES[family] for family in takes}
    return {**texts, "families": families, "costs": rows, "casts": casts, "joins": []}


CHAIN = """g (float[4,4] x, float[4,4] w) => (float[4,4] y) {
  a = Exp(x) b = MatMul(a, w) c = Relu(b) d = MatMul(c, w) y = Exp(d) }"""


def low_operators(result: amp.RewriteResult) -> list[str]:
    return [n.op for n in result.report.nodes for v in n.variables.values() if v.dtype != "float32"]


def test_a_node_between_two_that_gain_is_low_where_its_casts_would_cost_more(use: Any) -> None:
    # Products gain 4 each. Relu loses 1.5 and is low all the same: float32, it needs two casts.
    use(flat_table(product=(10, 6), elementwise=(2, 3.5)))
    assert low_operators(rewritten(CHAIN, target="fast")) == ["MatMul", "Relu", "MatMul"]


def test_a_node_that_loses_more_than_two_casts_is_float32_between_them(use: Any) -> None:
    use(flat_table(product=(10, 6), elementwise=(2, 4.5)))
    result = rewritten(CHAIN, target="fast")
    assert low_operators(result) == ["MatMul", "MatMul"]
    assert amp.explain(result, "Relu_2").endswith(
        "computing it in float16 would cost 0.0005 ms more than it saves"
    )


def test_a_model_that_gains_nothing_is_left_as_it_is(use: Any) -> None:
    # The products gain 1.5 together; casts of w and a on the way in and of d on the way out cost 3.
    use(flat_table(product=(10, 9.25)))
    result = rewritten(CHAIN, target="fast")
    assert not result.changed
    assert reasons(result)["Relu"] == "no-gain"
    record = next(n for n in result.report.nodes if n.op == "Relu").variables["T"]
    assert record.detail == (
        "computing it and 2 more with it in float16 would cost 0.0015 ms more than it saves"
    )


def test_a_model_that_gains_less_than_three_percent_is_left_as_it_is(use: Any) -> None:
    # Products gain 80 of 2,000, less 3 for casts: 3.9 %. Then 50, less 3: 2.4 %.
    use(flat_table(product=(1000, 960)))
    assert low_operators(rewritten(CHAIN, target="fast")) == ["MatMul", "Relu", "MatMul"]
    use(flat_table(product=(1000, 975)))
    result = rewritten(CHAIN, target="fast")
    assert not result.changed
    record = next(n for n in result.report.nodes if n.op == "MatMul").variables["T"]
    assert record.detail == "float16 would save 2.4% of the model's time, too little"
    low = low_operators(rewritten(CHAIN, target="fast", allow_nodes=["MatMul_1"]))
    assert low == ["MatMul", "Relu", "MatMul"]


def test_what_rounds_has_to_save_a_fifth_of_what_operators_take(use: Any) -> None:
    model = CHAIN.replace("y = Exp(d)", "e = Tanh(d) y = Exp(e)")
    table = flat_table(product=(30, 10), elementwise=(5, 3))
    use(table)
    assert low_operators(rewritten(model, target="fast"))[-1] == "Tanh"
    assert costs.parse(table, "t").least_rounding == 0.2, "of a table that says nothing"
    use({**table, "least_rounding": 0.2})
    # Of 17.5 in the mean 3.5 are asked for; Relu, which saves 2, saves two casts as well.
    assert low_operators(rewritten(model, target="fast")) == ["MatMul", "Relu", "MatMul"]
    assert low_operators(rewritten(model, target="fast", prefer="size"))[-1] == "Tanh"


def test_what_calls_may_be_off_by_has_to_be_saved(
    use: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The products gain 6 together, less 3 for casts, by three operators and three casts.
    use(flat_table(product=(10, 7), elementwise=(2, 2)))
    monkeypatch.setattr(cheapest, "LEAST_CALL", 0.4)
    assert low_operators(rewritten(CHAIN, target="fast")) == ["MatMul", "Relu", "MatMul"]
    monkeypatch.setattr(cheapest, "LEAST_CALL", 0.7)
    result = rewritten(CHAIN, target="fast")
    assert not result.changed
    assert "too little for 6 calls" in amp.explain(result, "MatMul_1")
    low = low_operators(rewritten(CHAIN, target="fast", allow_nodes=["MatMul_1"]))
    assert low == ["MatMul", "Relu", "MatMul"]


def test_two_operators_together_take_no_less_than_either_alone(use: Any) -> None:
    # Of the 9 that fusing is said to save in float32 only the 2 that Relu takes can be saved.
    table = flat_table(product=(10, 6), elementwise=(2, 2))
    saves = {"float32": {"call": 9}, "float16": {"call": 0}}
    join = {"producer": "product", "consumer": "elementwise", "saves": saves}
    use({**table, "joins": [join]})
    assert low_operators(rewritten(CHAIN, target="fast")) == ["MatMul", "Relu", "MatMul"]


def test_a_cast_of_a_constant_costs_nothing(use: Any) -> None:
    # Products gain 2.8; Casts of a on the way in and of d on the way out cost 2, one of w 1 more.
    use(flat_table(product=(10, 8.6)))
    assert low_operators(rewritten(CHAIN, target="fast")) == []
    body = CHAIN.partition("{")[2]
    constant = with_weights(f"g (float[4,4] x) => (float[4,4] y) {{{body}", {"w": (4, 4)})
    assert low_operators(rewritten(constant, target="fast")) == ["MatMul", "Relu", "MatMul"]


JOINED = """g (float[4,4] x, float[2,4] z) => (float[2,8] y) <int64[2] s = {2, 8}> {
b = MatMul(x, w) r = Reshape(b, s) """


def test_a_view_takes_no_place_of_what_is_computed_together(use: Any) -> None:
    # Add saves 6 in float16 with the product that it reads itself; Casts of x, z and y cost 3.
    table = flat_table(product=(10, 10), elementwise=(6, 6))
    saves = {"float32": {"call": 0}, "float16": {"call": 6}}
    table["joins"] = [{"producer": "product", "consumer": "elementwise", "saves": saves}]
    shapes = {"w": (4, 4), "k": (4, 8)}
    both = with_weights(JOINED + "c = MatMul(z, k) y = Add(r, c) }", shapes)
    use(table)
    assert low_operators(rewritten(both, target="fast"))[-1] == "Add"
    # A view that takes time is computed by itself as well.
    alone = with_weights(JOINED + "y = Tanh(r) }", shapes)
    use({**table, "families": {**table["families"], "product": ["MatMul", "Reshape"]}})
    assert low_operators(rewritten(alone, target="fast")) == []


def test_what_costs_as_much_as_it_saves_stays_float32(use: Any) -> None:
    use(flat_table(product=(10, 8.5)))
    assert low_operators(rewritten(CHAIN, target="fast")) == []


def test_an_origin_that_stays_float32_is_said_to(use: Any) -> None:
    families = {**FAMILIES, "product": ["MatMul"], "gemm": ["Gemm"]}
    table = flat_table(product=(20, 6), elementwise=(8, 2))
    table["costs"] += [{"family": "gemm", "type": t, "call": 9} for t in ("float32", "float16")]
    use({**table, "families": families})
    result = rewritten(CHAIN.replace("b = MatMul", "b = Gemm"), target="fast")
    assert low_operators(result) == ["Relu", "MatMul"]
    said = amp.explain(result, "Relu_2")
    assert "reached from Gemm_1, which itself stays float32 (target fast gains nothing" in said


def test_what_the_user_allows_by_name_stays_low(use: Any) -> None:
    use(flat_table(product=(10, 12)))
    result = rewritten(CHAIN, target="fast", allow_nodes=["MatMul_1"])
    assert low_operators(result) == ["MatMul"]


def test_what_is_computed_with_the_product_in_front_is_rounded_once_with_it(use: Any) -> None:
    table, model = flat_table(product=(20, 6), elementwise=(2, 1.9)), CHAIN.replace("Relu", "Tanh")
    table["least_rounding"] = 0.5  # 7 each; products save 14
    use(table)
    assert low_operators(rewritten(model, target="fast")) == ["MatMul", "MatMul"]
    saves = {"float32": {"call": 0.0}, "float16": {"call": 0.05}}
    use({**table, "joins": [{"producer": "product", "consumer": "elementwise", "saves": saves}]})
    assert low_operators(rewritten(model, target="fast")) == ["MatMul", "Tanh", "MatMul"]


@pytest.mark.parametrize("added", ["r", "ones"])
@pytest.mark.parametrize("order", ["Add(b, {})", "Add({}, b)"])
def test_a_residual_is_rounded_in_each_layer_and_a_bias_with_its_product(
    use: Any, added: str, order: str
) -> None:
    """Which of both stands first says nothing; what is added decides."""
    table = flat_table(product=(20, 6), elementwise=(2, 1.9))
    table["least_rounding"] = 0.5  # 7 each; products save 14
    saves = {"float32": {"call": 0.0}, "float16": {"call": 0.05}}
    use({**table, "joins": [{"producer": "product", "consumer": "elementwise", "saves": saves}]})
    model = f"""g (float[4,4] x, float[4,4] r, float[4,4] w) => (float[4,4] y)
        <float[4] ones = {{1, 1, 1, 1}}> {{
        a = Exp(x) b = MatMul(a, w) c = {order.format(added)} d = MatMul(c, w) y = Exp(d) }}"""
    expected = ["MatMul", "MatMul"] if added == "r" else ["MatMul", "Add", "MatMul"]
    assert low_operators(rewritten(model, target="fast")) == expected


def test_what_is_a_part_of_a_pattern_with_products_is_rounded_with_them(use: Any) -> None:
    table = flat_table(product=(20, 6), elementwise=(2, 1.9))
    table["least_rounding"] = 0.5  # 5 each; products save 14, others 0.1
    model = CHAIN.replace("c = Relu(b)", "s = Sigmoid(b) c = Mul(b, s)")
    use(table)
    assert low_operators(rewritten(model, target="fast")) == ["MatMul", "MatMul"]
    use({**table, "with_products": ["SiLU"]})
    assert low_operators(rewritten(model, target="fast")) == ["MatMul", "Sigmoid", "Mul", "MatMul"]
    alone = model.replace("b = MatMul(a, w)", "b = Sqrt(a)").replace("MatMul(c, w)", "Relu(c)")
    assert low_operators(rewritten(alone, target="fast")) == []


TURNED = """g (float[4,4] x, float[4,4] w, float[4,4] co, float[4,4] si) => (float[4,4] y)
<int64[1] zero = {0}, int64[1] two = {2}, int64[1] four = {4}, int64[1] axis = {1}> {
b = MatMul(x, w) m = Mul(b, co) lo = Slice(b, zero, two, axis) hi = Slice(b, two, four, axis)
n = Neg(hi) t = Concat<axis = 1>(n, lo) r = Mul(t, si)
s = Add(m, r) y = MatMul(s, w) }"""
"""A rotary embedding between two products."""


def test_a_rotary_embedding_that_is_one_operator_has_one_type(use: Any) -> None:
    # The sum takes 4 more low, and three casts around it take 3.
    families = {**FAMILIES, "sum": ["Add"], "elementwise": ["Mul", "Neg"], "softmax": ["Softmax"]}
    table = {**flat_table(product=(20, 6), elementwise=(9, 1)), "families": families}
    sums = [("float32", 2), ("float16", 6)]
    table["costs"] += [{"family": "sum", "type": t, "call": call} for t, call in sums]
    use(table)
    low = low_operators(rewritten(TURNED, target="fast"))
    assert (low.count("Mul"), low.count("Add")) == (2, 0)
    use({**table, "one_type": ["RotaryEmbedding"]})
    low = low_operators(rewritten(TURNED, target="fast"))
    assert (low.count("Mul"), low.count("Add")) == (2, 1)


SHOWN = """g (float[4,4] x, float[4,4] w) => (float[2,8] y) <int64[2] s = {2, 8}> {
b = MatMul(x, w) r = Reshape(b, s) y = Tanh(r) }"""


def test_a_cast_behind_a_view_costs_what_it_does_behind_what_is_shown(use: Any) -> None:
    def cast(producer: str, consumer: str, call: float) -> list[dict[str, Any]]:
        ends = {"producer": producer, "consumer": consumer, "call": call}
        return [{"to": type_, **ends} for type_ in ("float32", "float16")]

    table, inputs = flat_table(product=(10, 6), elementwise=(2, 30)), cast("none", "product", 0)
    use({**table, "casts": [*inputs, *cast("*", "*", 9)]})
    assert low_operators(rewritten(SHOWN, target="fast")) == []
    use({**table, "casts": [*inputs, *cast("product", "elementwise", 0), *cast("*", "*", 9)]})
    assert low_operators(rewritten(SHOWN, target="fast")) == ["MatMul", "Reshape"]


CONVOLVED = """g (float[1,4,2,2] x, float[4,4,1,1] k, float[4,4] w) => (float[1,4,4] y)
<int64[3] s = {1, 4, 4}> { c = Conv(x, k) r = Reshape(c, s) """


def test_what_a_convolution_computes_with_channels_last_is_moved_for_nothing(use: Any) -> None:
    table = flat_table(product=(20, 6), softmax=(10, 14), move=(9, 1))
    table["families"] = {"product": ["MatMul"], "softmax": ["Conv"], "move": ["Transpose"]}
    model = CONVOLVED + "t = Transpose<perm = [0, 2, 1]>(r) y = MatMul(t, w) }"
    use(table)
    assert low_operators(rewritten(model, target="fast")) == ["Transpose", "MatMul"]
    use({**table, "one_type": ["ChannelsLast"]})
    assert low_operators(rewritten(model, target="fast")) == ["MatMul"]
    other = model.replace("[0, 2, 1]", "[1, 0, 2]").replace("float[1,4,4] y", "float[4,1,4] y")
    assert low_operators(rewritten(other, target="fast")) == ["Transpose", "MatMul"]


def test_a_reshape_of_what_has_channels_last_is_a_transpose(use: Any) -> None:
    table = flat_table(product=(20, 6), elementwise=(2, 30), move=(9, 1))
    table["families"] = {"product": ["Conv"], "elementwise": ["Tanh"], "move": ["Transpose"]}
    model = CONVOLVED + "y = Tanh(r) }"
    use(table)
    assert low_operators(rewritten(model, target="fast")) == ["Conv"]
    use({**table, "families": {**table["families"], "move": ["Transpose", "ChannelsFirst"]}})
    assert low_operators(rewritten(model, target="fast")) == ["Conv", "Reshape"]


def test_what_stands_around_a_node_that_a_list_keeps_is_chosen_by_cost(use: Any) -> None:
    use(flat_table(product=(10, 6), elementwise=(8, 2)))
    lists, model = lists_of("float16"), CHAIN.replace("Relu", "Tanh")
    rule = NodeRule("MatMul_1", None, ListName.DENY, "a test", "here")
    result = rewritten(model, target="fast", lists=replace(lists, node_rules=(rule,)))
    assert low_operators(result) == ["Tanh", "MatMul"]
    assert "a node rule keeps it: a test" in amp.explain(result, "MatMul_1")
    assert low_operators(rewritten(model, target="fast", deny_nodes=["MatMul_1"])) == ["MatMul"]


def test_accuracy_asks_for_a_third_of_the_time_of_what_rounds(use: Any) -> None:
    table = flat_table(product=(30, 15), elementwise=(20, 14))
    model = CHAIN.replace("y = Exp(d)", "e = Tanh(d) f = Tanh(e) y = Exp(f)")
    use(table)
    assert low_operators(rewritten(model, target="fast")).count("Tanh") == 2
    low = low_operators(rewritten(model, target="fast", prefer="accuracy"))
    # Relu, which would save 6 of the 6.67 that are asked for, saves two casts as well.
    assert low == ["MatMul", "Relu", "MatMul"]


def test_size_takes_low_what_halves_the_file_and_is_slower(use: Any) -> None:
    use(flat_table(product=(10, 40)))
    model = parse(CHAIN)
    weight = model.graph.input.pop()
    assert weight.name == "w"
    values = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)
    model.graph.initializer.append(numpy_helper.from_array(values, "w"))
    assert low_operators(rewritten(model, target="fast")) == []
    # 32 bytes less than 64; the products lose 60 together, and of a weight in both types 32 more.
    assert low_operators(rewritten(model, target="fast", prefer="size")) == []
    use(flat_table(product=(10, 20)))
    assert low_operators(rewritten(model, target="fast", prefer="size")).count("MatMul") == 2


def test_a_target_without_a_table_refuses_a_preference() -> None:
    with pytest.raises(OptionError, match="not measured what operators take on target cuda in fl"):
        amp.RewriteOptions(prefer="speed")
    with pytest.raises(OptionError, match="expected target openvino in bfloat16"):
        amp.RewriteOptions(prefer="size", target="schema")
    with pytest.raises(OptionError, match="prefer"):
        amp.RewriteOptions(target="openvino", precision="bfloat16", prefer="fast")  # type: ignore[arg-type]


def test_a_fused_group_has_one_type(use: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # Erf alone would pay; the group as a whole does not.
    table = flat_table(product=(10, 5))
    rows = [{"family": "erf", "type": t, "call": c} for t, c in (("float32", 9), ("float16", 1))]
    slow = [{"family": "slow", "type": t, "call": c} for t, c in (("float32", 1), ("float16", 30))]
    families = {**table["families"], "erf": ["Erf"], "slow": ["Mul", "Div", "Add"]}
    use({**table, "families": families, "costs": [*table["costs"], *rows, *slow]})
    cuda = replace(targets.find("cuda"), name="fast", costs={"": "fast"}, bytes_per_mac=None)
    monkeypatch.setattr(targets, "TARGETS", (*targets.TARGETS[:-1], cuda))
    result = rewritten(
        """g (float[4,4] x, float[4,4] w) => (float[4,4] y)
        <float one = {1}, float half = {0.5}, float root = {1.4142135}> {
          h = MatMul(x, w) a = Div(h, root) e = Erf(a) s = Add(e, one) m = Mul(h, s)
          g = Mul(m, half) y = MatMul(g, w) }""",
        target="fast",
    )
    assert low_operators(result) == ["MatMul", "MatMul"]


def test_the_shipped_table_of_openvino_decides() -> None:
    model = parse(
        """g (float[64,128,384] x, float[384] s) => (float[64,128,384] y) {
        a = LayerNormalization(x, s) h = MatMul(a, w) y = LayerNormalization(h, s) }"""
    )
    weight = np.full((384, 384), 0.01, np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    result = amp.rewrite(model, precision="bfloat16", target="openvino")
    # Low, the second normalization would save a cast of what the product makes, and round twice.
    assert low_operators(result) == ["MatMul"]


def test_constants_behind_a_product_cost_nothing_in_its_type() -> None:
    text = (
        "g (float[1,128,28,28] x) => (float[1,32,28,28] y) { c = Conv(x, k) "
        "b = BatchNormalization(c, s, s, s, s) a = Add(b, o) r = Relu(a) "
        "y = Conv<pads = [1, 1, 1, 1]>(r, l) }"
    )
    shapes = {"k": (128, 128, 1, 1), "s": (128,), "o": (128, 1, 1), "l": (32, 128, 3, 3)}
    model = parse(text)
    model.opset_import[0].version = 22
    model.graph.initializer.extend(
        numpy_helper.from_array(np.full(shape, 0.01, np.float32), name)
        for name, shape in shapes.items()
    )
    report = amp.convert(model, target="openvino", precision="bfloat16").report
    kept = {n.op for n in report.nodes for v in n.variables.values() if v.dtype == "float32"}
    assert not kept & {"BatchNormalization", "Add", "Relu"}


NORMS = {
    "a normalization": "{0} = BatchNormalization({1}, s, s, s, s)",
    "an offset": "{0} = Add({1}, o)",
    "both": "{0}m = BatchNormalization({1}, s, s, s, s) {0} = Add({0}m, o)",
}


def with_weights(text: str, shapes: Mapping[str, tuple[int, ...]]) -> onnx.ModelProto:
    model, draw = parse(text), np.random.default_rng(0)
    model.opset_import[0].version = 22
    for name, shape in shapes.items():
        held = draw.uniform(0.01, 0.02, shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(held, name))
    return model


def float32_nodes(model: onnx.ModelProto) -> tuple[set[str], int]:
    """Return the nodes that stay float32 on OpenVINO, and how many Casts are added."""
    report = amp.rewrite(model, precision="bfloat16", target="openvino").report
    kept = {n.name for n in report.nodes for v in n.variables.values() if v.dtype == "float32"}
    return kept, report.summary.casts_added


def residual_blocks(norm: str, add: str, idle: str) -> onnx.ModelProto:
    """Return three blocks of two convolutions around which a tensor goes."""
    body, given, shapes = "", "x", {"s": (64,), "o": (64, 1, 1)}
    for block in "pqr":
        shapes |= {f"{block}k": (64, 64, 3, 3), f"{block}l": (64, 64, 3, 3)}
        body += f"""{block}a = Conv<pads = [1, 1, 1, 1]>({given}, {block}k)
            {block}b = Relu({block}a)
            {block}c = Conv<pads = [1, 1, 1, 1]>({block}b, {block}l)
            {norm.format(f"{block}d", f"{block}c")} {block}e = {idle.format(f"{block}d")}
            {block}f = {add}({block}{"e" if idle else "d"}, {given}) {block} = Relu({block}f) """
        given = block
    if not idle:
        body = re.sub(r"\we = (?=\s)", "", body)
    return with_weights(
        f"g (float[1,64,56,56] x) => (float[1,64,56,56] y) {{ {body} y = Sigmoid(r) }}", shapes
    )


@pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)
@pytest.mark.parametrize("add", ["Add", "Sum"])
@pytest.mark.parametrize("idle", ["", "Identity({})", "Cast<to = 1>({})"])
def test_a_tensor_that_a_convolution_adds_is_low_with_it(norm: str, add: str, idle: str) -> None:
    kept, casts = float32_nodes(residual_blocks(norm, add, idle))
    assert not {
        name for name in kept if name.partition("_")[0] in (add, "Conv", "Identity", "Cast")
    }
    assert casts <= 2


def test_a_tensor_that_is_added_to_a_product_with_a_bias_stays_float32() -> None:
    model = with_weights(
        """g (float[256,384] x) => (float[256,384] y) {
        a = MatMul(x, w) b = Add(a, c) d = Add(b, x) e = MatMul(d, v) f = Add(e, c) g = Add(f, d)
        h = MatMul(g, u) y = Add(h, c) }""",
        {"w": (384, 384), "v": (384, 384), "u": (384, 384), "c": (384,)},
    )
    kept, _ = float32_nodes(model)
    assert {"Add_2", "Add_5"} <= kept
    assert not kept & {"MatMul_0", "MatMul_3", "MatMul_6"}
