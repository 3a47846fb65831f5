"""Gradients of trigonometric and hyperbolic functions; g is the gradient of the output y."""

from __future__ import annotations

import math

import onnx_ir as ir

from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.grad.rule import Gradients, Rules
from amp_rewrite.training.grad.rules.arithmetic import Received, known, operands


def sin(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = sin x: g cos x."""
    return [b.mul(known(gs[0]), b.op("Cos", operands(node)[0]))]


def cos(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = cos x: -g sin x."""
    return [b.neg(b.mul(known(gs[0]), b.op("Sin", operands(node)[0])))]


def tan(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = tan x: g (1 + y^2)."""
    return [b.mul(known(gs[0]), b.add(b.square(node.outputs[0]), 1))]


def asin(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = asin x: g / sqrt(1 - x^2)."""
    return [b.div(known(gs[0]), b.sqrt(b.sub(1, b.square(operands(node)[0]))))]


def acos(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = acos x: -g / sqrt(1 - x^2)."""
    return [b.neg(b.div(known(gs[0]), b.sqrt(b.sub(1, b.square(operands(node)[0])))))]


def atan(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = atan x: g / (1 + x^2)."""
    return [b.div(known(gs[0]), b.add(b.square(operands(node)[0]), 1))]


def sinh(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = sinh x: g cosh x."""
    return [b.mul(known(gs[0]), b.op("Cosh", operands(node)[0]))]


def cosh(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = cosh x: g sinh x."""
    return [b.mul(known(gs[0]), b.op("Sinh", operands(node)[0]))]


def tanh(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = tanh x: g (1 - y^2)."""
    return [b.mul(known(gs[0]), b.sub(1, b.square(node.outputs[0])))]


def asinh(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = asinh x: g / sqrt(x^2 + 1)."""
    return [b.div(known(gs[0]), b.sqrt(b.add(b.square(operands(node)[0]), 1)))]


def acosh(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = acosh x: g / sqrt(x^2 - 1)."""
    return [b.div(known(gs[0]), b.sqrt(b.sub(b.square(operands(node)[0]), 1)))]


def atanh(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = atanh x: g / (1 - x^2)."""
    return [b.div(known(gs[0]), b.sub(1, b.square(operands(node)[0])))]


def erf(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = erf x: g (2 / sqrt(pi)) exp(-x^2) = g exp(ln(2 / sqrt(pi)) - x^2), one pass less."""
    density = b.exp(b.sub(math.log(2 / math.sqrt(math.pi)), b.square(operands(node)[0])))
    return [b.mul(known(gs[0]), density)]


RULES: Rules = {
    "Acos": acos,
    "Acosh": acosh,
    "Asin": asin,
    "Asinh": asinh,
    "Atan": atan,
    "Atanh": atanh,
    "Cos": cos,
    "Cosh": cosh,
    "Erf": erf,
    "Sin": sin,
    "Sinh": sinh,
    "Tan": tan,
    "Tanh": tanh,
}
