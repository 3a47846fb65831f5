"""Find what is wrong with one run of a step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import LOW, DType
from amp_rewrite.graph import elements
from amp_rewrite.graph.traverse import inputs_of
from amp_rewrite.numerics.emulate.low_sums import Sums
from amp_rewrite.numerics.emulate.widened import widened
from amp_rewrite.training.diagnosis.diagnosis import Diagnosis, LayerUnderflow
from amp_rewrite.training.diagnosis.first_non_finite import (
    Kind,
    count_all,
    ends_of,
    first_non_finite,
)
from amp_rewrite.training.diagnosis.step_values import StepValues, layer_of
from amp_rewrite.training.loss_scaling.loss_scale import ROLES
from amp_rewrite.training.step.cut_step import values_by_name
from amp_rewrite.training.step.step import Step
from amp_rewrite.training.step.step_info import StepInfo

Array = np.ndarray[Any, Any]


def diagnose(
    step: Step, states: Mapping[str, Array], feeds: Mapping[str, Array], sums: Sums
) -> Diagnosis:
    """Run a step once more, on the CPU, and look at every value.

    The step has everything that can be fetched, and is not changed; `sums` is how the target adds
    up in its precision, see `emulate_model`.

    Raises:
        RunError: ONNX Runtime cannot run it.
    """
    run = StepValues(step, states, feeds, sums)
    counted, ends = count_all(run), ends_of(run)
    low, scale = LOW.get(step.info.precision), _scale(run.info, states)
    return Diagnosis(
        finite=all(counted[end].kind is Kind.FINITE for end in ends if end in counted),
        first=first_non_finite(run, counted, ends),
        precision=step.info.precision,
        loss_scale=scale,
        layers=() if low is None else underflows(run, low, scale),
    )


def _scale(info: StepInfo, states: Mapping[str, Array]) -> float:
    """Return what the loss is multiplied by."""
    state = info.having(ROLES[0])
    if state is not None:
        return float(states[state.name])
    return float((info.loss_scale or {}).get("config", {}).get("loss_scale_value", 1.0))


_LIVES = 0.99
"""The share of a gradient's elements that is to live: the smallest few never do."""


def underflows(run: StepValues, low: DType, scale: float) -> tuple[LayerUnderflow, ...]:
    """Return what every layer loses whose gradients are computed in a low precision."""
    layers = {str(value.name): source for value, source in _gradients(run, low)}
    worst_of: dict[str, LayerUnderflow] = {}
    for rounded, exact in run.read(list(layers), widened(run.model)):
        for name, array in rounded.items():
            layer = _underflow(layers[name], name, array, exact[name], low, scale)
            if layer is not None:
                before = worst_of.get(layer.layer)
                worst_of[layer.layer] = layer if before is None else _worse(before, layer)
    return tuple(worst_of.values())


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
