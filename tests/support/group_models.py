"""Small models around each group of nodes that a runtime fuses: product, group, product."""

from __future__ import annotations

import re
from typing import NamedTuple

import onnx
from rewrite_text import parse


class Form(NamedTuple):
    """One way to write a group; it reads h and makes o.

    Attributes:
        body: Its nodes. `MEAN(v)` is the mean of v over the last axis.
        constants: Its constants, beside `scale` and `bias`.
        operator: What ONNX Runtime makes of it.
    """

    body: str
    constants: str
    operator: str


_DEVIATION = """
    v = MEAN(p)
    e = Add(v, eps)
    s = Sqrt(e)"""
_NORM = "float two = {2.0}, float eps = {0.00001}"
_ERF = "float root = {1.41421354}, float one = {1.0}, float half = {0.5}"
_TANH = (
    "float cubic = {0.044715}, float factor = {0.797884583}, float one = {1.0}, float half = {0.5},"
    " float three = {3.0}"
)

_FAST_GELU = """a = Mul(h, cubic)
        b = Mul(a, h)
        c = Add(b, one)
        d = Mul(h, factor)
        e = Mul(c, d)
        t = Tanh(e)
        u = Add(t, one)
        k = Mul(h, half)
        o = Mul(k, u)"""
_FAST_GELU_BY_POWER = """a = Pow(h, three)
        b = Mul(a, cubic)
        c = Add(h, b)
        e = Mul(c, factor)
        t = Tanh(e)
        u = Add(t, one)
        k = Mul(h, half)
        o = Mul(k, u)"""
_GELU = """r = Div(h, root)
        e = Erf(r)
        a = Add(e, one)
        b = Mul(h, half)
        o = Mul(b, a)"""
_GELU_HALVED_LAST = """r = Div(h, root)
        e = Erf(r)
        a = Add(e, one)
        b = Mul(h, a)
        o = Mul(b, half)"""


def _biased(body: str) -> str:
    """Return a body that adds the bias of a linear layer to h before it goes on."""
    return "biased = Add(h, bias)\n" + re.sub(r"\bh\b", "biased", body)


FORMS = {
    "layer-normalization": Form(
        f"""m = MEAN(h)
        d = Sub(h, m)
        p = Pow(d, two){_DEVIATION}
        n = Div(d, s)
        t = Mul(n, scale)
        o = Add(t, bias)""",
        _NORM,
        "LayerNormalization",
    ),
    "layer-normalization-twice": Form(
        f"""m = MEAN(h)
        c = Sub(h, m)
        d = Sub(h, m)
        p = Pow(c, two){_DEVIATION}
        n = Div(d, s)
        t = Mul(scale, n)
        o = Add(bias, t)""",
        _NORM,
        "LayerNormalization",
    ),
    "rms-normalization": Form(
        f"""p = Pow(h, two){_DEVIATION}
        n = Div(h, s)
        o = Mul(n, scale)""",
        _NORM,
        "SimplifiedLayerNormalization",
    ),
    "layer-normalization-one-over": Form(
        f"""m = MEAN(h)
        d = Sub(h, m)
        p = Pow(d, two){_DEVIATION}
        r = Div(one, s)
        n = Mul(d, r)
        t = Mul(n, scale)
        o = Add(t, bias)""",
        f"{_NORM}, float one = {{1.0}}",
        "LayerNormalization",
    ),
    "rms-normalization-one-over": Form(
        f"""p = Pow(h, two){_DEVIATION}
        r = Div(one, s)
        n = Mul(h, r)
        o = Mul(n, scale)""",
        f"{_NORM}, float one = {{1.0}}",
        "SimplifiedLayerNormalization",
    ),
    "gelu": Form(_GELU, _ERF, "Gelu"),
    "gelu-halved-last": Form(_GELU_HALVED_LAST, _ERF, "Gelu"),
    "biased-gelu": Form(_biased(_GELU), _ERF, "BiasGelu"),
    "biased-gelu-halved-last": Form(_biased(_GELU_HALVED_LAST), _ERF, "BiasGelu"),
    "fast-gelu": Form(_FAST_GELU, _TANH, "FastGelu"),
    "fast-gelu-power": Form(_FAST_GELU_BY_POWER, _TANH, "FastGelu"),
    "biased-fast-gelu": Form(_biased(_FAST_GELU), _TANH, "FastGelu"),
    "biased-fast-gelu-power": Form(_biased(_FAST_GELU_BY_POWER), _TANH, "FastGelu"),
    "quick-gelu": Form(
        """a = Mul(h, alpha)
        b = Sigmoid(a)
        o = Mul(h, b)""",
        "float alpha = {1.702}",
        "QuickGelu",
    ),
    "silu": Form(
        """a = Sigmoid(h)
        o = Mul(h, a)""",
        "float alpha = {1.0}",
        "QuickGelu",
    ),
}
"""The forms that ONNX Runtime 1.31.1 fuses."""


def members(form: Form) -> list[str]:
    """Return the names of a form's nodes."""
    return [line.partition("=")[0].strip() for line in form.body.strip().splitlines()]


def model_around(
    form: Form, opset: int = 17, behind: str = "y = MatMul(o, w)", made: str = "h"
) -> onnx.ModelProto:
    """Return h = MatMul(x, w), the group, and what is behind it, which reads o and makes y.

    Every node has the name of its output. A form that makes h by itself reads `made` instead.
    """
    mean = "ReduceMean(ARG, axes)" if opset >= 18 else "ReduceMean<axes = [-1]>(ARG)"
    body = form.body
    while "MEAN(" in body:
        head, _, rest = body.partition("MEAN(")
        argument, _, tail = rest.partition(")")
        body = head + mean.replace("ARG", argument) + tail
    eye = ", ".join("1.0" if i % 5 == 0 else "0.25" for i in range(16))
    model = parse(
        f"""<ir_version: {8 if opset < 21 else 10}, opset_import: ["" : {opset}]>
        g (float[N,3,4] x) => (float[N,3,4] y)
        <float[4,4] w = {{{eye}}}, float[4] scale = {{1, 2, 3, 4}}, float[4] bias = {{1, 2, 3, 4}},
         {form.constants}, int64[1] axes = {{-1}}> {{
            {made} = MatMul(x, w)
            {body}
            {behind}
        }}"""
    )
    for node in model.graph.node:
        node.name = node.output[0]
    return model


def reshaped_gelu() -> onnx.ModelProto:
    """Return a FastGelu by Pow between products, behind and before a Reshape, as GPT-2 has it."""
    form = FORMS["fast-gelu-power"]
    return model_around(
        Form(
            f"h = Reshape(f, flat)\n{form.body}",
            f"{form.constants}, int64[2] flat = {{-1, 4}}, int64[3] upright = {{-1, 3, 4}}",
            form.operator,
        ),
        behind="z = Reshape(o, upright)\ny = MatMul(z, w)",
        made="f",
    )
