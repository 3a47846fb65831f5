"""Formulas of fused operators of ONNX Runtime: what was fused, one operator after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.rule import Rules
from amp_rewrite.grad.rules.arithmetic import operands, rank_of
from amp_rewrite.grad.rules.formula import Formula, Formulas, Outputs, count, option, refuse
from amp_rewrite.grad.rules.normalization import rms_normalization


def _sum(b: Builder, values: Sequence[ir.Value | None]) -> ir.Value:
    """Return the sum of the values that are there."""
    there = [v for v in values if v is not None]
    return there[0] if len(there) == 1 else b.op("Sum", *there)


def gelu(node: ir.Node, b: Builder) -> Outputs:
    """y = x (1 + erf(x / sqrt 2)) / 2, of the sum of the inputs."""
    x = _sum(b, node.inputs)
    return [b.mul(b.mul(x, 0.5), b.add(b.op("Erf", b.mul(x, math.sqrt(0.5))), 1))]


def fast_gelu(node: ir.Node, b: Builder) -> Outputs:
    """y = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, of the sum of the inputs."""
    x = _sum(b, node.inputs)
    cubic = b.mul(x, b.add(b.mul(b.square(x), 0.044715), 1))
    return [b.mul(b.mul(x, 0.5), b.add(b.tanh(b.mul(cubic, math.sqrt(2 / math.pi))), 1))]


def quick_gelu(node: ir.Node, b: Builder) -> Outputs:
    """y = x sigmoid(alpha x)."""
    (x,) = operands(node)
    return [b.mul(x, b.sigmoid(b.mul(x, node.attributes.get_float("alpha", 1.702))))]


def _activated(
    b: Builder, x: ir.Value, node: ir.Node, name: str, parameters: Sequence[float]
) -> ir.Value:
    """Return an activation of x, with parameters in the order of ONNX Runtime."""
    if name == "Clip":
        return b.op(name, x, *(b.operand(number, x) for number in parameters))
    # operators: how many parameters a fused one has.
    known = {"Elu": 1, "HardSigmoid": 2, "LeakyRelu": 1, "Relu": 0, "Sigmoid": 0, "Tanh": 0}
    if name not in known:
        raise refuse(node, "a fused activation", name)
    how = dict(zip(("alpha", "beta"), parameters[: known[name]], strict=False))
    return b.op(name, x, **how)


def _kept(node: ir.Node) -> dict[str, Any]:
    """Return the attributes of a node that are not of its activation."""
    return {k: a.value for k, a in node.attributes.items() if not k.startswith("activation")}


def fused_conv(node: ir.Node, b: Builder) -> Outputs:
    """y = a(Conv(x, w, bias) + z)."""
    y = b.op("Conv", *node.inputs[:3], **_kept(node))
    y = _sum(b, [y, option(node, 3)])
    name = node.attributes.get_string("activation", "")
    parameters = node.attributes.get_floats("activation_params", ())
    return [_activated(b, y, node, name, parameters) if name else y]


def fused_gemm(node: ir.Node, b: Builder) -> Outputs:
    """y = a(Gemm(x, w, bias))."""
    y, attributes = b.op("Gemm", *node.inputs, **_kept(node)), node.attributes
    name = attributes.get_string("activation", "")
    keys = [f"activation_{part}" for part in ("alpha", "beta", "gamma")]
    parameters = [attributes[key].as_float() for key in keys if key in attributes]
    return [_activated(b, y, node, name, parameters) if name else y]


def fused_matmul(node: ir.Node, b: Builder) -> Outputs:
    """y = alpha A' B', ' an exchange of the last two axes or none."""
    sides: list[ir.Value] = []
    for name, value in zip("AB", operands(node), strict=True):
        rank = rank_of(node, b, value)
        if node.attributes.get_int(f"transBatch{name}", 0):
            raise refuse(node, "a product with its batch exchanged")
        turned = rank > 1 and node.attributes.get_int(f"trans{name}", 0)
        order = [*range(rank - 2), rank - 1, rank - 2]
        sides.append(b.transpose(value, order) if turned else value)
    return [b.mul(b.matmul(*sides), node.attributes.get_float("alpha", 1.0))]


def normalized(
    b: Builder,
    x: ir.Value,
    scale: ir.Value | None,
    bias: ir.Value | None,
    epsilon: float,
    *,
    centre: bool,
) -> ir.Value:
    """Return x over its last axis with mean 0 (if centred) and mean square 1, scaled."""
    centred = b.sub(x, b.reduce_mean(x, [-1])) if centre else x
    deviation = b.sqrt(b.add(b.reduce_mean(b.square(centred), [-1]), epsilon))
    y = b.div(centred, deviation)
    return _sum(b, [y if scale is None else b.mul(y, scale), bias])


def skip_layer_normalization(node: ir.Node, b: Builder) -> Outputs:
    """y = the layer normalization of s = x + skip + bias; s is the last output."""
    scale, beta = operands(node)[2], option(node, 3)
    total = _sum(b, [*node.inputs[:2], option(node, 4)])
    epsilon = node.attributes.get_float("epsilon", 1e-12)
    return [normalized(b, total, scale, beta, epsilon, centre=True), None, None, total]


def skip_rms_normalization(node: ir.Node, b: Builder) -> Outputs:
    """y = the RMS normalization of s = x + skip + bias; s is the last output."""
    total = _sum(b, [*node.inputs[:2], option(node, 3)])
    epsilon = node.attributes.get_float("epsilon", 1e-12)
    y = normalized(b, total, operands(node)[2], None, epsilon, centre=False)
    return [y, None, None, total]


def embed_layer_normalization(node: ir.Node, b: Builder) -> Outputs:
    """y = the layer normalization of s = rows of words, of places and of segments; s is the last.

    The places are 0, 1, .. unless given. The second output is the sum of the mask, 0 without one.
    """
    ids = operands(node)[0]
    segment_ids, words, places, segments, scale, beta = node.inputs[1:7]
    at = option(node, 8)
    at = count(b, b.dim(ids, 1)) if at is None else at
    pairs = [(words, ids), (places, at), (segments, segment_ids)]
    rows = [b.gather(v, i) for v, i in pairs if v is not None and i is not None]
    total = _sum(b, rows)
    epsilon = node.attributes.get_float("epsilon", 1e-12)
    lengths = b.reduce_sum(option(node, 7) or b.mul(ids, 0), [1], keepdims=False)
    return [normalized(b, total, scale, beta, epsilon, centre=True), lengths, total]


_CONTRIBUTED: dict[str, Formula] = {
    "BiasGelu": gelu,
    "EmbedLayerNormalization": embed_layer_normalization,
    "FastGelu": fast_gelu,
    "FusedConv": fused_conv,
    "FusedGemm": fused_gemm,
    "FusedMatMul": fused_matmul,
    "Gelu": gelu,
    "QuickGelu": quick_gelu,
    "SkipLayerNormalization": skip_layer_normalization,
    "SkipSimplifiedLayerNormalization": skip_rms_normalization,
    "TransposeMatMul": fused_matmul,
}
FORMULAS: Formulas = {f"com.microsoft::{name}": formula for name, formula in _CONTRIBUTED.items()}
# ONNX Runtime has it in the standard's domain.
RULES: Rules = {"SimplifiedLayerNormalization": rms_normalization}
