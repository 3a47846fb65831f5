"""Quotients of products of the same activations stay float32."""

from __future__ import annotations

import pytest
from rewrite_text import parse, rewritten

import amp_rewrite as amp

W = "float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}"


def kept(body: str, **options: object) -> set[str]:
    """Return the nodes that an estimate keeps in float32."""
    text = f"""g (float[4,4] x) => (float[4,4] y) <{W}> {{
        q = MatMul(x, w) k = MatMul(x, w) v = MatMul(x, w) {body} y = MatMul(o, w) }}"""
    nodes = rewritten(text, **options).report.nodes
    return {n.name for n in nodes if "likely-overflow" in {v.reason for v in n.variables.values()}}


LINEAR = """[kv] kv = MatMul(k, v) [num] n = MatMul(q, kv) [den] d = MatMul(q, k)
            [div] o = Div(n, d)"""


@pytest.mark.filterwarnings("ignore::amp_rewrite.AmpWarning")
def test_the_quotient_and_its_products_are_kept() -> None:
    assert kept(LINEAR) == {"kv", "num", "den", "div"}
    assert "kv" not in kept(LINEAR, allow_nodes=["kv"])


BETWEEN = {
    "behind the products": ("n = MatMul(q, kv) [neg] m = Neg(n) [div] o = Div(m, d)", "neg"),
    "below": ("n = MatMul(q, kv) [sum] e = Add(d, d) [div] o = Div(n, e)", "sum"),
    "in front of one": ("r = Relu(q) n = MatMul(r, kv) [div] o = Div(n, d)", ""),
}


@pytest.mark.filterwarnings("ignore::amp_rewrite.AmpWarning")
@pytest.mark.parametrize("name", BETWEEN)
def test_what_lies_between_products_and_quotient_is_kept(name: str) -> None:
    body, between = BETWEEN[name]
    products = "[kv] kv = MatMul(k, v) [den] d = MatMul(q, k) "
    assert kept(products + body.replace("n = MatMul", "[num] n = MatMul")) == {
        *("kv", "num", "den", "div", *between.split())
    }


def test_bfloat16_has_the_range() -> None:
    assert not kept(LINEAR, precision="bfloat16")


@pytest.mark.filterwarnings("ignore:.*has a product of 3:amp_rewrite.errors.AmpWarning")
@pytest.mark.parametrize(
    "body",
    [
        "[kv] kv = MatMul(k, v) [div] o = Div(kv, k)",
        "[kv] kv = MatMul(k, v) [num] n = MatMul(q, kv) s = Softmax(x) [div] o = Div(n, s)",
    ],
)
def test_other_quotients_are_low(body: str) -> None:
    assert not kept(body)


NUMBERS = "float one = {1}, float minus = {-1}, float half = {-0.5}, float small = {1e-6}"
PRODUCTS = "[kv] kv = MatMul(kt, v) [den] d = MatMul(q, k) "
SPELLINGS = {
    "a reciprocal": "[num] n = MatMul(q, kv) r = Reciprocal(d) o = Mul(n, r)",
    "one divided": "[num] n = MatMul(q, kv) r = Div(one, d) o = Mul(r, n)",
    "a power": "[num] n = MatMul(q, kv) r = Pow(d, minus) o = Mul(n, r)",
    "two roots": "[num] n = MatMul(q, kv) r = Pow(d, half) t = Mul(n, r) o = Mul(t, r)",
    "minus a logarithm": "[num] n = MatMul(q, kv) l = Log(d) m = Neg(l) r = Exp(m) o = Mul(n, r)",
    "an operand": 'r = Reciprocal(d) [num] o = Einsum<equation = "ij,jk,ik->ik">(q, kv, r)',
    "a factor": "[num] n = MatMul(q, kv) r = Reciprocal(d) "
    'o = Einsum<equation = "ij,ij->ij">(n, r)',
    "a quotient before": "p = Div(q, d) [num] o = MatMul(p, kv)",
    "a reciprocal before": "r = Reciprocal(d) p = Mul(q, r) [num] o = MatMul(p, kv)",
    "selected": "[num] n = MatMul(q, kv) r = Div(one, d) c = Greater(d, one) s = Where(c, r, one) "
    "o = Mul(n, s)",
    "moved": "[num] n = MatMul(q, kv) r = Reciprocal(d) s = Neg(r) t = Transpose(s) o = Mul(n, t)",
}
HEAD = "q = MatMul(x, w) k = MatMul(x, w) v = MatMul(x, w) kt = Transpose(k) "


def spelled(body: str, opset: int = 17, shape: str = "4,4") -> set[str]:
    """Return the named nodes that an estimate keeps in float32."""
    weights = "float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}"
    text = f"""<ir_version: 8, opset_import: ["" : {opset}]>
        g (float[{shape}] x, bool yes, int64 turns) => (float[{shape}] y)
        <{weights}, {NUMBERS}> {{ {body} }}"""
    nodes = rewritten(text).report.nodes
    reasons = {"likely-overflow", "carried-state"}
    kept = {n.name for n in nodes if any(v.reason in reasons for v in n.variables.values())}
    return kept & {"kv", "num", "den"}


@pytest.mark.filterwarnings("ignore::amp_rewrite.AmpWarning")
@pytest.mark.parametrize("name", SPELLINGS)
def test_the_spelling_of_a_quotient_does_not_matter(name: str) -> None:
    body = f"{HEAD}{PRODUCTS}{SPELLINGS[name]} y = MatMul(o, w)"
    assert spelled(body) == {"kv", "num", "den"}


@pytest.mark.filterwarnings("ignore::amp_rewrite.AmpWarning")
@pytest.mark.parametrize("opset", [13, 21, 23])
@pytest.mark.parametrize("shape", ["4,4", "N,4", "M,N"])
def test_opsets_and_shapes_do_not_matter(opset: int, shape: str) -> None:
    body = f"{HEAD}{PRODUCTS}{SPELLINGS['a reciprocal']} y = MatMul(o, w)"
    assert spelled(body, opset, shape) == {"kv", "num", "den"}


@pytest.mark.filterwarnings("ignore::amp_rewrite.AmpWarning")
def test_branches_and_loops_are_the_same() -> None:
    inner = f"{HEAD}{PRODUCTS}{SPELLINGS['a reciprocal']} z = MatMul(o, w)"
    branch = f"""y = If(yes) <then_branch = t0 () => (float[4,4] z) {{ {inner} }},
        else_branch = e0 () => (float[4,4] z2) {{ z2 = Identity(x) }}>"""
    assert spelled(branch) == {"kv", "num", "den"}
    turn = f"""y = Loop(turns, yes, x) <body = b0 (int64 i0, bool c1, float[4,4] x0) =>
        (bool c2, float[4,4] z) {{ c2 = Identity(c1) {inner.replace("(x,", "(x0,")} }}>"""
    assert spelled(turn) == {"kv", "num", "den"}


NORMALISED = {
    "a softmax": "a = MatMul(q, kt) m = ReduceMax<axes = [1]>(a) b = Sub(a, m) e = Exp(b) "
    "s = ReduceL1<axes = [1]>(e) r = Reciprocal(s) p = Mul(e, r) [num] o = MatMul(p, v)",
    "a norm": "s = Mul(q, q) t = ReduceMean<axes = [1]>(s) e = Add(t, small) f = Sqrt(e) "
    "r = Reciprocal(f) p = Mul(q, r) [num] o = MatMul(p, v)",
    "a gate": "m = Neg(v) e = Exp(m) a = Add(e, one) r = Reciprocal(a) g = Mul(v, r) "
    "[num] o = MatMul(g, q)",
    "two norms": "s = ReduceL2<axes = [1]>(q) e = Add(s, small) a = Div(q, e) "
    "[num] b = MatMul(a, kt) p = Softmax(b) o = MatMul(p, v)",
}


@pytest.mark.parametrize("name", NORMALISED)
def test_products_of_what_is_normalised_are_low(name: str) -> None:
    assert not spelled(f"{HEAD}{NORMALISED[name]} y = MatMul(o, w)")


@pytest.mark.filterwarnings("ignore::amp_rewrite.AmpWarning")
def test_the_reciprocal_of_a_small_sum_is_kept_with_what_it_multiplies() -> None:
    body = f"{HEAD}[den] d = MatMul(q, k) r = Reciprocal(d) [num] o = Mul(q, r) y = MatMul(o, w)"
    assert spelled(body) == {"num", "den"}


@pytest.mark.filterwarnings("ignore::amp_rewrite.AmpWarning")
def test_functions_of_the_model_are_the_same_once_they_are_inlined() -> None:
    inner = f"{HEAD}{PRODUCTS}{SPELLINGS['an operand']}".replace("[num]", "").replace("[kv]", "")
    text = f"""<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
        g (float[4,4] x) => (float[4,4] y) <{W}> {{ o = own.attend(x, w) y = MatMul(o, w) }}
        <domain: "own", opset_import: ["" : 17]> attend (x, w) => (o) {{ {inner} }}"""
    nodes = amp.rewrite(parse(text.replace("[den]", "")), inline_functions=True).report.nodes
    reasons = [
        v.reason for n in nodes for v in n.variables.values() if n.op in ("Einsum", "MatMul")
    ]
    assert reasons.count("likely-overflow") == 3
