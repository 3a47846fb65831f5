"""How long the sequences of a model can be made, from what its values take at two lengths."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from amp_rewrite.graph.traits import operator
from amp_rewrite.numerics.inputs.consumers import constant

LONGEST = 1 << 17
"""The first power of two above 100,000."""

_SHORTEST_TABLE = 32


@dataclass(frozen=True)
class Growth:
    """Bytes of each value of a model, as powers of the length.

    Attributes:
        short: A length.
        long: A longer one.
        sizes: (bytes at the short length, bytes at the long one) of each value.
    """

    short: int
    long: int
    sizes: tuple[tuple[int, int], ...]

    @staticmethod
    def between(
        short: int, before: Mapping[str, int], long: int, after: Mapping[str, int]
    ) -> Growth:
        """Return the growth between two measurements of bytes by value name."""
        return Growth(short, long, tuple((before[n], after[n]) for n in before if n in after))

    def nbytes(self, length: int) -> float:
        """Return about how many bytes all values take at a length."""
        step, steps = math.log(self.long / self.short), math.log(length / self.short)
        return sum(
            before * (after / before) ** (steps / step) if before < after else after
            for before, after in self.sizes
            if before
        )


def candidate_lengths(model: ir.Model, above: int) -> Iterator[int]:
    """Yield lengths to try, the longest first: powers of two, and the lengths of tables.

    Args:
        model: The model.
        above: Lengths up to this one are left out.
    """
    powers = {1 << n for n in range(LONGEST.bit_length())}
    lengths = powers | {n for n in _table_lengths(model) if n >= _SHORTEST_TABLE}
    yield from sorted((n for n in lengths if above < n <= LONGEST), reverse=True)


def _table_lengths(model: ir.Model) -> Iterator[int]:
    """Yield the lengths of constants that nodes take rows or parts of: tables of positions."""
    for node in model.graph.all_nodes():
        if operator(node) in ("Gather", "Slice"):  # operators: they take rows of a table by number
            table = constant(node.inputs[0])
            yield from () if table is None else table.shape.numpy()
