"""The activations that a recurrent operator may name; https://onnx.ai/onnx/operators/onnx__LSTM.html."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from amp_rewrite.grad.recurrent.emitter import Emitter

# operators: of those that take no parameter.
_PLAIN = frozenset({"Relu", "Sigmoid", "Softplus", "Softsign", "Tanh"})
# operators: those with parameters -> alpha and beta where none are given; None has no default.
_PARAMETERS: dict[str, tuple[float | None, ...]] = {
    "Affine": (None, None),
    "Elu": (1.0,),
    "HardSigmoid": (0.2, 0.5),
    "LeakyRelu": (0.01,),
    "ScaledTanh": (None, None),
    "ThresholdedRelu": (1.0,),
}


@dataclass(frozen=True)
class Activation:
    """An activation with its parameters.

    Attributes:
        name: As the operator names it.
        parameters: Alpha and beta, as far as it takes them; None where one is missing.
    """

    name: str
    parameters: tuple[float | None, ...] = ()

    def obstacle(self) -> str | None:
        """Return why it cannot be computed; None if it can."""
        if self.name not in _PLAIN and self.name not in _PARAMETERS:
            return f"the activation {self.name} is unknown"
        if None in self.parameters:
            return f"the activation {self.name} lacks its activation_alpha or activation_beta"
        return None

    def apply(self, e: Emitter, x: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Return the activation of x, which is of type `dtype`."""
        given = [number for number in self.parameters if number is not None]
        if self.name == "Affine":  # alpha x + beta
            alpha, beta = (e.constant(number, dtype) for number in given)
            return e.op("Add", e.op("Mul", alpha, x), beta)
        if self.name == "ScaledTanh":  # alpha tanh(beta x)
            alpha, beta = (e.constant(number, dtype) for number in given)
            return e.op("Mul", alpha, e.op("Tanh", e.op("Mul", beta, x)))
        named = dict(zip(("alpha", "beta"), given, strict=False))
        return e.op(self.name, x, **named)


def activations(
    names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]
) -> tuple[Activation, ...]:
    """Return activations with their parameters.

    Args:
        names: The activations of all gates, one direction after the other.
        alphas: What those that take an alpha consume, in this order; the rest have defaults.
        betas: The same for beta.
    """
    left = iter(alphas), iter(betas)
    return tuple(Activation(name, tuple(_parameters(name, left))) for name in names)


def _parameters(name: str, left: Sequence[Iterator[float]]) -> Iterator[float | None]:
    for default, given in zip(_PARAMETERS.get(name, ()), left, strict=False):
        yield next(given, default)
