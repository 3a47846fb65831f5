"""An operator of ONNX Runtime is estimated like the nodes of ai.onnx that it stands for."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.values.intervals.propagate import intervals_of
from amp_rewrite.values.magnitudes.estimate import Estimate
from amp_rewrite.values.magnitudes.estimates import Estimates

WEIGHTS = {
    "w": (8, 8),
    "wide": (8, 24),
    "bias": (8,),
    "long": (24,),
    "gain": (8,),
    "kernel": (5, 5, 1),
    "level": (5,),
    "turned": (24, 8),
}


def estimates(body: str) -> dict[str, Estimate | None]:
    """Return the estimates of a body's values by name; it reads x and z and makes a and b."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]>
        g (float[2,5,8] x, float[2,5,8] z, int64[2,5,8] n)
        => (float[2,5,8] a, float[2,5,8] b) {{ {body} }}"""
    )
    rng = np.random.default_rng(0)
    weights = {n: rng.uniform(0.5, 2.0, shape) for n, shape in WEIGHTS.items()}
    weights["upright"] = weights["turned"].T
    for name, array in weights.items():
        weight = np.ascontiguousarray(array, np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weight, name))
    graph = build_type_graph(read_flat(model))
    found = Estimates(graph, intervals_of(graph))
    return {name: found[v] for v, name in enumerate(graph.flat.value_names) if name}


@pytest.mark.parametrize(
    ("fused", "nodes"),
    [
        ("Gelu(x)", "b = Gelu(x)"),
        ("BiasGelu(x, bias)", "s = Add(x, bias) b = Gelu(s)"),
        ("FastGelu(x, bias)", "s = Add(x, bias) b = Gelu(s)"),
        ("QuickGelu(x)", "b = Gelu(x)"),
        ("BiasAdd(x, bias, z)", "s = Add(x, bias) b = Add(s, z)"),
        ("BiasSoftmax(x, z)", "b = Softmax(x)"),
        ("SkipLayerNormalization(x, z, gain, bias)",
         "s = Add(x, z) b = LayerNormalization(s, gain, bias)"),
        ("SkipSimplifiedLayerNormalization(x, z, gain)",
         "s = Add(x, z) b = RMSNormalization(s, gain)"),
        ("FusedMatMul<alpha: float = 0.25>(x, w)",
         "m = MatMul(x, w) f = Constant<value_float = 0.25>() b = Mul(m, f)"),
        ("FusedMatMul<transB: int = 1>(x, w)", "t = Transpose(w) b = MatMul(x, w)"),
        ("FusedMatMul(x, z)", "b = MatMul(x, z)"),
        ('FusedGemm<activation: string = "Relu">(x, w, bias)',
         "m = Gemm(x, w, bias) b = Relu(m)"),
        ("Attention<num_heads: int = 2>(x, wide, long)",
         "m = MatMul(x, wide) b = Add(m, long)"),
        ("MultiHeadAttention<num_heads: int = 2>(x, z, x)", "b = Identity(x)"),
        ("MultiHeadAttention<num_heads: int = 2>(x, z, x, long)", "b = Add(x, long)"),
        ("MultiHeadAttention<num_heads: int = 2>(x, z)", "b = Identity(z)"),
        ("MultiHeadAttention<num_heads: int = 2>(x)", "b = Identity(x)"),
        ("MultiHeadAttention<num_heads: int = 2>(x, , , long)", "b = Add(x, long)"),
        ("RotaryEmbedding(x, x, w, w)", "b = Identity(x)"),
        ("FusedConv(x, kernel)", "b = Conv(x, kernel)"),
        ("FusedConv(x, kernel, level)", "b = Conv(x, kernel, level)"),
        ("FusedConv(x, kernel, level, z)", "c = Conv(x, kernel, level) b = Add(c, z)"),
        ('FusedConv<activation: string = "Relu">(x, kernel, , z)',
         "c = Conv(x, kernel) s = Add(c, z) b = Relu(s)"),
        ("FusedGemm(x, w, bias)", "b = Gemm(x, w, bias)"),
        ("FusedMatMul(x, w)", "b = MatMul(x, w)"),
        ("FusedMatMul<transB: int = 1>(x, turned)", "b = MatMul(x, upright)"),
        ("FusedMatMul<alpha: float = 0.25>(x, z)",
         "m = MatMul(x, z) f = Constant<value_float = 0.25>() b = Mul(m, f)"),
        ("Attention<num_heads: int = 2>(x, wide)", "b = MatMul(x, wide)"),
        ("GroupQueryAttention<num_heads: int = 2>(x, z, z)", "b = Identity(z)"),
        ("GroupQueryAttention<num_heads: int = 2>(x)", "b = Identity(x)"),
        ("GroupNorm(x, gain, bias)", "b = LayerNormalization(x, gain, bias)"),
        ("GroupNorm(x, gain)", "b = LayerNormalization(x, gain)"),
        ("EmbedLayerNormalization(x, x, w, w, w, gain, bias)",
         "b = LayerNormalization(x, gain, bias)"),
        ("BiasAdd(x, bias)", "b = Add(x, bias)"),
    ],
)  # fmt: skip
def test_it_is_estimated_like_what_it_stands_for(fused: str, nodes: str) -> None:
    found = estimates(f"a = com.microsoft.{fused} {nodes}")
    a, b = found["a"], found["b"]
    assert a is not None
    assert b is not None
    assert a == pytest.approx(b, rel=0.1)


@pytest.mark.parametrize(
    ("fused", "nodes"),
    [
        ("BiasGelu(u, bias)", ""),
        ("FastGelu(u)", ""),
        ("FusedMatMul(u, w)", ""),
        ("FusedMatMul(u, z)", ""),
        ("FusedMatMul(x)", ""),
        ("FusedConv(u, kernel, level, z)", ""),
        ('FusedGemm<activation: string = "Relu">(u, w, bias)', ""),
        ("Attention<num_heads: int = 2>(u, wide, long)", ""),
        ("Attention<num_heads: int = 2>(x, u)", ""),
        ("MultiHeadAttention<num_heads: int = 2>(x, z, u, long)", ""),
        ("GroupQueryAttention<num_heads: int = 2>(x, z, u)", ""),
        ("BiasAdd(u, u)", ""),
        ("BiasAdd(x, bias, u)", "b = Add(x, bias)"),
        ("BiasGelu(x, u)", "b = Relu(x)"),
        ("FusedConv(x, kernel, level, u)", "b = Conv(x, kernel, level)"),
        ("Attention<num_heads: int = 2>(x, wide, u)", "b = MatMul(x, wide)"),
        ("MultiHeadAttention<num_heads: int = 2>(x, z, x, u)", "b = Identity(x)"),
        ("GroupNorm(u, gain, u)", "b = RMSNormalization(x, gain)"),
    ],
)
def test_what_is_made_of_something_unknown_is_unknown_and_the_rest_is_not(
    fused: str, nodes: str
) -> None:
    found = estimates(f"u = Cast<to = 1>(n) a = com.microsoft.{fused} {nodes or 'b = Identity(x)'}")
    a, b = found["a"], found["b"]
    if not nodes:
        assert a is None
    else:
        assert a is not None
        assert b is not None
        assert a == pytest.approx(b, rel=0.1)


def test_an_attention_makes_means_of_its_values() -> None:
    found = estimates("v = Mul(x, w) a = Attention<q_num_heads=2, kv_num_heads=2>(x, z, v)"
                      " b = Relu(a)")  # fmt: skip
    assert found["a"] == found["v"]


def test_an_einsum_is_estimated_like_the_product_that_it_is() -> None:
    found = estimates('a = Einsum<equation = "bij,bkj->bik">(x, z) t = Transpose(z) '
                      "b = MatMul(x, t)")  # fmt: skip
    assert found["a"] == pytest.approx(found["b"])
