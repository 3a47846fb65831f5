"""Float32 numbers of every kind."""

import numpy as np


def samples() -> np.ndarray:
    """Return 330,000 of them: random bits, weights, tiny ones, ties, zeros, infinities, NaN."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 1 << 18, dtype=np.uint64).astype(np.uint32)
    ties = np.array(
        [2049, 2051, 65519.996, 65520, -65520, 2**-25, 2**-24 * 1.5, -(2**-25)], np.float32
    )
    return np.concatenate(
        [
            bits.view(np.float32),
            rng.standard_normal(70_001).astype(np.float32),
            (rng.standard_normal(1000) * 1e-6).astype(np.float32),
            ties,
            np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan], np.float32),
        ]
    )
