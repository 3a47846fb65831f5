"""Weights of a 16-bit model whose numbers a converter seems to have lost.

Some converters clip what float16 does not hold to +-10,000 or +-65,504, others write infinities.
The file's own float32 form has the same weights: compared with it, nothing is wrong. So weights are
counted that share one extreme magnitude, far more of them than of any that is nearly as large.

Evidence: 886 of 1,024 weights at +-10,000 (tests/numerics/test_lost_weights.py): compared with its
own float32 form, the model passes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from amp_rewrite.base.printable import printable
from amp_rewrite.dtypes import LOW, DType
from amp_rewrite.graph.flat import FlatGraph
from amp_rewrite.graph.proto.stored import StoredTensor

LEAST = 5000.0
"""Nobody clips to less; at 1 lie masks, signs and weights that were trained within bounds."""

FEWEST = 8
"""How many elements of one extreme magnitude are not there by chance."""

TIMES = 4
"""How many times as many they are as of any of the magnitudes next to it."""

_BESIDE = 16
_VARIED = 16
"""A tensor of fewer magnitudes is a mask, or a constant that was written down."""

_MAGNITUDE, _MAGNITUDES = 0x7FFF, 1 << 15


@dataclass(frozen=True, slots=True)
class LostWeights:
    """Probable losses in the weights of a model.

    Attributes:
        clipped: How many elements seem clipped, in all tensors together.
        infinite: How many are infinite or NaN.
        tensor: The first such tensor, which lost `count` of `size` elements.
        magnitude: The magnitude to which its elements seem clipped; None if they are infinite.
    """

    clipped: int
    infinite: int
    tensor: str
    magnitude: float | None
    count: int
    size: int

    def __str__(self) -> str:
        """Return why the verdict is in doubt, and the remedy."""
        kind = "infinite or NaN" if self.magnitude is None else f"exactly +-{self.magnitude:g}"
        more = self.clipped + self.infinite - self.count
        beside = f", and {more:,} in other weights" if more else ""
        return (
            f"{self.count:,} of {self.size:,} elements of the weight {printable(self.tensor)} are "
            f"{kind}{beside}: a converter seems to have lost their numbers. Convert the float32 "
            "model again, or name it: --original MODEL"
        )


def lost_weights(flat: FlatGraph) -> LostWeights | None:
    """Return what seems to be lost of the 16-bit weights of a model; None if nothing does.

    Raises:
        LoadError: A weight cannot be read.
    """
    lows = {low.number: low for low in LOW.values()}
    held = dict(flat.tensors)
    for node in flat.nodes_of("Constant"):
        if (tensor := flat.held(node)) is not None:
            held[flat.outputs_of(node)[0]] = tensor
    found = [
        (flat.value_names[value], tensor.size, *_lost(tensor, lows[tensor.dtype]))
        for value, tensor in held.items()
        if tensor.dtype in lows
    ]
    lost = [each for each in found if each[2] or each[4]]
    if not lost:
        return None
    name, size, clipped, magnitude, infinite = lost[0]
    count, first = (clipped, magnitude) if clipped else (infinite, None)
    totals = sum(each[2] for each in lost), sum(each[4] for each in lost)
    return LostWeights(*totals, name, first, count, size)


def _lost(tensor: StoredTensor, low: DType) -> tuple[int, float, int]:
    """Return how many elements seem clipped, to which magnitude, and how many are not finite."""
    counts = np.zeros(_MAGNITUDES, np.int64)
    for block in tensor.stream.blocks():
        bits = np.ascontiguousarray(block, low.numpy).view(np.uint16) & _MAGNITUDE
        counts += np.bincount(bits, minlength=_MAGNITUDES)
    infinity = int(np.array(np.inf, low.numpy).view(np.uint16))
    finite = counts[:infinity]
    if np.count_nonzero(finite) < _VARIED:
        return 0, 0.0, 0
    infinite, top = int(counts[infinity:].sum()), int(np.flatnonzero(finite)[-1])
    magnitude = float(np.array(top, np.uint16).view(low.numpy))
    clipped, beside = int(finite[top]), int(finite[max(0, top - _BESIDE) : top].max(initial=0))
    is_clipped = magnitude >= LEAST and clipped >= max(FEWEST, TIMES * beside)
    return clipped if is_clipped else 0, magnitude, infinite
