"""How many products an Einsum adds up for each element of its result."""

from __future__ import annotations

import math
from collections.abc import Sequence

Shape = Sequence[int | None]


def einsum_terms(equation: str, shapes: Sequence[Shape | None]) -> int | None:
    """Return the product of the lengths of the letters that the result lacks; None if unknown.

    It is 1 if the result has them all: an outer product.

    Args:
        equation: The attribute of the node.
        shapes: Those of the operands, as far as they are known.
    """
    text = equation.replace(" ", "")
    left, arrow, right = text.replace("...", "").partition("->")
    if not arrow:
        right = "".join(c for c in set(left) if left.count(c) == 1)
    lengths: dict[str, int | None] = {c: None for c in left if c not in {",", *right}}
    if "..." in text:
        return None if lengths else 1
    for term, shape in zip(left.split(","), shapes, strict=False):
        for letter, length in zip(reversed(term), reversed(shape or ()), strict=False):
            if letter in lengths and length is not None:
                lengths[letter] = max(length, lengths[letter] or 0)
    known = [length for length in lengths.values() if length is not None]
    return math.prod(known) if len(known) == len(lengths) else None
