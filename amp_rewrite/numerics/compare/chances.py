"""By how much two noises of few numbers differ by chance.

Evidence: four numbers of a chaotic map (tests/numerics/compare/test_moved_inputs.py): without, one
that no arithmetic can hold fails; with, it passes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from amp_rewrite.numerics.inputs.batches import Array

_NUMBERS = np.array([1.0, 2, 3, 4, 6, 8, 12, 16, 24, 32])
_RATIOS = np.array([6366.2, 99.995, 25.68, 13.11, 6.701, 4.765, 3.338, 2.758, 2.236, 2.0])
"""By how much the norms of two noises of N numbers each differ once in 10,000: the root of
what F(n, n) exceeds with a probability of 1e-4. Of a single number nothing can be said."""


def slack_of(numbers: Any) -> Array:
    """Return how many times as much norms of so few numbers differ as those of 32 or more."""
    counts = np.log(np.maximum(numbers, 1.0))
    return np.exp(np.interp(counts, np.log(_NUMBERS), np.log(_RATIOS))) / _RATIOS[-1]
