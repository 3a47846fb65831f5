"""What stays float32 and why, by the node: the traps of real models, options and levels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from rewriting import assert_close, lists_of, parse, rewritten, text_of

import amp_rewrite as amp

W = "float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}"
SCATTER = "int64[1,1] i = {0}, float[1,4] u = {1,1,1,1}, float[1,1] v = {1}"


def model(body: str, extra: str = "", inputs: str = "float[2,4] x", opset: int = 21) -> str:
    more = f", {extra}" if extra else ""
    ir_version = 13 if opset > 23 else 10
    head = f'<ir_version: {ir_version}, opset_import: ["" : {opset}, "com.microsoft" : 1, "c" : 1]>'
    return f"{head} g ({inputs}) => (float[2,4] y) <{W}{more}> {{ {body} }}"


def reasons(source: str | onnx.ModelProto, **options: Any) -> dict[str, str]:
    """Return node (its operator if that is unique) -> reason."""
    result = rewritten(source, **options)
    nodes = [n for n in result.report.nodes if n.variables and n.op != "Constant"]
    operators = [n.op for n in nodes]
    return {
        (n.op if operators.count(n.op) == 1 else n.name): next(iter(n.variables.values())).reason
        for n in nodes
    }


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
    found = reasons(between(op, extra))
    (name,) = [n for n in found if not n.startswith("MatMul")]
    assert found[name] == reason


def test_sums_of_squares_of_pow_stay_float32_up_to_the_next_allow_operator() -> None:
    text = model(
        "h = MatMul(x, w) s = Pow(h, two) r = ReduceMean(s, a) q = Sqrt(r) d = Div(h, q) "
        "y = MatMul(d, w)",
        "float two = {2}, int64[1] a = {1}",
    )
    found = reasons(text)
    assert found == {
        "MatMul_0": "allow-list",
        "Pow": "deny-list",
        "ReduceMean": "deny-list",
        "Sqrt": "downstream-of-deny",
        "Div": "downstream-of-deny",
        "MatMul_5": "allow-list",
    }


@pytest.mark.parametrize("reduction", ["ReduceMean(s, a)", "ReduceSum(s, a)"])
def test_sums_of_squares_of_mul_stay_float32_as_well(reduction: str) -> None:
    text = model(
        f"h = MatMul(x, w) s = Mul(h, h) r = {reduction} q = Sqrt(r) d = Div(h, q) "
        "y = MatMul(d, w)",
        "int64[1] a = {1}",
    )
    found = reasons(text)
    assert found["Mul"] == "square-before-reduction"
    assert found["Div"] == "downstream-of-deny"
    assert_close(rewritten(text), text)


def test_a_product_of_two_values_before_a_reduction_is_no_square() -> None:
    text = model(
        "h = MatMul(x, w) k = MatMul(h, w) s = Mul(h, k) r = ReduceMean(s, a) d = Add(s, r) "
        "y = MatMul(d, w)",
        "int64[1] a = {1}",
    )
    assert reasons(text)["Mul"] in ("follows-allow", "between-allow")


def test_quantised_operators_keep_float32_on_their_fixed_ports() -> None:
    text = model(
        "h = MatMul(x, w) q, s, z = DynamicQuantizeLinear(h) d = DequantizeLinear(q, s, z) "
        "y = MatMul(d, w)"
    )
    found = reasons(text)
    assert found["DynamicQuantizeLinear"] == "unlisted"
    assert found["DequantizeLinear"] == "unlisted"
    assert_close(rewritten(text), text, factor=8)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_layer_normalization_keeps_its_statistics_in_stash_type(precision: str) -> None:
    text = """g (float[2,4] x) => (float[2,4] y, float[2,1] z) <float[4] s = {1,1,1,1},
      float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}> {
      h = MatMul(x, w) l, m, v = LayerNormalization<stash_type = 1>(h, s)
      y = MatMul(l, w) z = Exp(m) }"""
    result = rewritten(text, precision=precision)
    node = next(n for n in result.report.nodes if n.op == "LayerNormalization")
    assert {name: v.dtype for name, v in node.variables.items()} == {"T": precision, "U": "float32"}
    assert "stash_type: int = 1" in text_of(result)


def test_cast_like_keeps_following_a_float32_value() -> None:
    text = model(
        "h = MatMul(x, w) c = CastLike(k, h) d = Add(c, h) y = MatMul(d, w)",
        inputs="float[2,4] x, int64[2,4] k",
    )
    assert reasons(text)["CastLike"] == "unlisted"
    assert_close(rewritten(text), text)


def test_bit_cast_reads_and_gives_what_it_did() -> None:
    body = "h = MatMul(x, w) b = BitCast<to = 6>(h) f = BitCast<to = 1>(b) y = MatMul(f, w)"
    found = reasons(model(body, opset=26))
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


def test_sequences_get_one_color() -> None:
    body = "h = MatMul(x, w) s = SequenceConstruct(h, x) a = SequenceAt(s, k) y = MatMul(a, w)"
    text = model(body, "int64 k = {0}")
    assert reasons(text)["SequenceConstruct"] == "between-allow"
    assert_close(rewritten(text), text)
    found = reasons(text, precision="bfloat16")
    assert found["SequenceConstruct"] == found["SequenceAt"] == "sequence-denied"


def test_a_sequence_that_leaves_the_graph_is_left_alone() -> None:
    text = f"""g (float[2,4] x) => (seq(float[2,4]) s) <{W}> {{
      h = MatMul(x, w) s = SequenceConstruct(h, x) }}"""
    assert reasons(text)["SequenceConstruct"] == "sequence-denied"


def test_identity_of_a_sequence_is_left_alone_even_by_force() -> None:
    text = "g (seq(float[2]) x) => (seq(float[2]) y) { y = Identity(x) }"
    assert not rewritten(text, level="UNSAFE_FORCE_ALL").changed


def test_optionals_are_boundaries() -> None:
    text = model("h = MatMul(x, w) o = Optional(h) g1 = OptionalGetElement(o) y = MatMul(g1, w)")
    found = reasons(text)
    assert {found["Optional"], found["OptionalGetElement"]} <= {"unlisted", "sequence-denied"}


def test_integer_products_are_never_retyped() -> None:
    text = """g (int64[2,4] x, double[2,4] z) => (int64[2,4] y, double[2,4] u)
      <int64[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1},
       double[4,4] v = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}> { y = MatMul(x, w) u = MatMul(z, v) }"""
    assert not rewritten(text).changed


CHAIN = "[a] h = MatMul(x, w) [b] r = Relu(h) [c] y = MatMul(r, w)"


def test_preserved_nodes_are_not_touched() -> None:
    found = reasons(model(CHAIN), preserve=["a"])
    assert found == {"a": "preserved", "Relu": "clear-next-to-allow", "c": "allow-list"}


def test_denied_nodes_stay_float32() -> None:
    found = reasons(model(CHAIN), deny_nodes=["a|b"])
    assert found == {"a": "node-rule", "Relu": "node-rule", "c": "allow-list"}


def test_allowed_nodes_are_treated_as_on_the_allow_list() -> None:
    text = model("[a] e = Exp(x) [b] y = Relu(e)")
    assert set(reasons(text).values()) == {"no-allow-operator"}
    found = reasons(text, allow_nodes=["a"])
    assert found == {"Exp": "allow-list", "Relu": "clear-next-to-allow"}


def test_node_rules_of_an_overlay_keep_nodes_float32(tmp_path: Path) -> None:
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text(
        "version: 1\nprecision: float16\ntarget: cuda\nextend: float16_cuda\n"
        "nodes:\n  - {node: a, list: deny, why: measured}\n",
        "utf-8",
    )
    found = reasons(model(CHAIN), lists=[str(overlay)])
    assert found == {"a": "node-rule", "Relu": "clear-next-to-allow", "c": "allow-list"}


FOLLOW = "[a] h = MatMul(x, w) [s] g1 = Sigmoid(h) [l] y = Tanh(g1)"


@pytest.mark.parametrize(
    ("follow", "reason"), [(True, "follows-allow"), (False, "not-between-allow")]
)
def test_an_infer_operator_follows_an_allow_one_on_demand(follow: bool, reason: str) -> None:
    found = reasons(model(FOLLOW), infer_after_allow=follow)
    assert found == {"MatMul": "allow-list", "Sigmoid": reason, "Tanh": reason}


def test_tensor_cores_only_paints_the_allow_list_alone() -> None:
    found = reasons(model(CHAIN), level="tensor_cores_only")
    assert found["a"] == found["c"] == "allow-list"
    assert found["Relu"] == "unknown-operator"


def test_treat_infer_as_deny_denies_the_infer_list() -> None:
    found = reasons(model(FOLLOW), level="Treat_Infer_As_Deny")
    assert found["Sigmoid"] == "deny-list"


def test_unsafe_force_all_forces_what_is_no_constant_and_not_random() -> None:
    text = model("e = Exp(x) n = RandomNormalLike(e) y = Add(e, n)")
    found = reasons(text, level="UNSAFE_FORCE_ALL")
    assert found == {"Exp": "forced", "RandomNormalLike": "unlisted", "Add": "forced"}


def test_the_environment_adds_and_removes_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMP_REWRITE_ALLOWLIST_ADD", "Exp")
    monkeypatch.setenv("AMP_REWRITE_DENYLIST_REMOVE", "Exp")
    found = reasons(model("y = Exp(x)"), lists=None)
    assert found == {"Exp": "allow-list"}


def test_the_environment_sets_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMP_REWRITE_LEVEL", "unsafe_force_all")
    assert rewritten(model("y = Exp(x)"), lists=None).report.level == "UNSAFE_FORCE_ALL"


BATCH = """<ir_version: 8, opset_import: ["" : %d]>
  g (float[1,2,4,4] x) => (float[1,2,4,4] y)
  <float[2,2,1,1] k = {1,0,0,1}, float[2] one = {1,1}, float[2] zero = {0,0}> {
  h = Conv(x, k) n = BatchNormalization(h, one, zero, zero, one) y = Conv(n, k) }"""


@pytest.mark.parametrize("opset", [9, 14, 15, 17, 21])
@pytest.mark.parametrize("target", ["cuda", "schema"])
def test_batch_normalization_variables_are_low_together_on_cuda(opset: int, target: str) -> None:
    result = rewritten(BATCH % opset, target=target)
    node = next(n for n in result.report.nodes if n.op == "BatchNormalization")
    found = {v.dtype for v in node.variables.values()}
    assert len(found) == 1 if target == "cuda" or opset < 14 else found == {"float16", "float32"}


def test_an_operator_without_a_cuda_kernel_at_its_opset_stays_float32() -> None:
    text = model("h = MatMul(x, w) m = Mish(h) y = MatMul(m, w)")
    assert reasons(text)["Mish"] == "between-allow"
    assert reasons(text, target="cuda")["Mish"] == "no-kernel"


def test_a_level_that_no_one_knows_is_an_error() -> None:
    with pytest.raises(amp.AmpError, match="unknown level; found 'fast'; expected default or"):
        amp.rewrite(parse(model(CHAIN)), level="fast", lists=lists_of("float16"))
