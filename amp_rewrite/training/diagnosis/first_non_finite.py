"""The first value that is not finite, of those that make the loss or a gradient so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.graph.traverse import inputs_of
from amp_rewrite.training.diagnosis.diagnosis import NonFinite
from amp_rewrite.training.diagnosis.step_values import BACKWARD, StepValues, layer_of, part_word
from amp_rewrite.training.loss_scaling.finite import is_check
from amp_rewrite.training.step.cut_step import values_by_name


class Kind(IntEnum):
    """What the worst element of a value is: a computation makes NaN of infinities, never back."""

    FINITE = 0
    INFINITE = 1
    NAN = 2


@dataclass(frozen=True, slots=True)
class Census:
    """The elements of a value.

    Attributes:
        elements: How many there are.
        infinite: How many are infinite.
        nan: How many are NaN.
        largest: The largest finite magnitude; 0 if there is none.
    """

    elements: int
    infinite: int
    nan: int
    largest: float

    @staticmethod
    def of(array: Any) -> Census:
        """Count the elements of an array."""
        numbers = np.asarray(array, np.float64)
        nan, infinite = np.isnan(numbers), np.isinf(numbers)
        finite = numbers[~(nan | infinite)]
        largest = float(np.abs(finite).max()) if finite.size else 0.0
        return Census(numbers.size, int(infinite.sum()), int(nan.sum()), largest)

    @property
    def kind(self) -> Kind:
        """What the worst element is."""
        return Kind.NAN if self.nan else Kind.INFINITE if self.infinite else Kind.FINITE


Censuses = Mapping[ir.Value, Census]


def count_all(run: StepValues) -> dict[ir.Value, Census]:
    """Return the censuses of what a step is fed, of its constants, and of all that it computes."""
    censuses: dict[ir.Value, Census] = {}
    graph = run.model.graph
    for value in (*graph.inputs, *graph.initializers.values()):
        array = run.fed.get(str(value.name))
        if array is None and value.const_value is not None:
            array = value.const_value.numpy()
        if array is not None and (array.dtype.kind == "f" or array.dtype.name == "bfloat16"):
            censuses[value] = Census.of(array)
    by_name = {str(value.name): value for value in run.types}
    for (arrays,) in run.read(list(by_name)):
        censuses |= {by_name[name]: Census.of(array) for name, array in arrays.items()}
    return censuses


def ends_of(run: StepValues) -> list[ir.Value]:
    """Return what has to be finite: the loss, gradients, next states and what is checked."""
    values, info = values_by_name(run.model.graph), run.info
    names = [info.loss, *(info.gradients or {}).values(), *(s.output for s in info.states)]
    checked = [v for node in run.model.graph if is_check(node) for v in inputs_of(node)]
    return [*(values[name] for name in names if name in values), *checked]


def first_non_finite(
    run: StepValues, counted: Censuses, ends: Iterable[ir.Value]
) -> NonFinite | None:
    """Return the first value from which ends have what is not finite in them.

    An infinity that nothing passes on, such as that of a mask before a softmax, is none of them.
    Neither is one that a node only hands on.
    """
    reached = _reached(counted, ends)
    fed = {*run.info.names, *run.info.inputs}
    for value in run.model.graph.inputs:
        if value in reached and value.name in fed:
            part = "state" if value.name in run.info.names else "input"
            return _found(value, counted, part)
    for node in run.model.graph:
        if has(node, Trait.HOLDS):
            continue  # somebody has written it down
        before = max((counted[v].kind for v in inputs_of(node) if v in counted), default=0)
        for value in node.outputs:
            if value in reached and counted[value].kind > before:
                return _found(value, counted, part_word(node))
    return None


def _reached(counted: Censuses, ends: Iterable[ir.Value]) -> set[ir.Value]:
    """Return the values that are not finite and are on the way to an end through such values."""
    reached: set[ir.Value] = set()
    left = list(ends)
    while left:
        value = left.pop()
        if value in reached or value not in counted or counted[value].kind is Kind.FINITE:
            continue
        reached.add(value)
        node = value.producer()
        left.extend(() if node is None else inputs_of(node))
    return reached


def _found(value: ir.Value, counted: Censuses, part: str) -> NonFinite:
    node, census = value.producer(), counted[value]
    magnitudes = (
        [] if node is None else [counted[v].largest for v in inputs_of(node) if v in counted]
    )
    return NonFinite(
        value=str(value.name),
        node=None if node is None else node.name,
        op=None if node is None else node.op_type,
        part=part,
        layer=layer_of(node) if node is not None and part == BACKWARD else None,
        infinite=census.infinite,
        nan=census.nan,
        elements=census.elements,
        reached=max(magnitudes, default=None),
    )
