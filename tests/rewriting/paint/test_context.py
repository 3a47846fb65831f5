"""Which nodes may become low: the list they are on, what the target runs, and the user's rules."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from rewrite_text import assert_close, assert_rewrites, needs_opset, reasons, rewritten

import amp_rewrite as amp
from amp_rewrite.oplists import OpLists

W = "float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}"
SCATTER = "int64[1,1] i = {0}, float[1,4] u = {1,1,1,1}, float[1,1] v = {1}"


def model(body: str, extra: str = "", inputs: str = "float[2,4] x", opset: int = 21) -> str:
    more = f", {extra}" if extra else ""
    ir_version = 13 if opset > 23 else 10
    head = f'<ir_version: {ir_version}, opset_import: ["" : {opset}, "com.microsoft" : 1, "c" : 1]>'
    return f"{head} g ({inputs}) => (float[2,4] y) <{W}{more}> {{ {body} }}"


def between(op: str, extra: str = "", opset: int = 21) -> str:
    """Return a model that has one call between two MatMul."""
    return model(f"h = MatMul(x, w) r = {op} y = MatMul(r, w)", extra, opset=opset)


@pytest.mark.parametrize(
    ("op", "extra", "reason"),
    [
        ("Relu(h)", "", "between-allow"),
        ("ReduceSum<noop_with_empty_axes = 1>(h)", "", "deny-list"),
        ('ReduceSum<noop_with_empty_axes = 1>(h, "")', "", "deny-list"),
        ("ScatterND(h, i, u)", SCATTER, "between-allow"),
        ('ScatterND<reduction = "add">(h, i, u)', SCATTER, "unlisted"),
        ("ScatterElements(h, i, v)", SCATTER, "between-allow"),
        ('ScatterElements<reduction = "max">(h, i, v)', SCATTER, "unlisted"),
        ("c.Foo(h)", "", "unknown-operator"),
        ("com.microsoft.QuickGelu(h)", "", "between-allow"),
        ("com.microsoft.Inverse(h)", "", "unlisted"),
        ("Cos(h)", "", "unlisted"),
    ],
)
def test_an_operator_between_two_allow_ones(op: str, extra: str, reason: str) -> None:
    found = reasons(rewritten(between(op, extra)))
    (name,) = [n for n in found if not n.startswith("MatMul")]
    assert found[name] == reason


def test_quantised_operators_keep_float32_on_their_fixed_ports() -> None:
    text = model(
        "h = MatMul(x, w) q, s, z = DynamicQuantizeLinear(h) d = DequantizeLinear(q, s, z) "
        "y = MatMul(d, w)"
    )
    found = reasons(rewritten(text))
    assert found["DynamicQuantizeLinear"] == "unlisted"
    assert found["DequantizeLinear"] == "unlisted"
    assert_close(rewritten(text), text, factor=8)


def test_cast_like_keeps_following_a_float32_value() -> None:
    text = model(
        "h = MatMul(x, w) c = CastLike(k, h) d = Add(c, h) y = MatMul(d, w)",
        inputs="float[2,4] x, int8[2,4] k",
    )
    assert reasons(rewritten(text))["CastLike"] == "unlisted"
    assert_close(rewritten(text), text)


@needs_opset(26)
def test_bit_cast_reads_and_gives_what_it_did() -> None:
    body = "h = MatMul(x, w) b = BitCast<to = 6>(h) f = BitCast<to = 1>(b) y = MatMul(f, w)"
    found = reasons(rewritten(model(body, opset=26)))
    assert set(found.values()) == {"allow-list", "unlisted"}


@pytest.mark.parametrize("opset", [10, 13, 19, 21])
def test_resize_scales_stay_float32_and_empty_inputs_stay_empty(opset: int) -> None:
    operands = "h, s" if opset == 10 else 'h, "", s'
    text = f"""<ir_version: 8, opset_import: ["" : {opset}]>
      g (float[1,1,4,4] x) => (float[1,1,8,8] y)
      <float[1,1,1,1] k = {{2}}, float[4] s = {{1,1,2,2}}> {{
      h = Conv(x, k) r = Resize<mode = "nearest">({operands}) y = Conv(r, k) }}"""
    result = rewritten(text)
    scales = next(t for t in amp.to_proto(result.model).graph.initializer if t.name == "s")
    assert scales.data_type == onnx.TensorProto.FLOAT
    assert result.report.summary.nodes_converted == 3
    assert_close(result, text)


def test_optionals_are_boundaries() -> None:
    text = model("h = MatMul(x, w) o = Optional(h) g1 = OptionalGetElement(o) y = MatMul(g1, w)")
    found = reasons(rewritten(text))
    assert {found["Optional"], found["OptionalGetElement"]} <= {"unlisted", "sequence-denied"}


def test_integer_products_are_never_retyped() -> None:
    text = """g (int64[2,4] x) => (int64[2,4] y)
      <int64[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}> { y = MatMul(x, w) }"""
    assert not rewritten(text).changed


def test_an_operator_without_a_cuda_kernel_at_its_opset_stays_float32() -> None:
    text = model("h = MatMul(x, w) m = Mish(h) y = MatMul(m, w)")
    assert reasons(rewritten(text))["Mish"] == "between-allow"
    assert reasons(rewritten(text, target="cuda"))["Mish"] == "no-kernel"


CHAIN = "[a] h = MatMul(x, w) [b] r = Relu(h) [c] y = MatMul(r, w)"


def test_preserved_nodes_are_not_touched() -> None:
    found = reasons(rewritten(model(CHAIN), preserve=["a"]))
    assert found == {"a": "preserved", "Relu": "clear-next-to-allow", "c": "allow-list"}


def test_denied_nodes_stay_float32() -> None:
    found = reasons(rewritten(model(CHAIN), deny_nodes=["a|b"]))
    assert found == {"a": "node-rule", "Relu": "node-rule", "c": "allow-list"}


def test_allowed_nodes_are_treated_as_on_the_allow_list() -> None:
    text = model("[a] e = Exp(x) [b] y = Relu(e)")
    assert set(reasons(rewritten(text)).values()) == {"no-allow-operator"}
    found = reasons(rewritten(text, allow_nodes=["a"]))
    assert found == {"Exp": "allow-list", "Relu": "clear-next-to-allow"}


@needs_opset(26)
def test_what_cannot_be_retyped_is_not_allowed_by_name() -> None:
    text = """g (float[2,4] x) => (int32[2,4] y, float[2,4] z) {
        [a] z = Exp(x) [b] y = BitCast<to = 6>(x) }"""
    header = '<ir_version: 13, opset_import: ["" : 26]>'
    found = rewritten(f"{header} {text}", allow_nodes=["*"]).report.nodes
    reasons_found = {n.op: v.reason for n in found for v in n.variables.values()}
    assert reasons_found == {"Exp": "allow-list", "BitCast": "type-unsupported"}


LISTS = ("allow", "infer", "clear", "deny")
CONSTANT = """g (float[2,4] x) => (float[2,4] y) {
    [k] k = Constant<value_floats = [0.5, 1.0, 2.0, 4.0]>()
    [m] m = Mul(x, k)
    [e] e = Exp(k)
    [y] y = Add(m, e)
}"""
CONVERTED = """g (float[2,4] x) => (float[2,4] y) {
    x_fp16 = Cast<to = 10>(x)
    [k] k = Constant<value_floats = [0.5, 1, 2, 4]>()
    k_fp16 = Constant<value = float16[4] k_fp16 {14336,15360,16384,17408}>()
    [m] m = Mul(x_fp16, k_fp16)
    m_fp32 = Cast<to = 1>(m)
    [e] e = Exp(k)
    [y] y = Add(m_fp32, e)
}"""


@pytest.mark.parametrize("name", LISTS)
def test_a_constant_is_converted_for_its_readers_whatever_its_list(name: str) -> None:
    given = {listed: ["Constant"] if listed == name else [] for listed in LISTS}
    given["allow"].append("Mul")
    lists = OpLists.from_names(
        allow=given["allow"], infer=given["infer"], clear=given["clear"], deny=given["deny"]
    )
    assert_rewrites(CONSTANT, CONVERTED, lists=lists)


def test_a_pattern_of_allowed_nodes_converts_a_constant_for_its_readers() -> None:
    lists = OpLists.from_names(deny=["Exp", "Add"])
    assert_rewrites(CONSTANT, CONVERTED, lists=lists, allow_nodes=["k|m"])


def test_node_rules_of_an_overlay_keep_nodes_float32(tmp_path: Path) -> None:
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text(
        "version: 1\nprecision: float16\ntarget: cuda\nextend: float16_cuda\n"
        "nodes:\n  - {node: a, list: deny, why: measured}\n",
        "utf-8",
    )
    found = reasons(rewritten(model(CHAIN), lists=[str(overlay)]))
    assert found == {"a": "node-rule", "Relu": "clear-next-to-allow", "c": "allow-list"}


def test_tensor_cores_only_paints_the_allow_list_alone() -> None:
    found = reasons(rewritten(model(CHAIN), level="tensor_cores_only"))
    assert found["a"] == found["c"] == "allow-list"
    assert found["Relu"] == "unknown-operator"


def test_treat_infer_as_deny_denies_the_infer_list() -> None:
    found = reasons(
        rewritten(model("h = MatMul(x, w) s = Sigmoid(h) y = Tanh(s)"), level="Treat_Infer_As_Deny")
    )
    assert found["Sigmoid"] == "deny-list"


def test_the_environment_adds_and_removes_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMP_REWRITE_ALLOWLIST_ADD", "Exp")
    monkeypatch.setenv("AMP_REWRITE_DENYLIST_REMOVE", "Exp")
    found = reasons(rewritten(model("y = Exp(x)"), lists=None))
    assert found == {"Exp": "allow-list"}


def test_the_environment_sets_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMP_REWRITE_LEVEL", "unsafe_force_all")
    assert rewritten(model("y = Exp(x)"), lists=None).report.level == "UNSAFE_FORCE_ALL"


def test_clip_in_bfloat16_needs_an_opset_whose_where_admits_it() -> None:
    text = """g (float[4,4] x, float a) => (float[4,4] y) {
        h = MatMul(x, x) c = Clip(h, a) y = MatMul(c, c) }"""
    for opset, precision, is_low in (
        (15, "bfloat16", False),
        (16, "bfloat16", True),
        (15, "float16", True),
    ):
        header = f'<ir_version: 8, opset_import: ["" : {opset}]>'
        result = rewritten(f"{header} {text}", precision=precision, target="schema")
        clip = next(node for node in result.report.nodes if node.op == "Clip")
        assert {v.dtype for v in clip.variables.values()} == {precision if is_low else "float32"}
