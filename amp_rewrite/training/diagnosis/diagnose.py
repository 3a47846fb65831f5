"""Find the errors of one run of a step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT32, LOW, DType
from amp_rewrite.graph import elements
from amp_rewrite.graph.io.read_object import infer_types
from amp_rewrite.graph.step_part import Part, part_in, source_in
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.graph.traverse import inputs_of
from amp_rewrite.numerics.compare.intermediates import read_in_parts
from amp_rewrite.numerics.emulate.evaluator import Evaluator
from amp_rewrite.numerics.emulate.low_sums import Sums
from amp_rewrite.rewriting.widen import widen
from amp_rewrite.training.diagnosis.diagnosis import Diagnosis, LayerUnderflow, NonFinite
from amp_rewrite.training.graph.replicas import resolve
from amp_rewrite.training.loss_scaling.gradients import is_check
from amp_rewrite.training.loss_scaling.loss_scale import ROLES
from amp_rewrite.training.step.cut_step import values_by_name
from amp_rewrite.training.step.step import Step
from amp_rewrite.training.step.step_info import DEFAULT_FETCHES, StepInfo

Array = np.ndarray[Any, Any]

_FLOATS = tuple(
    elements.tensor(t)
    for t in (
        *(ir.DataType.FLOAT, ir.DataType.DOUBLE),
        *(ir.DataType.FLOAT16, ir.DataType.BFLOAT16),
    )
)


class StepValues:
    """A step, its states and a batch. Sums over shards hold the part of this shard.

    Attributes:
        model: The step, with the fetches of its session.
        info: Its description.
        types: Floating-point value of the main graph -> its type.
    """

    def __init__(
        self, step: Step, states: Mapping[str, Array], feeds: Mapping[str, Array], sums: Sums
    ) -> None:
        """Keep the arguments of `diagnose`."""
        fetches = [name for name in DEFAULT_FETCHES if name in step.info.fetches]
        self.model, self.info = step.cut(fetches)
        resolve(self.model)
        inferred = infer_types(self.model)
        values = (v for node in self.model.graph for v in node.outputs if v.name)
        self.types = {v: inferred[v] for v in values if inferred.get(v) in _FLOATS}
        self.fed = {**states, **feeds}
        self._sums = sums

    def read(
        self, names: Sequence[str], *others: ir.Model
    ) -> Iterator[tuple[Mapping[str, Array], ...]]:
        """Run the step, with 16-bit types emulated, and yield values in chunks that fit memory.

        Yields:
            Name -> array for the step, and for each of the other models, which have the same names.
        """
        models = (self.model, *others)
        runs = [Evaluator(model, outputs=names, accumulate_low=self._sums) for model in models]
        feeds = {name: self.fed[name] for name in runs[0].inputs if name in self.fed}
        yield from read_in_parts(names, *(partial(run.run, feeds) for run in runs))


BACKWARD = "backward"

_WORDS = {
    Part.LOSS: "forward",
    Part.ARITHMETIC: "forward",
    Part.RANDOM: "forward",
    Part.GRADIENT: BACKWARD,
    Part.CLIP: "clipping",
    Part.ALL_REDUCE: "sum over shards",
    Part.LOSS_SCALE: "loss scaling",
    Part.UPDATE: "update",
}


def part_word(node: ir.Node) -> str:
    """Return the part of a step that a node belongs to; a cast belongs to its input's."""
    part = part_in(node.metadata_props)
    while part is None and node.op_type == "Cast" and node.inputs[0] is not None:
        producer = node.inputs[0].producer()
        if producer is None:
            break
        node, part = producer, part_in(producer.metadata_props)
    return "forward" if part is None else _WORDS[part]


def layer_of(node: ir.Node) -> str | None:
    """Return the node of the model that a node is the gradient of; a cast has its reader's."""
    source = source_in(node.metadata_props)
    if source is not None or node.op_type != "Cast":
        return source
    readers = (source_in(r.metadata_props) for value in node.outputs for r, _ in value.uses())
    return next((layer for layer in readers if layer is not None), None)


def diagnose(
    step: Step, states: Mapping[str, Array], feeds: Mapping[str, Array], sums: Sums
) -> Diagnosis:
    """Run a step once more, on the CPU, and check every value; for `sums` see `emulate_model`.

    Raises:
        RunError: ONNX Runtime cannot run it.
    """
    run = StepValues(step, states, feeds, sums)
    counted, ends = count_all(run), ends_of(run)
    low, scale = LOW.get(step.info.precision), _scale(run.info, states)
    return Diagnosis(
        finite=not any(counted[end].worst for end in ends if end in counted),
        first=first_non_finite(run, counted, ends),
        precision=step.info.precision,
        loss_scale=scale,
        layers=() if low is None else underflows(run, low, scale),
    )


def _scale(info: StepInfo, states: Mapping[str, Array]) -> float:
    """Return the loss scale of a step."""
    state = info.having(ROLES[0])
    if state is not None:
        return float(states[state.name])
    return float((info.loss_scale or {}).get("config", {}).get("loss_scale_value", 1.0))


_LIVES = 0.99
"""The share of a gradient's elements that must not underflow."""


def underflows(run: StepValues, low: DType, scale: float) -> tuple[LayerUnderflow, ...]:
    """Return the underflow of every layer whose gradients are 16-bit."""
    found = dict(_gradients(run, low))
    layers = {str(value.name): source for value, source in found.items()}
    worst_of: dict[str, LayerUnderflow] = {}
    for rounded, exact in run.read(list(layers), _in_float32(run.model, found)):
        for name, array in rounded.items():
            layer = _underflow(layers[name], name, array, exact[name], low, scale)
            if layer is not None:
                before = worst_of.get(layer.layer)
                worst_of[layer.layer] = layer if before is None else _worse(before, layer)
    return tuple(worst_of.values())


def _in_float32(model: ir.Model, wanted: Iterable[ir.Value]) -> ir.Model:
    """Return a model in float32, where results of casts are copies of their operands."""
    wide = widen(model, keep_io_types=False).model
    values = values_by_name(wide.graph)
    for value in wanted:
        source = value
        while source.name not in values and (node := source.producer()) is not None:
            assert node.inputs[0] is not None, "what is not there any more was cast"
            source = node.inputs[0]
        if source is not value:
            copy = ir.node("Identity", [values[str(source.name)]])
            copy.outputs[0].name = value.name
            copy.outputs[0].type, copy.outputs[0].shape = ir.TensorType(FLOAT32.ir), value.shape
            wide.graph.append(copy)
    return wide


def _gradients(run: StepValues, low: DType) -> Iterator[tuple[ir.Value, str]]:
    """Yield 16-bit gradients, with the node that they are the gradient of.

    Only values that depend on the seed of the backward pass are multiplied by the loss scale.
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
    """Compare one gradient with its float32 form; None if that is all zeros."""
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
    """Return the gradient that loses more, with the scales of both."""
    return replace(
        max(one, other, key=lambda layer: layer.lost),
        lives_at=max(one.lives_at, other.lives_at),
        overflows_above=min(one.overflows_above, other.overflows_above),
    )


class Census(NamedTuple):
    """The numbers of elements of a value, and its largest finite magnitude (0 if none)."""

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
    def worst(self) -> int:
        """2 for NaN, 1 for an infinity, 0 if all are finite; computations never lower it."""
        return 2 if self.nan else 1 if self.infinite else 0


Censuses = Mapping[ir.Value, Census]


def count_all(run: StepValues) -> dict[ir.Value, Census]:
    """Return the censuses of a step's inputs, constants and computed values."""
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
    """Return the values that must be finite: loss, gradients, next states, checked values."""
    values, info = values_by_name(run.model.graph), run.info
    names = [info.loss, *(info.gradients or {}).values(), *(s.output for s in info.states)]
    checked = [v for node in run.model.graph if is_check(node) for v in inputs_of(node)]
    return [*(values[name] for name in names if name in values), *checked]


def first_non_finite(
    run: StepValues, counted: Censuses, ends: Iterable[ir.Value]
) -> NonFinite | None:
    """Return the first value that makes an end not finite.

    An infinity that ends do not get, such as that of a mask before a softmax, does not count.
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
        before = max((counted[v].worst for v in inputs_of(node) if v in counted), default=0)
        for value in node.outputs:
            if value in reached and counted[value].worst > before:
                return _found(value, counted, part_word(node))
    return None


def _reached(counted: Censuses, ends: Iterable[ir.Value]) -> set[ir.Value]:
    """Return the values that are not finite, from ends backwards through such values."""
    reached: set[ir.Value] = set()
    left = list(ends)
    while left:
        value = left.pop()
        if value in reached or value not in counted or not counted[value].worst:
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
