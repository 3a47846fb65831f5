"""Rounding to a low type that does not lose what is small on average."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite import dtypes
from amp_rewrite.builder.builder import Builder
from amp_rewrite.builder.random_numbers import MODULUS, RandomNumbers, first

_BETWEEN = 0.6
"""Times epsilon and a low number: more than half of the gap behind it, less than 1.5 of it."""


def stochastic(b: Builder, x: ir.Value, dtype: ir.DataType, random: ir.Value) -> ir.Value:
    """Return float32 numbers in a low type, as one of both neighbours, with x as expected value.

    The nearest low number n is the one neighbour. The other one, behind x, is what n plus 0.6
    epsilon n rounds to: the gap is between 0.5 and 1 epsilon n. It is taken with the probability
    (x - n) / (neighbour - n). What is not finite stays so, and nothing rounds to an infinity that
    is nearer to a finite number.

    S. Gupta et al., "Deep Learning with Limited Numerical Precision", 2015,
    https://arxiv.org/abs/1502.02551.

    Args:
        b: Adds the nodes.
        x: float32.
        dtype: float16 or bfloat16.
        random: Numbers from 0 to 1, in the shape of x.
    """
    facts = dtypes.of(dtype)
    assert facts is not None, "a low type"
    nearest = b.cast(b.cast(x, dtype), ir.DataType.FLOAT)
    rest = b.sub(x, nearest)
    gap = b.maximum(b.mul(b.abs(nearest), facts.epsilon), facts.smallest_subnormal)
    behind = b.add(nearest, b.mul(b.sign(rest), b.mul(gap, _BETWEEN)))
    neighbour = b.cast(b.cast(behind, dtype), ir.DataType.FLOAT)
    share = b.div(rest, b.sub(neighbour, nearest))  # 0 / 0 where x is a low number: not taken
    return b.cast(b.where(b.less(random, share), neighbour, nearest), dtype)


def uniform(b: Builder, numbers: RandomNumbers, site: int, like: ir.Value) -> ir.Value:
    """Return random numbers from 0 to 1 in the shape of a tensor: float32."""
    size = b.size(like)
    whole = first(b, numbers.rows(site, size), size, b.shape(like))
    return b.add(b.mul(b.cast(whole, ir.DataType.FLOAT), 1 / MODULUS), 0.5)
