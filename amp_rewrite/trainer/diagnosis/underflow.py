"""What underflow takes from gradients, layer by layer: low precision beside float32."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import DType
from amp_rewrite.emulate.widened import widened
from amp_rewrite.graph import elements
from amp_rewrite.graph.traverse import inputs_of
from amp_rewrite.trainer.diagnosis.diagnosis import LayerUnderflow
from amp_rewrite.trainer.diagnosis.step_places import layer_of
from amp_rewrite.trainer.diagnosis.step_values import StepValues
from amp_rewrite.trainer.step.cut import values_by_name

Array = np.ndarray[Any, Any]

_LIVES = 0.99
"""The share of a gradient's elements that is to live: the smallest few never do."""


def underflows(run: StepValues, low: DType, scale: float) -> tuple[LayerUnderflow, ...]:
    """Return what every layer loses whose gradients are computed in a low precision.

    Args:
        run: The step.
        low: What it computes in.
        scale: What its loss is multiplied by.
    """
    layers = {str(value.name): source for value, source in _gradients(run, low)}
    found: dict[str, LayerUnderflow] = {}
    for rounded, exact in run.read(list(layers), widened(run.model)):
        for name, array in rounded.items():
            layer = _underflow(layers[name], name, array, exact[name], low, scale)
            if layer is not None:
                known = found.get(layer.layer)
                found[layer.layer] = layer if known is None else _worse(known, layer)
    return tuple(found.values())


def _gradients(run: StepValues, low: DType) -> Iterator[tuple[ir.Value, str]]:
    """Yield gradients in a low precision, with the node that they are the gradient of.

    They are what depends on the seed of the backward pass; its other values, such as the slopes of
    activations, are not multiplied by the loss scale.
    """
    seed = values_by_name(run.model.graph).get(run.info.seed or "")
    scaled = set() if seed is None else {seed}
    kind = elements.tensor(low.ir)
    for node in run.model.graph:
        if scaled.isdisjoint(inputs_of(node)):
            continue
        scaled.update(node.outputs)
        layer = layer_of(node)
        if layer is not None:
            yield from ((v, layer) for v in node.outputs if run.types.get(v) == kind)


def _underflow(
    layer: str, name: str, rounded: Array, exact: Array, low: DType, scale: float
) -> LayerUnderflow | None:
    """Compare one gradient with what it is in float32; None if that is nothing but zeros."""
    reference = np.abs(exact.astype(np.float64))
    alive = np.isfinite(reference) & (reference > 0)
    magnitudes = reference[alive]
    if not magnitudes.size:
        return None
    zero = rounded.astype(np.float64) == 0
    smallest = float(np.quantile(magnitudes, 1 - _LIVES, method="lower"))
    return LayerUnderflow(
        layer=layer,
        value=name,
        elements=reference.size,
        zeros=float(zero.mean()),
        lost=float(zero[alive].mean()),
        lives_at=scale * 2.0 ** math.ceil(math.log2(low.smallest_subnormal / smallest)),
        overflows_above=scale * 2.0 ** math.floor(math.log2(low.max / float(magnitudes.max()))),
    )


def _worse(one: LayerUnderflow, other: LayerUnderflow) -> LayerUnderflow:
    """Return the gradient that loses more, with what all of the layer need."""
    return replace(
        max(one, other, key=lambda layer: layer.lost),
        lives_at=max(one.lives_at, other.lives_at),
        overflows_above=min(one.overflows_above, other.overflows_above),
    )
