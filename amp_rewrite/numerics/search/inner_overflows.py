"""Which values inside a painting overflow, in one loaded model with gates."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from amp_rewrite.numerics.compare.distance import is_float
from amp_rewrite.numerics.compare.intermediates import Deviation, overflows
from amp_rewrite.numerics.inputs.batches import Feeds
from amp_rewrite.numerics.repaint.repaint import Repainter, Slot
from amp_rewrite.numerics.search.gates import GatedModel


def count_nonfinite(gated: GatedModel, feeds: Feeds, low: Collection[Slot]) -> dict[str, int]:
    """Return how many elements of each exposed value are infinite or NaN."""
    counts: dict[str, int] = {}
    for arrays in gated.values_in_chunks(feeds, low):
        counts |= {name: int((~np.isfinite(array)).sum()) for name, (array,) in arrays.items()}
    return counts


def overflows_inside(
    painter: Repainter, gated: GatedModel, feeds: Feeds, low: Collection[Slot]
) -> bool:
    """Tell whether a value that is finite in float32 overflows: by the rule of `verify`.

    Args:
        painter: The model.
        gated: The same with gates; what it exposes is looked at.
        feeds: A batch.
        low: What is low.
    """
    deviations: dict[str, Deviation] = {}
    outputs = {key: painter.nodes[key[0]].outputs[key[1]].name or "" for key in gated.values}
    keys = {name: key for key, name in gated.values.items()}
    for arrays in gated.values_in_chunks(feeds, (), low):
        for name, (a, b) in arrays.items():
            key = keys[name]
            if a.shape == b.shape and is_float(a):
                deviations[outputs[key]] = deviation = Deviation()
                deviation.add(a, b)
    return bool(overflows(deviations, {outputs[key]: painter.nodes[key[0]] for key in outputs}))
