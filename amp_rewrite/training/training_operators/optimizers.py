"""Adagrad, Adam and Momentum of ai.onnx.preview.training in operators of ai.onnx.

Formulas: https://onnx.ai/onnx/operators, section ai.onnx.preview.training. Scalar factors are
computed in the type of the learning rate; those of Adam in float64, as 1 - 0.999 ** T loses half of
its digits in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import TypeAlias

import onnx_ir as ir

from amp_rewrite.errors import TrainingInfoError
from amp_rewrite.grad import Builder
from amp_rewrite.graph.names import place

Lowering: TypeAlias = Callable[[ir.Node, Builder], list[ir.Value]]
"""(node, builder) -> the values in place of its outputs, in order."""

_DOUBLE = ir.DataType.DOUBLE
_LEADING = 2  # R and T come before the tensors


def lower_adagrad(node: ir.Node, b: Builder) -> list[ir.Value]:
    """Lower Adagrad.

    r = R / (1 + T * decay_factor); G' = norm_coefficient * X + G; H_new = H + G' * G';
    X_new = X - r * G' / (sqrt(H_new) + epsilon)

    J. Duchi, E. Hazan, Y. Singer, "Adaptive Subgradient Methods for Online Learning and Stochastic
    Optimization", 2011, http://jmlr.org/papers/volume12/duchi11a/duchi11a.pdf
    """
    rate, count = _scalars(node, b)
    decay = node.attributes.get_float("decay_factor", 0.0)
    if decay:
        rate = b.div(rate, b.add(b.mul(b.cast_like(count, rate), decay), 1.0))
    epsilon = node.attributes.get_float("epsilon", 1e-6)
    rates = _in_types(b, rate)
    rows: list[tuple[ir.Value, ...]] = []
    for x, g, h in _tensors(node, 3):
        g = _regularized(node, b, x, g)
        h_new = b.add(h, b.square(g))
        direction = b.div(b.mul(rates(x), g), b.add(b.sqrt(h_new), epsilon))
        rows.append((b.sub(x, direction), h_new))
    return _in_order(rows)


def lower_adam(node: ir.Node, b: Builder) -> list[ir.Value]:
    """Lower Adam.

    G' = norm_coefficient * X + G; V_new = alpha * V + (1 - alpha) * G';
    H_new = beta * H + (1 - beta) * G' * G';
    r = R * sqrt(1 - beta ** T) / (1 - alpha ** T) if T > 0 else R;
    X_new = (1 - norm_coefficient_post) * (X - r * V_new / (sqrt(H_new) + epsilon))

    D. Kingma, J. Ba, "Adam: A Method for Stochastic Optimization", 2014,
    https://arxiv.org/abs/1412.6980 (whose T is larger by one)
    """
    number = node.attributes.get_float
    alpha, beta = number("alpha", 0.9), number("beta", 0.999)
    epsilon, post = number("epsilon", 1e-6), number("norm_coefficient_post", 0.0)
    rates = _in_types(b, _adam_rate(node, b, alpha, beta))
    rows: list[tuple[ir.Value, ...]] = []
    for x, g, v, h in _tensors(node, 4):
        g = _regularized(node, b, x, g)
        v_new = b.add(b.mul(v, alpha), b.mul(g, 1 - alpha))
        h_new = b.add(b.mul(h, beta), b.mul(b.square(g), 1 - beta))
        direction = b.div(b.mul(rates(x), v_new), b.add(b.sqrt(h_new), epsilon))
        x_new = b.sub(x, direction)
        rows.append((b.mul(x_new, 1 - post) if post else x_new, v_new, h_new))
    return _in_order(rows)


def lower_momentum(node: ir.Node, b: Builder) -> list[ir.Value]:
    """Lower Momentum, standard or Nesterov's.

    G' = norm_coefficient * X + G; V_new = alpha * V + (beta if T > 0 else 1) * G';
    X_new = X - R * V_new, or X - R * (G' + alpha * V_new) if mode is "nesterov"
    """
    rate, count = _scalars(node, b)
    mode = node.attributes.get_string("mode")
    if mode not in ("standard", "nesterov"):
        raise TrainingInfoError(
            "unknown mode of Momentum",
            where=place(node),
            found=repr(mode),
            expected="'standard' or 'nesterov'",
        )
    alpha, beta = (node.attributes.get_float(name, 0.0) for name in ("alpha", "beta"))
    rates = _in_types(b, rate)
    rows: list[tuple[ir.Value, ...]] = []
    for x, g, v in _tensors(node, 3):
        g = _regularized(node, b, x, g)
        scaled = g
        if beta != 1:
            one, other = b.operand(1.0, x), b.operand(beta, x)
            scaled = b.mul(b.where(b.greater(count, 0), other, one), g)
        v_new = b.add(b.mul(v, alpha), scaled)
        direction = b.add(g, b.mul(v_new, alpha)) if mode == "nesterov" else v_new
        rows.append((b.sub(x, b.mul(rates(x), direction)), v_new))
    return _in_order(rows)


OPTIMIZERS: Mapping[str, Lowering] = {
    "Adagrad": lower_adagrad,
    "Adam": lower_adam,
    "Momentum": lower_momentum,
}
"""Operator of ai.onnx.preview.training -> its lowering."""


def _adam_rate(node: ir.Node, b: Builder, alpha: float, beta: float) -> ir.Value:
    """Return the learning rate with the bias of both averages corrected, in float64."""
    rate, count = _scalars(node, b)
    rate, power = b.cast(rate, _DOUBLE), b.cast(count, _DOUBLE)
    first = b.sub(1.0, b.pow(b.operand(alpha, power), power))
    second = b.sub(1.0, b.pow(b.operand(beta, power), power))
    return b.where(b.greater(count, 0), b.div(b.mul(rate, b.sqrt(second)), first), rate)


def _scalars(node: ir.Node, b: Builder) -> tuple[ir.Value, ir.Value]:
    """Return R and T as scalars; some exporters give them one axis."""
    if len(node.inputs) < _LEADING or None in node.inputs:
        raise TrainingInfoError("an input is missing", where=place(node), expected="R, T, X, ...")
    rate, count = (v for v in node.inputs[:_LEADING] if v is not None)
    empty = b.vector([])
    return tuple(v if b.rank(v) == 0 else b.op("Reshape", v, empty) for v in (rate, count))  # pyright: ignore[reportReturnType] two of them


def _in_types(b: Builder, value: ir.Value) -> Callable[[ir.Value], ir.Value]:
    """Return a function that casts a value to the type of another, once per type."""

    @cache
    def cast(dtype: ir.DataType) -> ir.Value:
        return b.cast(value, dtype)

    return lambda like: cast(b.type_of(like))


def _tensors(node: ir.Node, kinds: int) -> Iterable[tuple[ir.Value, ...]]:
    """Yield each optimized tensor, with its gradient and slots."""
    tensors = [v for v in node.inputs[_LEADING:] if v is not None]
    count, rest = divmod(len(tensors), kinds)
    if rest or not count or len(node.outputs) > count * (kinds - 1):
        raise TrainingInfoError(
            "the tensors do not form complete sets",
            where=place(node),
            found=f"{len(tensors)} tensors in, {len(node.outputs)} out",
            expected=f"{kinds} in and {kinds - 1} out per optimized tensor",
        )
    return zip(*(tensors[i * count : (i + 1) * count] for i in range(kinds)), strict=True)


def _regularized(node: ir.Node, b: Builder, x: ir.Value, g: ir.Value) -> ir.Value:
    """Return norm_coefficient * X + G."""
    norm = node.attributes.get_float("norm_coefficient", 0.0)
    return b.add(b.mul(x, norm), g) if norm else g


def _in_order(rows: Sequence[tuple[ir.Value, ...]]) -> list[ir.Value]:
    """Return the new tensors, then their first slots, then their second."""
    return list(chain.from_iterable(zip(*rows, strict=True)))
