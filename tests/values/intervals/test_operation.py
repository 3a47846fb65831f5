"""What a transfer rule sees of a node."""

from __future__ import annotations

from typing import Any

from interval_models import known_of, model_of

from amp_rewrite.values.intervals.operation import Operation


def operation(body: str, inputs: str = "float[2,3] x, float[2,3] z", **options: Any) -> Operation:
    """Return the last node of a model."""
    known = known_of(model_of(body, inputs, **options), {"x": (1, 2)})
    node = known.flat.n_nodes - 1
    return Operation(known, node)
