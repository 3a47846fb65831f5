"""What feeds a float32 recurrent operator is not cast where TensorRT could not build it."""

from __future__ import annotations

from typing import Any

import onnx.checker
import onnx.parser
import pytest
import tensorrt_judge

import amp_rewrite as amp
from amp_rewrite.dtypes import Precision
from amp_rewrite.rewriting.paint.painting import Reason

GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
FRONTS = {
    "product": "h = MatMul(x, u)",
    "moved": "a = MatMul(x, u) c = Reshape(a, s) d = Transpose<perm = [1, 0, 2]>(c) "
    "f = Identity(d) h = Transpose<perm = [1, 0, 2]>(f)",
    "joined": "a = MatMul(x, u) c = MatMul(x, u) d = Concat<axis = 0>(a, c) h = Slice(d, z, n, z)",
    "convolution": "a = Transpose<perm = [1, 2, 0]>(x) c = Conv<pads = [1, 1]>(a, k) "
    "h = Transpose<perm = [2, 0, 1]>(c)",
    "branch": "h = If(t) <then_branch = yes () => (float[5,2,3] p) { p = MatMul(x, u) }, "
    "else_branch = no () => (float[5,2,3] q) { q = MatMul(x, u) }>",
}


def network(op: str, front: str, lengths: bool) -> Any:
    """Return a model of one recurrent operator behind products, and in front of one."""
    gates = GATES[op] * 4
    text = (
        '<ir_version: 10, opset_import: ["" : 22]> g (float[5,2,3] x, float[3,3] u, '
        f"float[3,3,3] k, float[1,{gates},3] w, float[1,{gates},4] r, float[1,{2 * gates}] b, "
        "float[4,4] v, int32[2] l, bool t) => (float[5,1,2,4] y) "
        "<int64[3] s = {5, 2, 3}, int64[1] z = {0}, int64[1] n = {5}> {"
        f"{front} [op] o = {op}<hidden_size = 4>(h, w, r, b{', l' if lengths else ''}) "
        "[last] y = MatMul(o, v) }"
    )
    model = onnx.parser.parse_model(text)
    onnx.checker.check_model(model, full_check=True)
    return model


def types(result: amp.RewriteResult) -> dict[str, set[str]]:
    """Return operator -> the types that its nodes compute in."""
    found: dict[str, set[str]] = {}
    for node in result.report.nodes:
        for variable in node.variables.values():
            found.setdefault(node.op, set()).add(variable.dtype)
    return found


@pytest.mark.parametrize("front", ["product", "moved", "joined", "convolution"])
def test_what_feeds_a_float32_recurrent_operator_stays_float32(front: str) -> None:
    model = network("GRU", FRONTS[front], lengths=False)
    result = amp.rewrite(model, target="tensorrt", precision="bfloat16")
    dtypes = {n.name: n.variables["T"].dtype for n in result.report.nodes if "T" in n.variables}
    assert dtypes.pop("last") == "bfloat16"
    assert set(dtypes.values()) == {"float32"}
    marks = [n.variables["T"] for n in result.report.nodes if n.op in ("MatMul", "Conv")]
    assert {mark.reason for mark in marks} == {Reason.NO_CAST_BEHIND, Reason.ALLOW_LIST}
    assert {mark.because for mark in marks} >= {"op/T"}


@pytest.mark.parametrize(("target", "precision"), [("tensorrt", "float16"), ("cuda", "bfloat16")])
def test_where_nothing_is_in_the_way_it_becomes_low(target: str, precision: Precision) -> None:
    model = network("GRU", FRONTS["product"], lengths=False)
    found = types(amp.rewrite(model, target=target, precision=precision))
    assert found["MatMul"] == {precision}


def test_of_several_targets_one_is_enough() -> None:
    model = network("GRU", FRONTS["product"], lengths=True)
    result = amp.rewrite(model, target="cuda,tensorrt")
    reasons = {n.variables["T"].reason for n in result.report.nodes if n.op == "MatMul"}
    assert reasons == {Reason.NO_CAST_BEHIND, Reason.ALLOW_LIST}


@pytest.mark.share(5, each="op")
@pytest.mark.tensorrt
@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("op", GATES)
def test_recurrent_operators_are_built_wherever_their_originals_are(
    op: str, lengths: bool, tensorrt: tensorrt_judge.Judge
) -> None:
    for front in FRONTS.values():
        model = network(op, front, lengths)
        assert tensorrt.judge(model.SerializeToString(), build=True).built
        for precision in ("float16", "bfloat16"):
            low = amp.to_proto(amp.rewrite(model, target="tensorrt", precision=precision).model)
            verdict = tensorrt.judge(low.SerializeToString(), build=True)
            assert verdict.built, (front, precision, verdict.error)


ATTENTION = onnx.parser.parse_model(
    """<ir_version: 10, opset_import: ["" : 23]>
    g (float[2,6,24] x, float[2,6,24] k, float[2,6,24] v, float[24,24] w) => (float[2,6,24] y) {
        q = MatMul(x, w)
        [attention] y = Attention<q_num_heads = 3, kv_num_heads = 3>(q, k, v)
    }"""
)


def test_an_attention_that_stays_float32_is_fed_float32() -> None:
    result = amp.rewrite(ATTENTION, target="tensorrt", deny_nodes=["attention"])
    (mark,) = [n.variables["T"] for n in result.report.nodes if n.op == "MatMul"]
    assert (mark.dtype, mark.reason) == ("float32", Reason.NO_CAST_BEHIND)


@pytest.mark.tensorrt
@pytest.mark.parametrize("denied", [[], ["attention"]])
def test_an_attention_is_built_as_its_original(
    denied: list[str], tensorrt: tensorrt_judge.Judge
) -> None:
    assert tensorrt.judge(ATTENTION.SerializeToString(), build=True).built
    low = amp.to_proto(amp.rewrite(ATTENTION, target="tensorrt", deny_nodes=denied).model)
    assert tensorrt.judge(low.SerializeToString(), build=True).built
