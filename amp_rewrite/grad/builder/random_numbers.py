"""Random numbers that are a function of a counter, in integer operators that every provider has.

The last rounds, the only ones per element, are the permutation f(x) = x * (2 x + 1) modulo 2^32 of
R. Rivest, M. Robshaw, R. Sidney, Y. Yin, "The RC6 Block Cipher", 1998
(https://people.csail.mit.edu/rivest/pubs/RRSY98.pdf): the high bits, which decide, depend on all
lower ones.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from amp_rewrite.grad.builder.builder import Builder

ROW = 256
"""Numbers are made in rows of that many."""
STEP = 0x5851F42D
"""Tells steps apart."""
COUNTS = 1 << 31
"""Counters are taken modulo that."""
MODULUS = 1 << 32
POSITION = 0x9E3779B9
"""2^32 divided by the golden ratio: spreads consecutive numbers."""

_NODE, _COLUMN = 0x14057B7E, 0x3C6EF372  # tell sites and axes apart
FACTORS, DIVISORS = (0x7FEB352D, 0x46CA68B5, 0x31848BAB), (1 << 16, 1 << 15, 1 << 16)
LAST_DIVISOR = 1 << 16
"""Factors of a hash, each used after a quotient is added; and the divisor of the last quotient."""
_ROUNDS = 2


class RandomNumbers:
    """The random numbers of one step: independent ones for each site."""

    def __init__(self, b: Builder, counter: ir.Value) -> None:
        """Add what all sites share; `counter` is the number of the step: int64, shape ()."""
        self._b = b
        key = b.op("Mul", b.op("Mod", counter, b.constant(COUNTS)), b.constant(STEP))
        self._key = _hashed(b, key)
        columns = _numbers(b, b.constant(ROW), b.op("Add", self._key, b.constant(_COLUMN)))
        self._columns = b.op("Unsqueeze", columns, b.constant([0]))

    def rows(self, site: int, size: ir.Value) -> ir.Value:
        """Return at least `size` numbers: int32, uniform over all values, shape (rows, ROW).

        Number i * ROW + j is f(f(r_i + c_j)): r and c are hashed thoroughly, which costs little
        since there are few of them.

        Args:
            site: Which numbers of this step, from 0.
            size: An int64 scalar.
        """
        b = self._b
        key = b.op("Add", self._key, b.constant((site + 1) * _NODE))
        count = b.op("Div", b.op("Add", size, b.constant(ROW - 1)), b.constant(ROW))
        r = b.op("Unsqueeze", _numbers(b, count, key), b.constant([1]))
        x = b.op("Add", r, self._columns)
        for _ in range(_ROUNDS):
            x = _permuted(b, x)
        return x


def first(b: Builder, rows: ir.Value, size: ir.Value, shape: ir.Value) -> ir.Value:
    """Return the first elements of rows in a shape of that size."""
    flat = b.op("Reshape", rows, b.constant([-1]))
    end = b.op("Reshape", size, b.constant([1]))
    return b.op("Reshape", b.op("Slice", flat, b.constant([0]), end), shape)


def _permuted(b: Builder, x: ir.Value) -> ir.Value:
    """Return f(x) of int32 numbers."""
    twice = b.op("Add", x, x)
    return b.op("Mul", x, b.op("Add", twice, b.constant(np.array(1, np.int32))))


def _numbers(b: Builder, count: ir.Value, key: ir.Value) -> ir.Value:
    """Return `count` random numbers; int32, shape (count,).

    The last permutation is there because sums of two hashed numbers meet: without it two thirds of
    a tensor's numbers are copies of others.
    """
    positions = b.op("Range", b.constant(0), count, b.constant(1))
    x = _hashed(b, b.op("Add", b.op("Mul", positions, b.constant(POSITION)), key))
    centred = b.op("Sub", b.op("Mod", x, b.constant(MODULUS)), b.constant(MODULUS // 2))
    return _permuted(b, b.op("Cast", centred, to=ir.DataType.INT32.value))


def _hashed(b: Builder, x: ir.Value) -> ir.Value:
    """Mix the bits of non-negative int64 numbers, modulo 2^32.

    Multiplications carry them upwards, divisions downwards.
    """
    x = b.op("Mod", x, b.constant(MODULUS))
    for factor, divisor in zip(FACTORS, DIVISORS, strict=True):
        x = b.op("Add", x, b.op("Div", x, b.constant(divisor)))  # the product stays below 2^63
        x = b.op("Mod", b.op("Mul", x, b.constant(factor)), b.constant(MODULUS))
    return b.op("Add", x, b.op("Div", x, b.constant(LAST_DIVISOR)))
