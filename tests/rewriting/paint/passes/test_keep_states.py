"""What the pass says of states, and whom it obeys."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from pass_marks import context_of, marks_of, model_of
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.rewriting.paint.passes.keep_states import keep_states

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
    return set(marks_of(keep_states, context_of(model(text, **constants))))


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
    ],
)
def test_a_loop_of_a_few_turns_is_left_alone(text: str, is_kept: bool) -> None:
    found = kept(text, eight=np.array(8), nine=np.array([9]))
    assert found == ({"last", "n"} if is_kept else set())


def test_a_scan_of_unknown_rank_may_go_round_often() -> None:
    text = f"""{OPSET_17} g (float[T,1,4] us, int64[K] k) => (float[1,4] last) {{
        vs = Reshape(us, k)
        last = Scan<num_scan_inputs = 1, body = turn (float[1,4] x, float[1,4] e)
        => (float[1,4] n) {{ n = Add(x, e) }}>(first, vs) }}"""
    assert kept(text) == {"last", "n"}


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
    "a gate that is moved": "f = Sigmoid(e) g = Identity(f) p = Mul(x, g) n = Add(p, e)",
    "one less a gate": "f = Sigmoid(e) g = Sub(one, f) p = Mul(x, g) n = Add(p, e)",
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


def test_what_reads_the_last_state_carries_nothing() -> None:
    text = scan(MOVES_ON).replace("(float[1,4] last)", "(float[1,4] y)")
    assert kept(text[: text.rindex("}")] + "m = Add(last, z) y = Mul(m, z) }") == {"last", "n"}
