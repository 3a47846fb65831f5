"""The share of multiply-accumulates: attention counts where its lengths are free."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import amp_rewrite as amp

CALLS = {
    "Attention": ('"" : 24', "Attention<q_num_heads = 2, kv_num_heads = 2>(q, k, v)"),
    "MultiHeadAttention": (
        '"" : 20, "com.microsoft" : 1',
        "com.microsoft.MultiHeadAttention<num_heads = 2>(q, k, v)",
    ),
}


def _model(text: str, imports: str = '"" : 22') -> onnx.ModelProto:
    model = onnx.parser.parse_model(f"<ir_version: 10, opset_import: [{imports}]> {text}")
    weight = numpy_helper.from_array(np.full((64, 64), 0.1, np.float32), "w")
    model.graph.initializer.append(weight)
    return onnx.shape_inference.infer_shapes(model)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(("length", "keys"), [("n", 128), ("32", 32)])
def test_an_attention_that_stays_float32_counts_its_products(
    call: tuple[str, str], length: str, keys: int
) -> None:
    text = f"""g (float[b,{length},64] x) => (float[b,{length},64] y) {{
        q = MatMul(x, w) k = MatMul(x, w) v = MatMul(x, w) [kept] y = {call[1]} }}"""
    result = amp.rewrite(_model(text, call[0]), deny_nodes=["kept"])
    expected = 3 * 64 * 64 / (3 * 64 * 64 + 2 * 64 * keys)
    assert result.report.summary.compute_converted == pytest.approx(expected)


def test_queries_times_keys_of_free_length_count_as_many_keys_as_an_attention() -> None:
    text = """g (float[b,n,64] x) => (float[b,n,64] y) {
        q = MatMul(x, w) k = Transpose<perm = [0, 2, 1]>(q) [first] s = MatMul(q, k)
        p = Softmax(s) [second] y = MatMul(p, q) }"""
    result = amp.rewrite(_model(text), deny_nodes=["first", "second"])
    expected = 64 * 64 / (64 * 64 + 2 * 64 * 128)
    assert result.report.summary.compute_converted == pytest.approx(expected)


def test_products_with_weights_count_a_free_length_as_one_token() -> None:
    text = """g (float[b,n,64] x) => (float[b,n,64] y) {
        [first] h = MatMul(x, w) t = Transpose(w) [second] y = MatMul(h, t) }"""
    result = amp.rewrite(_model(text), deny_nodes=["second"])
    assert result.report.summary.compute_converted == pytest.approx(0.5)
