"""What the pass says of states, and whom it obeys."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from pass_marks import context_of, marks_of, model_of
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.graph.metadata_keys import PART_KEY
from amp_rewrite.rewriting.paint.passes.keep_states import KeepStates

SOURCE = """g (float[T,4] u, float[4] first) => (float[4] last, float[T,4] y)
    <float[4,4] a = {0.9, 0, 0, 0, 0, 0.9, 0, 0, 0, 0, 0.9, 0, 0, 0, 0, 0.9}> {
    last, y = Scan<num_scan_inputs = 1, body = turn (float[4] x, float[4] e)
    => (float[4] n, float[4] z) {
        [next] p = MatMul(a, x) [sum] n = Add(p, e) [read] z = MatMul(a, n) }>(first, u) }"""


def marks(source: str = SOURCE, **options: Any) -> dict[str, tuple[str, str | None]]:
    """Return, by node with one type variable, its reason and what is said of it."""
    nodes = amp.rewrite(parse(source), target="schema", **options).report.nodes
    found = {n.name: next(iter(n.variables.values())) for n in nodes if len(n.variables) == 1}
    return {name: (v.reason, v.detail) for name, v in found.items()}


def test_the_loop_is_named() -> None:
    found = marks()
    reason, detail = found["next"]
    assert reason == "carried-state"
    assert "Scan" in str(detail)
    assert found["sum"] == found["next"]
    assert found["read"][0] == "allow-list"


def test_a_node_that_the_user_allows_is_not_kept() -> None:
    assert marks(allow_nodes=["next"])["next"][0] == "allow-list"


def test_force_all_keeps_nothing() -> None:
    assert "carried-state" not in {reason for reason, _ in marks(level="UNSAFE_FORCE_ALL").values()}


def test_a_state_that_is_gated_may_be_rounded() -> None:
    gated = SOURCE.replace(
        "[next] p = MatMul(a, x)", "h = MatMul(a, e) g = Sigmoid(h) [next] p = Mul(g, x)"
    )
    assert marks(gated)["next"][0] != "carried-state"
    assert marks(gated.replace("Sigmoid", "Softplus"))["next"][0] == "carried-state"


NUMBERS = {
    "first": np.ones((1, 4)),
    "a": np.arange(16.0).reshape(4, 4) / 16,
    "one": 1.0,
    "half": 0.5,
    "nought": np.array(False),
    "gates": np.linspace(0, 1, 4),
}
MOVES_ON = "n = Add(x, e)"
OPSET_17 = '<ir_version: 8, opset_import: ["" : 17]>'


def scan(body: str, length: int | str = "T", attributes: str = "", opset: str = OPSET_17) -> str:
    """Return a model with a Scan whose body makes n, the next state, of x and of e."""
    return f"""{opset} g (float[{length},1,4] us, float[1,4] z) => (float[1,4] last) {{
        last = Scan<num_scan_inputs = 1, {attributes} body = turn (float[1,4] x, float[1,4] e)
        => (float[1,4] n) {{ {body} }}>(first, us) }}"""


def loop(body: str, count: str = "T", inputs: str = "int64 T, float[1,4] z") -> str:
    """Return a model with a Loop whose body makes n, the next state, of x."""
    return f"""{OPSET_17} g ({inputs}) => (float[1,4] last) {{
        last = Loop<body = turn (int64 i, bool go, float[1,4] x) => (bool on, float[1,4] n)
        {{ {body} on = Identity(go) }}>({count}, yes, first) }}"""


def model(text: str, **constants: Any) -> onnx.ModelProto:
    """Return a model with those of some constants that it reads."""
    given = {"yes": np.array(True), **NUMBERS, **constants}
    return model_of(text, **given)


def kept(text: str, /, **constants: Any) -> set[str]:
    """Return what the nodes make that the pass keeps in float32."""
    return set(marks_of(KeepStates(), context_of(model(text, **constants))))


# How often a loop goes round.


@pytest.mark.parametrize(
    ("text", "is_kept"),
    [
        (scan(MOVES_ON, 8), False),
        (scan(MOVES_ON, 9), True),
        (scan(MOVES_ON, "T"), True),
        (scan(MOVES_ON, 8, "scan_input_axes = [1],"), True),
        (loop("n = Add(x, x)", "eight"), False),
        (loop("n = Add(x, x)", "nine"), True),
        (loop("n = Add(x, x)", "T"), True),
        (loop("n = Add(x, x)", '""', "float[1,4] z"), True),
    ],
)
def test_a_loop_of_a_few_turns_is_left_alone(text: str, is_kept: bool) -> None:
    found = kept(text, eight=np.array(8), nine=np.array([9]))
    assert found == ({"last", "n"} if is_kept else set())


@pytest.mark.parametrize(("batch", "turns", "is_kept"), [(9, 8, False), (2, 9, True)])
def test_the_first_axis_of_an_old_scan_is_one_of_batches(
    batch: int, turns: int, is_kept: bool
) -> None:
    text = f"""<ir_version: 4, opset_import: ["" : 8]>
        g (float[{batch},{turns},4] us, float[{batch},4] first) => (float[{batch},4] last) {{
        last = Scan<num_scan_inputs = 1, body = turn (float[4] x, float[4] e) => (float[4] n)
        {{ n = Add(x, e) }}>("", first, us) }}"""
    assert kept(text) == ({"last", "n"} if is_kept else set())


def test_a_loop_without_a_number_of_turns_may_go_round_often() -> None:
    text = loop("n = Add(x, x)", '""', "float[1,4] z")
    assert kept(text[: text.rindex("}")] + "k = Constant<value_int = 3>() }") == {"last", "n"}


def test_a_scan_of_unknown_rank_may_go_round_often() -> None:
    text = f"""{OPSET_17} g (float[T,1,4] us, int64[K] k) => (float[1,4] last) {{
        vs = Reshape(us, k)
        last = Scan<num_scan_inputs = 1, body = turn (float[1,4] x, float[1,4] e)
        => (float[1,4] n) {{ n = Add(x, e) }}>(first, vs) }}"""
    assert kept(text) == {"last", "n"}


def test_a_loop_that_is_left_alone_does_not_hide_the_next_one() -> None:
    text = """g (float[4,4] us, float[T,4] vs) => (float[4] k, float[4] l) {
        k = Scan<num_scan_inputs = 1, body = t (float[4] x, float[4] e) => (float[4] n)
        { n = Add(x, e) }>(gates, us)
        l = Scan<num_scan_inputs = 1, body = s (float[4] v, float[4] f) => (float[4] m)
        { m = Add(v, f) }>(gates, vs) }"""
    assert kept(text) == {"l", "m"}


def test_a_loop_of_gradients_is_painted_as_its_forward_loop_is() -> None:
    held = model(scan(MOVES_ON))
    held.graph.node[0].metadata_props.add(key=PART_KEY, value="gradient")
    assert not marks_of(KeepStates(), context_of(held))


def test_two_loops_are_named_each_for_its_own() -> None:
    text = """g (float[T,4] us, float[T,4] vs) => (float[4] k, float[4] l) {
        [one] k = Scan<num_scan_inputs = 1, body = t (float[4] x, float[4] e) => (float[4] n)
        { n = Add(x, e) }>(gates, us)
        [two] l = Scan<num_scan_inputs = 1, body = s (float[4] v, float[4] f) => (float[4] m)
        { m = Add(v, f) }>(gates, vs) }"""
    found = marks_of(KeepStates(), context_of(model(text)))
    assert {value: str(mark.detail).split()[3] for value, mark in found.items()} == {
        **dict.fromkeys("kn", "one"),
        **dict.fromkeys("lm", "two"),
    }


# What carries a state, and what does not.

UNBOUNDED = {
    "a sum": ("n = Add(x, e)", "n"),
    "a difference": ("n = Sub(e, x)", "n"),
    "a factor": ("p = Mul(x, half) n = Add(p, e)", "pn"),
    "its square": ("n = Mul(x, x)", "n"),
    "a product": ("p = MatMul(x, a) n = Add(p, e)", "pn"),
    "a product with what it was moved to": (
        "t = Transpose(x) p = MatMul(x, t) n = Mul(x, p)",
        "tpn",
    ),
    "a quotient by a number": ("d = Div(x, half) n = Add(d, e)", "dn"),
    "a quotient by what is given": ("d = Div(x, z) n = Add(d, e)", "dn"),
    "through a CastLike": ("c = CastLike(x, e) n = Add(c, e)", "cn"),
    "a mean": ("n = Mean(x, e)", "n"),
    "rectified behind it": ("p = MatMul(x, a) s = Add(p, e) n = Relu(s)", "psn"),
    "the largest": ("s = Add(x, e) n = Max(s, e)", "sn"),
    "a rectified copy beside": ("r = Relu(x) p = MatMul(r, a) s = Add(x, p) n = Add(s, e)", "sn"),
    "a sum of two parts": (
        "f, g = Split<axis = 1>(x) c = Concat<axis = 1>(g, f) n = Add(c, e)",
        "fcn",
    ),
    "what is read besides": ("n = Add(x, e) k = Exp(x) l = MatMul(n, a)", "n"),
    "a gate of what no data have a part in": (
        "g = Sigmoid(gates) p = Mul(g, x) n = Add(p, e)",
        "pn",
    ),
    "a gate of what numbers make": (
        "k = Mul(gates, half) l = Exp(k) g = Sigmoid(l) p = Mul(g, x) n = Add(p, e)",
        "pn",
    ),
    "a gate that is added": ("g = Sigmoid(e) n = Add(g, x)", "n"),
    "a positive function": ("g = Softplus(e) p = Mul(g, x) n = Add(p, e)", "pn"),
    "two gates, added": ("f = Sigmoid(e) g = Add(f, f) p = Mul(g, x) n = Add(p, e)", "pn"),
    "a gate less one": ("f = Sigmoid(e) g = Sub(f, one) p = Mul(g, x) n = Add(p, e)", "pn"),
    "what is given less a gate": ("f = Sigmoid(e) g = Sub(z, f) p = Mul(g, x) n = Add(p, e)", "pn"),
    "a gate beside others": (
        "f = Sigmoid(e) g = Concat<axis = 0>(f, e) p = Mul(g, x) "
        "n = ReduceSum<keepdims = 1>(p, nil)",
        "pn",
    ),
}
BOUNDED = {
    "a gate": "g = Sigmoid(e) p = Mul(g, x) n = Add(p, e)",
    "a gate in front": "g = Sigmoid(e) p = Mul(x, g) n = Add(p, e)",
    "a hard gate": "g = HardSigmoid(e) p = Mul(x, g) n = Add(p, e)",
    "shares": "g = Softmax(e) p = Mul(x, g) n = Add(p, e)",
    "a gate that is moved": "f = Sigmoid(e) g = Identity(f) p = Mul(x, g) n = Add(p, e)",
    "one less a gate": "f = Sigmoid(e) g = Sub(one, f) p = Mul(x, g) n = Add(p, e)",
    "a gate of what is given": "g = Sigmoid(z) p = Mul(x, g) n = Add(p, e)",
    "a gate of the state": "g = Sigmoid(x) p = Mul(x, g) n = Add(p, e)",
    "a gate of numbers and data": "k = Add(gates, e) g = Sigmoid(k) p = Mul(x, g) n = Add(p, e)",
    "a bounded function": "s = Add(x, e) n = Tanh(s)",
    "a divisor": "d = Div(e, x) n = Add(d, e)",
    "divided by its norm": "r = ReduceL2<axes = [-1]>(x) d = Div(x, r) n = Add(d, e)",
    "divided by a later norm": "s = Add(x, e) r = ReduceL2<axes = [-1]>(s) n = Div(s, r)",
    "a product behind a rectifier": "r = Relu(x) p = MatMul(r, a) n = Add(p, e)",
    "layers": "p = MatMul(x, a) r = Clip(p) n = MatMul(r, a)",
    "a power": "p = Pow(x, half) n = Add(p, e)",
    "a state that stays": "n = Identity(x)",
    "a state that is replaced": "n = Identity(e)",
    "what is picked": "n = Max(x, e)",
}


@pytest.mark.parametrize("name", UNBOUNDED)
def test_what_arithmetic_carries_stays_float32(name: str) -> None:
    body, nodes = UNBOUNDED[name]
    assert kept(scan(body), nil=np.array([0])) == {"last", *nodes}


@pytest.mark.parametrize("name", BOUNDED)
def test_what_is_bounded_may_be_low(name: str) -> None:
    assert not kept(scan(BOUNDED[name]))


def test_a_state_is_followed_through_branches() -> None:
    branches = """n = If(nought) <then_branch = t () => (float[1,4] i) { i = Add(x, e) },
        else_branch = o () => (float[1,4] j) { k = Exp(x) j = Identity(e) }>"""
    assert kept(scan(branches)) == {"last", "n", "i"}


def test_a_bent_state_is_followed_through_branches() -> None:
    branches = """r = Relu(x) b = If(nought) <then_branch = t () => (float[1,4] i)
        { i = Add(r, e) }, else_branch = o () => (float[1,4] j) { j = Identity(e) }>"""
    assert kept(scan(f"{branches} n = Add(b, e)")) == {"last", *"rbin"}
    assert not kept(scan(f"{branches} p = MatMul(b, a) n = Add(p, e)"))


def test_what_reads_the_last_state_carries_nothing() -> None:
    text = scan(MOVES_ON).replace("(float[1,4] last)", "(float[1,4] y)")
    assert kept(text[: text.rindex("}")] + "m = Add(last, z) y = Mul(m, z) }") == {"last", "n"}


def test_of_two_states_the_one_that_nothing_bounds_stays() -> None:
    text = """g (float[T,4] us) => (float[4] k, float[4] l) {
        k, l = Scan<num_scan_inputs = 1, body = t (float[4] x, float[4] h, float[4] e)
        => (float[4] n, float[4] m) { n = Add(x, e) p = Mul(h, half) s = Add(p, x) m = Tanh(s) }>
        (gates, gates, us) }"""
    found = kept(text)
    assert {"n", "k"} <= found
    assert found.isdisjoint({"p", "s", "m"})


def test_states_that_make_each_other_stay() -> None:
    text = """g (float[T,4] us) => (float[4] k, float[4] l) {
        k, l = Scan<num_scan_inputs = 1, body = t (float[4] x, float[4] h, float[4] e)
        => (float[4] n, float[4] m) { n = Add(h, e) m = Mul(x, half) o = Mul(x, h) }>
        (gates, gates, us) }"""
    assert kept(text) == {"k", "n", "m"}


def test_the_norm_of_another_state_bounds_a_quotient_too() -> None:
    text = f"""{OPSET_17} g (float[T,4] us) => (float[4] k, float[4] l) {{
        k, l = Scan<num_scan_inputs = 1, body = t (float[4] x, float[4] h, float[4] e)
        => (float[4] n, float[4] m) {{ s = Add(x, e) r = ReduceL2<axes = [-1]>(h) n = Div(s, r)
        m = Tanh(h) }}>(gates, gates, us) }}"""
    assert not kept(text)


@pytest.mark.parametrize(
    ("quotient", "nodes"),
    [
        ("n = Div(x, z)", "n"),
        ("k = Exp(z) n = Div(x, k)", "n"),
        ("k = Sigmoid(z) n = Div(x, k)", "n"),
        ("n = Div(x, half)", "n"),
        ("n = Div(z, x)", ""),
        ("k = Exp(x) n = Div(x, k)", ""),
        ("k = Exp(x) l = Add(k, z) n = Div(x, l)", ""),
    ],
)
def test_a_quotient_by_the_state_alone_is_bounded(quotient: str, nodes: str) -> None:
    assert kept(loop(quotient)) == ({"last", *nodes} if nodes else set())


@pytest.mark.parametrize("divisor", ["e", "k"])
def test_what_a_scan_reads_at_a_turn_is_no_state(divisor: str) -> None:
    text = f"""g (float[T,4] us) => (float[4] last) {{
        last = Scan<num_scan_inputs = 1, body = t (float[4] x, float[4] e) => (float[4] n)
        {{ k = Exp(e) n = Div(x, {divisor}) }}>(gates, us) }}"""
    assert kept(text) == {"last", "n"}
