"""How long the sequences of a model can be made, from what its values take at two lengths."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from amp_rewrite.graph.traits import operator
from amp_rewrite.numerics.inputs.consumers import constant

Dimensions = tuple[int, ...]
"""Those of a value, and the bytes of an element."""

LONGEST = 1 << 17
"""The first power of two above 100,000."""

_SHORTEST_TABLE = 32


@dataclass(frozen=True)
class Growth:
    """Bytes of each value of a model at every length, by its dimensions at two.

    Attributes:
        short: A length.
        long: A longer one.
        sizes: (dimensions at the short length, those at the long one) of each value; bytes are the
            product of them, so that the last one is the size of an element.
    """

    short: int
    long: int
    sizes: tuple[tuple[Dimensions, Dimensions], ...]

    @staticmethod
    def between(
        short: int, before: Mapping[str, Dimensions], long: int, after: Mapping[str, Dimensions]
    ) -> Growth:
        """Return the growth between two measurements of dimensions by value name."""
        return Growth(short, long, tuple((before[n], after[n]) for n in before if n in after))

    def nbytes(self, length: int) -> float:
        """Return about how many bytes all values take at a length."""
        return sum(
            math.prod(self._dimension(*ends, length) for ends in zip(before, after, strict=True))
            for before, after in self.sizes
            if len(before) == len(after)
        )

    def _dimension(self, before: int, after: int, length: int) -> float:
        """Return one dimension at a length: a sum, as of past and new tokens, or a power of it."""
        if not 0 < before < after:
            return after
        added = (after - before) * (length - self.short) / (self.long - self.short)
        step, steps = math.log(self.long / self.short), math.log(length / self.short)
        return max(before + added, before * (after / before) ** (steps / step))


def candidate_lengths(model: ir.Model, above: int) -> Iterator[int]:
    """Yield lengths `above` one to try, longest first: powers of two, and the lengths of tables."""
    powers = {1 << n for n in range(LONGEST.bit_length())}
    lengths = powers | {n for n in _table_lengths(model) if n >= _SHORTEST_TABLE}
    yield from sorted((n for n in lengths if above < n <= LONGEST), reverse=True)


def _table_lengths(model: ir.Model) -> Iterator[int]:
    """Yield the lengths of constants that nodes take rows or parts of: tables of positions."""
    for node in model.graph.all_nodes():
        if operator(node) in ("Gather", "Slice"):  # operators: they take rows of a table by number
            table = constant(node.inputs[0])
            yield from () if table is None else table.shape.numpy()
