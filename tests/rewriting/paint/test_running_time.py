"""What vertices, casts and pairs take by a table of costs, counted by hand."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from rewrite_text import lists_of, parse

from amp_rewrite.dtypes import FLOAT16, FLOAT32
from amp_rewrite.graph.flat import Array
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.kernels import cost_files as costs
from amp_rewrite.rewriting.paint.running_time import UNIT, RunningTime
from amp_rewrite.rewriting.paint.weighing import Weighing
from amp_rewrite.rewriting.plan.options import RewriteOptions
from amp_rewrite.rewriting.plan.paint_context import paint_context

FAMILIES = {
    "product": ["MatMul", "Conv"],
    "plain": ["Add", "Mul", "Sub", "Relu", "Split"],
    "low": ["Tanh"],
}
RATES = (
    *(("product", "float32", 10, 1, 0.5), ("product", "float16", 6, 0.5, 0.25)),
    *(("plain", "float32", 2, 0.25, 0), ("plain", "float16", 1, 0.125, 0)),
    ("low", "float16", 1, 0, 0),
)
CASTS = (
    *(("float16", "none", "product", 3, 0.5), ("float16", "*", "*", 1, 0.25)),
    *(("float32", "product", "*", 7, 0), ("float32", "none", "plain", 4, 0)),
    ("float32", "*", "*", 5, 0),
)
SAVES = {"float32": {"call": 1, "element": 0.25}, "float16": {"call": 0.5, "element": 0.125}}
"""Microseconds: a MatMul of (2, 4) by (4, 4) takes 10 + 32 + 16 in float32, a Relu 2 + 4."""


def table(**more: Any) -> dict[str, Any]:
    """Return a table of costs."""
    return {
        "version": 1,
        "runtime": "none",
        "device": "none",
        "source": "this test",
        "provider": "none",
        "driver": "",
        "families": FAMILIES,
        "costs": [
            dict(zip(("family", "type", "call", "element", "mac"), row, strict=True))
            for row in RATES
        ],
        "casts": [
            dict(zip(("to", "producer", "consumer", "call", "element"), row, strict=True))
            for row in CASTS
        ],
        "joins": [
            {"producer": family, "consumer": "plain", "saves": SAVES}
            for family in ("product", "low", "plain")
        ],
        **more,
    }


class Named:
    """The arrays of a RunningTime, by the names of values; a vertex is named by its first result.

    Times are microseconds; zeros of vertices are left out.
    """

    def __init__(
        self,
        text: str,
        *,
        data: dict[str, Any] | None = None,
        cut: str = "",
        kept: tuple[str, ...] = (),
        **options: Any,
    ) -> None:
        given: dict[str, Any] = {"target": "schema", **options}
        chosen = RewriteOptions(**given)
        context = paint_context(read_flat(parse(text)), lists_of("float16"), chosen)
        graph = context.type_graph
        marks: dict[int, Any] = {
            int(graph.source[value]): None
            for value, name in enumerate(graph.flat.value_names)
            if name in kept
        }
        context = replace(context, cut={cut: "factor"} if cut else {}, excluded=marks)
        weighing = Weighing(
            costs.parse(data or table(), "t"), chosen.preference, context.type_graph.flat
        )
        self.time, self.flat = RunningTime(context, weighing), context.type_graph.flat
        of_nodes = [self.flat.value_names[self.flat.outputs_of(n)[0]] for n in self.all_nodes]
        self.nodes, self.n_vertices = of_nodes, len(context.type_graph)
        self.names = [*(of_nodes[n] for n in context.type_graph.nodes), "float32", "low"]

    @property
    def all_nodes(self) -> range:
        return range(self.flat.n_nodes)

    def times(self) -> dict[str, tuple[float, float]]:
        """What vertices take in float32 and in float16."""
        both = zip(*(self.time.times(dtype).tolist() for dtype in (FLOAT32, FLOAT16)), strict=True)
        return {
            self.names[vertex]: (full / UNIT, low / UNIT)
            for vertex, (full, low) in enumerate(both)
            if full or low
        }

    def of_nodes(self) -> dict[str, float]:
        taken = self.time.of_nodes.tolist()
        return {name: ps / UNIT for name, ps in zip(self.nodes, taken, strict=True) if ps}

    def flows(self) -> list[str]:
        """Value, maker and reader, in one text: "x: float32 > y"."""
        flows, named = self.time.flows, self.flat.value_names
        rows = zip(flows.values, flows.makers, flows.readers, strict=True)
        return [f"{named[v]}: {self.names[m]} > {self.names[r]}" for v, m, r in rows]

    def casts(self) -> dict[str, tuple[float, float]]:
        """What Casts to float16 and to float32 take, by value."""
        flows = self.time.flows
        taken: list[Array] = [self.time.casts(dtype) / UNIT for dtype in (FLOAT16, FLOAT32)]
        columns = zip(flows.values[flows.first], *(t.tolist() for t in taken), strict=True)
        return {self.flat.value_names[value]: (down, up) for value, down, up in columns}

    def joins(self) -> dict[str, tuple[float, float, bool]]:
        """What pairs save in float32 and in float16, and whether they are folded."""
        j = self.time.joins
        columns = (j.makers, j.readers, j.float32 / UNIT, j.low / UNIT, j.folded)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return {f"{self.names[m]} {self.names[r]}": tuple(rest) for m, r, *rest in rows}

    def idle(self) -> list[str]:
        return [f"{self.names[a]} {self.names[b]}" for a, b in self.time.idle]

    def raised(self) -> dict[str, float]:
        return {self.names[vertex]: ps / UNIT for vertex, ps in self.time.raised()}

    def constants(self) -> dict[str, int]:
        held = zip(self.flat.value_names, self.time.constants.tolist(), strict=True)
        return {name: elements for name, elements in held if elements}

    def steady(self) -> str:
        """The vertices of which all inputs but one are the same in every run."""
        vertices = range(self.n_vertices)
        return " ".join(self.names[v] for v in vertices if self.time.reads_one_value(v))

    def together(self) -> list[str]:
        return [
            " ".join(self.nodes[node] for node in nodes) for nodes in self.time.measured_together()
        ]


GIVEN = "g (float[2,4] x) => (float[2,4] y)"
ONES = ",".join(["1"] * 16)
WEIGHTS = f"float[4,4] w = {{{ONES}}}, float[4] b = {{1,1,1,1}}"
HELD = f"{GIVEN} <{WEIGHTS}>"

SPLIT = f"""g (float[2,4] x, float[4,4] v) => (float[2,4] y, float[2,4] a) <{WEIGHTS}> {{
  p = MatMul(x, w) a = Add(p, b) r = Relu(a) i = Identity(r) q = MatMul(i, v)
  s, t = Split<axis = 1, num_outputs = 2>(q) u = Concat<axis = 1>(s, t) y = Tanh(u) }}"""

CAST = """g (float[2,4] x, float16[2,4] h) => (float[2,4] y) {
  f = Cast<to = 1>(h) a = Add(x, f) l = Cast<to = 10>(a) m = Relu(l) y = Cast<to = 1>(m) }"""

BRANCHES = """g (float[2,4] x, bool c) => (float[2,4] y) { a = Relu(x) y = If(c) <
  then_branch = t () => (float[2,4] m) { m = Relu(a) },
  else_branch = e () => (float[2,4] n) { n = Identity(a) }> }"""

RANDOM = """g (float[2,4] x, bool c) => (float[2,4] y) <float[4] b = {1, 1, 1, 1}> { w = If(c) <
  then_branch = t () => (float[4,4] m) { m = RandomNormal<shape = [4, 4]>() },
  else_branch = e () => (float[4,4] n) { n = RandomNormal<shape = [4, 4]>() }>
  p = MatMul(x, w) y = Add(p, b) }"""

CHAIN = HELD + " { p = MatMul(x, w) a = Add(p, b) c = Mul(a, b) r = Relu(c) y = Sub(r, b) }"

MEASURED = {
    "model": {"nodes": 4, "digest": "0"},
    "nodes": [
        {"result": "a", "float32": 3, "float16": 2},
        {"result": "c", "float32": 5, "float16": 4},
        {"result": "x", "float32": 1, "float16": 1},
        {"result": "b", "float32": 1, "float16": 1},
        {"result": "y", "float32": 9},
    ],
    "together": [["a", "c"], ["y", "c"], ["p"]],
}


def test_a_node_counts_once_with_what_it_reads_and_writes() -> None:
    named = Named(SPLIT)
    product, relu = (58.0, 30.0), (6.0, 3.0)
    assert named.times() == {"p": product, "a": (7.0, 3.5), "r": relu, "q": product, "s": relu}
    assert named.of_nodes() == {"p": 58.0, "a": 7.0, "r": 6.0, "q": 58.0, "s": 6.0}
    assert named.constants() == {"w": 16, "b": 4}
    assert named.steady() == "p a r i s y"
    assert Named(CAST).of_nodes() == {"a": 8.0, "m": 6.0}  # m is of float16


def test_what_picks_some_of_a_tensor_reads_no_more_than_it_writes() -> None:
    text = """g (float[64,4] x, int64[2] i) => (float[2,4] y, float[3,4] s)
      <int64[1] b = {0}, int64[1] e = {3}> { y = Gather(x, i) s = Slice(x, b, e, b) }"""
    picking = table(families={**FAMILIES, "plain": ["Gather", "Slice"]})
    assert Named(text, data=picking).of_nodes() == {"y": 2 + 16 / 4, "s": 2 + 24 / 4}


def test_flows_lead_past_what_is_idle() -> None:
    assert Named(SPLIT).flows() == [
        *("x: float32 > p", "v: float32 > q", "w: float32 > p", "b: float32 > a"),
        *("p: p > a", "a: a > r", "a: a > float32", "r: r > q", "q: q > s"),
        *("s: s > u", "t: s > u", "u: u > y", "y: y > float32"),
    ]
    assert Named(SPLIT).time.flows.group.tolist() == [0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10, 11]
    assert Named(SPLIT).idle() == ["r i"]
    assert Named(BRANCHES).flows() == [
        *("x: float32 > a", "a: a > y", "a: a > m", "y: y > float32", "m: m > y")
    ]
    assert Named(BRANCHES).idle() == ["a n"]


def test_what_casts_of_the_model_read_ends_low_and_what_they_make_is_saved() -> None:
    named = Named(CAST)
    assert named.flows() == ["x: float32 > a", "f: f > a", "a: a > low", "y: y > float32"]
    assert named.raised() == {"f": 4.0, "y": 5.0}
    assert named.times() == {"a": (8.0, 4.0)}
    assert named.idle() == []


def test_a_value_that_is_cast_ends_low_wherever_it_stands() -> None:
    named = Named(
        """g (float[2,4] x) => (float[2,4] y) { a = Relu(x) b = Relu(a) c = Relu(b) d = Relu(c)
          l = Cast<to = 10>(d) m = Relu(l) y = Cast<to = 1>(m) }"""
    )
    assert named.flows()[-3:] == ["c: c > d", "d: d > low", "y: y > float32"]


@pytest.mark.parametrize("kept", ["r", "i"])
def test_what_is_kept_in_float32_is_not_idle(kept: str) -> None:
    named = Named(SPLIT, kept=(kept,))
    assert named.idle() == []
    assert "r: r > i" in named.flows()


def test_casts_among_other_types_are_no_flows_and_a_cast_that_casts_nothing_is_idle() -> None:
    named = Named(
        """g (float[2,4] x, double[2,4] d) => (int64[2,4] k, float16[2,4] h, bfloat16[2,4] u,
          float[2,4] y) {
          a = Relu(x) u = Cast<to = 16>(a) i = Cast<to = 7>(a) j = Identity(i) k = Identity(j)
          h = Cast<to = 10>(d) f = Cast<to = 1>(j) c = Cast<to = 1>(a)
          b = Identity(c) y = Relu(b) }"""
    )
    assert named.idle() == ["a c", "c b"]
    assert named.flows() == ["x: float32 > a", "a: a > y", "y: y > float32"]
    assert named.raised() == {}


def test_what_hands_on_a_state_of_a_loop_is_not_idle() -> None:
    named = Named(
        """g (float[2,4] x, int64 k, bool c) => (float[2,4] y) { y = Loop(k, c, x) <
          body = b (int64 n, bool e, float[2,4] s) => (bool f, float[2,4] r) {
            f = Identity(e) t = Identity(s) r = Relu(t) }> }"""
    )
    assert named.idle() == []


def test_ends_that_become_low_are_low() -> None:
    named = Named(f"{GIVEN} {{ y = Relu(x) }}", keep_io_types=False)
    assert named.flows() == ["x: low > y", "y: y > low"]
    assert named.casts() == {"x": (3.0, 4.0), "y": (3.0, 5.0)}


def test_a_cast_takes_what_the_dearest_of_its_readers_says() -> None:
    assert Named(SPLIT).casts() == {
        "x": (7.0, 5.0),
        "v": (11.0, 5.0),
        "w": (0.0, 0.0),
        "b": (0.0, 0.0),
        "p": (3.0, 7.0),
        "a": (3.0, 5.0),
        "r": (3.0, 5.0),
        "q": (3.0, 7.0),
        "s": (2.0, 5.0),
        "t": (2.0, 5.0),
        "u": (3.0, 5.0),
        "y": (3.0, 5.0),
    }
    both = "g (float[2,4] x) => (float[2,4] y, float[2,4] p) <"
    assert Named(f"{both}{WEIGHTS}> {{ y = Relu(x) p = MatMul(x, w) }}").casts()["x"] == (7.0, 5.0)
    assert Named(f"{GIVEN} {{ y = Relu(x) }}").casts()["x"] == (3.0, 4.0)


def test_a_view_is_cast_as_what_it_shows() -> None:
    views = f"""g (float[2,4] x) => (float[8] y) <{WEIGHTS}, int64[1] s = {{8}}, int64[1] o = {{0}}>
      {{ p = MatMul(x, w) r = Reshape(p, s) i = Unsqueeze(r, o) j = Squeeze(i, o) y = Exp(j) }}"""
    named = Named(views)
    assert [named.casts()[name][1] for name in "prijy"] == [7.0, 7.0, 7.0, 7.0, 5.0]
    assert named.joins() == {}
    assert named.steady() == "p r i j y"
    given = Named("g (float[2,4] x) => (float[8] y) { f = Flatten<axis = 0>(x) y = Relu(f) }")
    assert given.casts()["f"] == (3.0, 4.0)  # none, plain


@pytest.mark.parametrize(
    ("text", "joins"),
    [
        (SPLIT, {"p a": (7.0, 3.5, True), "q s": (3.0, 1.5, False)}),
        # constants behind a product are folded as far as no operator of another kind comes between
        (
            CHAIN,
            {
                "p a": (7.0, 3.5, True),
                "a c": (7.0, 3.5, True),
                "c r": (3.0, 1.5, False),
                "r y": (3.0, 1.5, False),
            },
        ),
        (HELD + "{ p = MatMul(x, w) y = Mul(p, p) }", {"p y": (3.0, 1.5, False)}),
        (HELD + "{ p = MatMul(x, w) r = Relu(p) q = Mul(p, p) y = Exp(r) }", {}),
        (
            HELD + "{ p = MatMul(x, w) q = MatMul(x, w) y = Add(q, p) }",
            {"p y": (3.0, 1.5, False)},  # the first that fits, and one alone
        ),
        (
            HELD + "{ t = Transpose(w) u = Exp(t) p = MatMul(x, u) c = Exp(b) y = Add(p, c) }",
            {"p y": (7.0, 3.5, True)},
        ),
        (RANDOM, {"p y": (3.0, 1.5, False)}),
        (
            f"g (float[2,4] x) => (float[2,4] y, float[4,4] r) <{WEIGHTS}> {{ t = Transpose(w) "
            "r = RandomNormal<shape = [4, 4]>() p = MatMul(x, t) y = Add(p, b) }",
            {"p y": (7.0, 3.5, True)},
        ),
        (
            f"{GIVEN} <float[16] f = {{{ONES}}}, int64[2] s = {{4, 4}}, float[4] b = {{1,1,1,1}}> "
            "{ w = Reshape(f, s) p = MatMul(x, w) y = Add(p, b) }",
            {"p y": (7.0, 3.5, True)},
        ),
        (  # what a caller may override is not the same in every run
            f"g (float[2,4] x, float[4,4] w) => (float[2,4] y) <{WEIGHTS}> "
            "{ p = MatMul(x, w) y = Add(p, b) }",
            {"p y": (3.0, 1.5, False)},
        ),
        (
            "g (float[2,4] x, float[4,4] v) => (float[2,4] y) <float[4] b = {1, 1, 1, 1}> "
            "{ p = MatMul(x, v) y = Add(p, b) }",
            {"p y": (3.0, 1.5, False)},
        ),
        (HELD + "{ a = Relu(x) y = Relu(a) }", {"a y": (3.0, 1.5, False)}),
        (
            HELD + "{ p = MatMul(x, w) r = Squeeze(p) y = Relu(r) }",
            {},  # a view is between them
        ),
        # what was not measured in both types takes nothing, so that there is nothing to save
        (HELD + "{ a = Tanh(x) y = Relu(a) }", {"a y": (0.0, 0.0, False)}),
    ],
)
def test_pairs_save_no_more_than_either_takes(text: str, joins: dict[str, Any]) -> None:
    assert Named(text).joins() == joins


@pytest.mark.parametrize("ends", [("plain", "none"), ("none", "plain")])
def test_ends_of_the_model_are_joined_with_nothing(ends: tuple[str, str]) -> None:
    row = {"producer": ends[0], "consumer": ends[1], "saves": SAVES}
    assert Named(f"{GIVEN} {{ y = Relu(x) }}", data=table(joins=[row])).joins() == {}


CONVOLVED = """g (float[1,4,2,2] x, float[4,4,1,1] k, float[4,4] w) => (float[1,4,4] y)
  <int64[3] s = {1, 4, 4}> { c = Conv(x, k) r = Reshape(c, s) t = Transpose<perm = [0, 2, 1]>(r)
    y = MatMul(t, w) }"""


@pytest.mark.parametrize(
    ("plain", "one_type", "moves"),
    [
        ((), (), {}),
        (("Transpose",), (), {"t": (10.0, 5.0)}),
        (("Transpose",), ("ChannelsLast",), {}),
        (("ChannelsFirst",), (), {"r": (10.0, 5.0)}),
        (("ChannelsLast",), (), {"t": (10.0, 5.0)}),
        (("ChannelsFirst", "ChannelsLast"), (), {"r": (10.0, 5.0), "t": (10.0, 5.0)}),
        (("ChannelsFirst", "ChannelsLast", "Transpose"), ("ChannelsLast",), {}),
    ],
)
def test_a_layout_takes_what_it_is_said_to(
    plain: tuple[str, ...], one_type: tuple[str, ...], moves: dict[str, Any]
) -> None:
    families = {**FAMILIES, "plain": [*FAMILIES["plain"], *plain]}
    named = Named(CONVOLVED, data=table(families=families, one_type=list(one_type)))
    product = (90.0, 46.0)
    assert named.times() == {"c": product, **moves, "y": product}


def test_what_was_measured_by_itself_takes_that() -> None:
    text = HELD + " { p = MatMul(x, w) a = Add(p, b) c = Exp(a) y = Relu(c) }"
    named = Named(text, data=table(**MEASURED))
    taken = {"p": (58.0, 30.0), "a": (3.0, 2.0), "c": (5.0, 4.0), "y": (6.0, 3.0)}
    assert named.times() == taken
    assert named.of_nodes() == {name: full for name, (full, _) in taken.items()}
    assert named.joins() == {"p a": (0.0, 0.0, True)}
    assert named.together() == ["a c"]


def test_a_fused_group_takes_what_its_pattern_does() -> None:
    text = f"""{GIVEN} <float one = {{1}}, float half = {{0.5}}, float root = {{1.4142135}}> {{
      h = Exp(x) i = Identity(h) a = Div(i, root) e = Erf(a) s = Add(e, one)
      m = Mul(i, s) g = Mul(m, half) y = Relu(g) }}"""
    alone = {"s": (6.25, 3.125), "m": (8.0, 4.0), "g": (6.25, 3.125), "y": (6.0, 3.0)}
    assert Named(text, target="cuda").times() == alone
    families = {**FAMILIES, "plain": [*FAMILIES["plain"], "Gelu"]}
    named = Named(text, data=table(families=families), target="cuda")
    assert named.times() == {"g": (6.0, 3.0), "y": (6.0, 3.0)}


def test_a_second_result_does_not_name_a_node() -> None:
    measured = {**MEASURED, "nodes": [{"result": "t", "float32": 3, "float16": 2}], "together": []}
    named = Named(SPLIT, data=table(**measured))
    assert named.times() == Named(SPLIT).times()
    assert named.together() == []


def test_what_multiplies_nothing_takes_no_products() -> None:
    families = {**FAMILIES, "product": ["MatMul", "Exp"]}
    named = Named(f"{GIVEN} {{ y = Exp(x) }}", data=table(families=families))
    assert named.times() == {"y": (10.0 + 16, 6.0 + 8)}


def test_constants_that_the_target_cuts_off_are_not_folded() -> None:
    computed = HELD + "{ p = MatMul(x, w) c = Exp(b) a = Mul(p, c) y = Add(a, b) }"
    folded = {"p a": (7.0, 3.5, True), "a c": (3.0, 1.5, False)}
    found = Named(CHAIN, cut="Mul").joins()
    assert {pair: found[pair] for pair in folded} == folded
    found = Named(computed, cut="Mul").joins()
    assert [pair for pair, (_, _, is_folded) in found.items() if is_folded] == ["p a", "a y"]


def test_a_family_without_operators_is_joined_with_nothing() -> None:
    row = {"producer": "plain", "consumer": "empty", "saves": SAVES}
    more = [*table()["joins"], row, {**row, "producer": "empty", "consumer": "plain"}]
    text = HELD + "{ a = Relu(x) y = Relu(a) }"
    data = table(joins=more, families={**FAMILIES, "empty": []})
    assert Named(text, data=data).joins() == Named(text).joins()


def test_a_node_of_several_types_counts_where_its_first_result_is_made() -> None:
    text = """g (float[2] i, float d, float[2] v) => (float[2, n] y) { y = OneHot(i, d, v) }"""
    named = Named(text, data=table(families={**FAMILIES, "plain": ["OneHot"]}))
    flows, y = named.time.flows, named.flat.value_names.index("y")
    assert named.n_vertices > 1
    counted = named.time.times(FLOAT32).nonzero()[0].tolist()
    assert counted == flows.makers[flows.values == y].tolist()


@pytest.mark.parametrize("name", ["makers", "readers"])
def test_flows_and_joins_stay_as_they_were_found(name: str) -> None:
    named = Named(SPLIT)
    for found in (named.time.flows, named.time.joins):
        assert found is not None
        with pytest.raises(FrozenInstanceError):
            setattr(found, name, None)


@pytest.mark.parametrize(
    ("kind", "taken"), [("float16", 6.0), ("double", 4.0), ("int64", 4.0), ("bool", 4.0)]
)
def test_only_elements_of_the_two_types_are_counted(kind: str, taken: float) -> None:
    text = f"g ({kind}[2,4] d) => (float[2,4] y) {{ y = Cast<to = 1>(d) }}"
    named = Named(text, data=table(families={**FAMILIES, "plain": ["Cast"]}))
    assert named.of_nodes() == {"y": taken}


def test_what_is_computed_of_constants_alone_is_not_folded() -> None:
    named = Named(HELD + "{ p = MatMul(w, w) a = Add(p, b) y = MatMul(x, a) }")
    assert named.joins() == {"p a": (5.0, 2.5, False)}
    assert named.steady() == "y"
