"""Nodes that compute something else than the original's: a broken file, not a rounding.

Where an output is further off than the inputs of its node, the original's node is run in float32 on
the inputs that the rewritten model gives it. Cancellation, steep functions and steps make the same
of these; another weight, a lost fraction or a state that was reset do not. How much of a difference
is rounding is measured: the node is run once more on inputs and weights moved by a rounding each.

Evidence: tests/corpus/test_broken_on_purpose.py: 15 of 197 breakages are found by this alone (7 in
magika alone), since the outputs hold.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT32, LOW, DType
from amp_rewrite.errors import AmpError
from amp_rewrite.graph.tensors import known_tensor
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.graph.traverse import subgraphs
from amp_rewrite.numerics.compare.distance import is_float
from amp_rewrite.numerics.compare.intermediates import (
    BUDGET_BYTES,
    IntermediateComparer,
    Run,
    are_fills,
)
from amp_rewrite.numerics.compare.masked_rows import rows_of
from amp_rewrite.numerics.compare.verify_records import Inside
from amp_rewrite.numerics.emulate.evaluator import Evaluator
from amp_rewrite.numerics.emulate.typed_model import TypedModel
from amp_rewrite.numerics.inputs.batches import Array

FAR = 0.1
"""How far an output may be off, relative to its size, where a node adds up in the low type.

Running sums in 11 bits lose that much with thousands of terms, and nothing here measures it."""

ROUNDINGS = 8.0
"""How many times as far as one rounding of everything that it reads moves it an output may be off.

Rounded arithmetic, several uses of one rounded number and another order of sums are within that."""

UNITS = 4.0
"""How many epsilons of its type an output may be off besides."""

LEAST = 1e-3
"""A difference that is smaller, relative to the output's size, is never named."""

_GROWTH = 3.0
"""How many times as far off as the inputs of its node an output is whose node is run."""

_TRIES = 12

_FEW = 8
"""A constant of at most 8 elements may be a size or a factor of sizes, which is not moved."""

Values = Mapping[str, Any]
Known = Mapping[str, list[str]]
"""Name in the original -> the names of the same value in the rewritten model, casts last."""


@dataclass(frozen=True)
class Seen:
    """The rewritten model on one feed.

    Attributes:
        run: Returns values inside by name.
        masked: The rows of attention without any score, which are left out.
        others: The names of values that are not floats, which can be fetched.
        low: The lowest precision of the rewritten model.
        adds_low: Operators that add up in it.
    """

    run: Run
    masked: tuple[Array, ...]
    others: Collection[str]
    low: DType
    adds_low: Collection[str]


@dataclass(frozen=True)
class _Suspect:
    """A node whose output is further off than what it reads."""

    node: ir.Node
    output: str
    growth: float


def other_inputs(before: TypedModel, after: TypedModel) -> list[str]:
    """Return the names of what nodes read in both models that is neither float nor constant."""
    types_after = {v.name: after.types.get(v) for node in after.model.graph for v in node.outputs}
    types_after |= {v.name: after.types.get(v) for v in after.model.graph.inputs}
    types = before.types
    read = (v for node in before.model.graph for v in node.inputs if v is not None)
    return list(
        dict.fromkeys(
            v.name
            for v in read
            if v.name and types.get(v) in _OTHERS and types_after.get(v.name) == types.get(v)
        )
    )


_OTHERS = frozenset(f"tensor({name})" for name in ("bool", "int32", "int64", "uint8", "int8"))


def misfits(original: TypedModel, inside: IntermediateComparer, seen: Seen) -> tuple[Inside, ...]:
    """Return the first node that computes something else, if there is one.

    Args:
        original: The model before.
        inside: What is known of the values inside, over all feeds.
        seen: The rewritten model on a feed.
    """
    names_of: dict[str, list[str]] = {}
    for name, before in inside.pairs.items():
        names_of.setdefault(before, []).append(name)
    suspects = list(_find_suspects(original, names_of, inside.errors(), seen))
    worst = sorted(suspects, key=lambda each: -each.growth)[:_TRIES]
    chosen = [each for each in suspects if each in worst]
    for suspect, values in _with_values(chosen, names_of, seen, inside.sizes):
        error = _error(suspect, names_of, seen, original, values)
        if error is not None:
            node = suspect.node
            return (Inside(suspect.output, node.name or "", node.op_type, error),)
    return ()


def _find_suspects(
    original: TypedModel, names_of: Known, errors: Mapping[str, float], seen: Seen
) -> Iterator[_Suspect]:
    for node in original.model.graph:
        read = _read(node, names_of).values()
        entering = max((min(errors.get(n, 0.0) for n in names) for names in read), default=0.0)
        least = max(entering, LEAST / _GROWTH, seen.low.epsilon / 4)
        for name in names_of.get(node.outputs[0].name or "", ()) if node.outputs else ():
            error = errors.get(name, 0.0)
            if _GROWTH * least < error < math.inf and _can_run(node, original, names_of, seen):
                yield _Suspect(node, name, error / least)
                break


def _with_values(
    suspects: Sequence[_Suspect], names_of: Known, seen: Seen, sizes: Mapping[str, int]
) -> Iterator[tuple[_Suspect, Values]]:
    """Yield suspects with the values that they need: one run is for as many as memory holds."""
    left = list(suspects)
    while left:
        names: set[str] = set()
        count = 0
        for suspect in left:
            more = names | _needed_values(suspect, names_of, seen)
            if count and sum(sizes.get(name, 0) for name in more) > BUDGET_BYTES:
                break
            names, count = more, count + 1
        values = seen.run(names)
        yield from ((suspect, values) for suspect in left[:count])
        left = left[count:]


def _needed_values(suspect: _Suspect, names_of: Known, seen: Seen) -> set[str]:
    """Return the values of the rewritten model that say whether a node is a misfit."""
    read = _read(suspect.node, names_of).values()
    others = (v.name for v in suspect.node.inputs if v is not None and v.name in seen.others)
    return {suspect.output, *(name for names in read for name in names), *filter(None, others)}


def _read(node: ir.Node, names_of: Known) -> dict[str, list[str]]:
    """Return the compared values that a node reads, with their names in the rewritten model."""
    names = [v.name or "" for v in node.inputs if v is not None]
    return {name: names_of[name] for name in names if name in names_of}


def _can_run(node: ir.Node, original: TypedModel, names_of: Known, seen: Seen) -> bool:
    if any(subgraphs(node)) or has(node, Trait.RANDOM):
        return False
    if (node.domain, node.op_type, node.overload) in original.model.functions:
        return False
    there = (
        v is None or v.name in names_of or v.name in seen.others or known_tensor(v) is not None
        for v in node.inputs
    )
    return all(there) and original.types.get(node.outputs[0]) == "tensor(float)"


def _error(
    suspect: _Suspect, names_of: Known, seen: Seen, original: TypedModel, values: Values
) -> float | None:
    """Return how far an output is from what the original's node makes of the same inputs.

    None where that is a rounding, or not known.
    """
    node = suspect.node
    read = _read(node, names_of)
    others = [v.name for v in node.inputs if v is not None and v.name in seen.others]
    if not _needed_values(suspect, names_of, seen) <= values.keys():
        return None
    alone = SingleNode(node, original.model)
    output = np.asarray(values[suspect.output])
    errors: list[float] = []
    for feeds in _choices(read, values):
        results = alone.results({**feeds, **{n: values[n] for n in others if n}}, seen.low)
        beyond = None if results is None else _error_beyond_rounding(suspect, output, results, seen)
        if not beyond:  # not known, or a rounding of these inputs
            return None
        errors.append(beyond)
    return min(errors, default=None)


def _choices(read: Known, values: Values) -> Iterator[Values]:
    """Yield the inputs of a node as they are before casts, and behind them."""
    has_casts = any(len(names) > 1 for names in read.values())
    for place in (0, -1) if has_casts else (0,):
        feeds = {name: np.asarray(values[names[place]]) for name, names in read.items()}
        if all(is_float(array) and np.isfinite(array).all() for array in feeds.values()):
            yield {name: array.astype(FLOAT32.numpy) for name, array in feeds.items()}


def _error_beyond_rounding(
    suspect: _Suspect, output: Array, results: tuple[Array, Array], seen: Seen
) -> float | None:
    """Return |output - expected| / |expected|, 0 if it may be rounding, None if nobody knows."""
    exact, moved = (np.asarray(array, np.float64) for array in results)
    if exact.shape != output.shape:
        return None
    type_ = _type(output)
    result = output.astype(np.float64)
    counts = np.asarray(
        np.isfinite(exact) & np.isfinite(result) & (np.abs(exact) <= seen.low.overflow)
    )
    counts[counts] = ~are_fills(exact[counts], result[counts])
    rows = rows_of(exact, seen.masked)
    if rows is not None:
        counts[rows] = False
    if moved.shape == exact.shape:
        counts &= np.isfinite(moved)
    size = float(np.linalg.norm(exact[counts]))
    if not size:
        return None
    noise = math.inf
    if moved.shape == exact.shape:
        noise = float(np.linalg.norm(moved[counts] - exact[counts])) / size
    units = UNITS * (type_.epsilon + type_.smallest_subnormal * math.sqrt(counts.sum()) / size)
    limit = max(LEAST, units + ROUNDINGS * noise)
    if noise == math.inf or (type_ is seen.low and suspect.node.op_type in seen.adds_low):
        limit = max(FAR, units + (0.0 if noise == math.inf else ROUNDINGS * noise))
    error = float(np.linalg.norm(result[counts] - exact[counts])) / size
    return error if error > limit else 0.0


def _type(array: Array) -> DType:
    return next((low for low in LOW.values() if low.numpy == array.dtype), FLOAT32)


class SingleNode:
    """A node of a model. Constants of floats are inputs, beside those that the node reads.

    Attributes:
        output: The name of its first output.
    """

    def __init__(self, node: ir.Node, model: ir.Model) -> None:
        """Take a node that has no bodies and is no call of a function."""
        self.output = node.outputs[0].name or ""
        self._node, self._model = node, model
        self._floats: dict[str, Array] = {}
        self._others: dict[str, Array] = {}
        for value in node.inputs:
            tensor = known_tensor(value)
            if value is not None and tensor is not None:
                numbers = tensor.numpy()
                held = self._floats if numbers.dtype == FLOAT32.numpy else self._others
                held[value.name or ""] = numbers
        self._evaluator: Evaluator | None = None

    def results(self, feeds: Values, low: DType) -> tuple[Array, Array] | None:
        """Return the first output, and what it is where all floats move by a rounding to `low`.

        Args:
            feeds: What the node reads besides constants: float32, or what the model has there.
            low: The type. Every number moves by half a unit in its last place, up or down.

        Returns:
            None where the runtime does not run the node by itself.
        """
        held = {**self._floats, **feeds}
        rng = np.random.default_rng(0)
        try:
            if self._evaluator is None:
                self._evaluator = Evaluator(self._model_of_node(held))
            exact = self._evaluator.run(held)[self.output]
            moved = {n: self._move_input(n, value, low, rng) for n, value in held.items()}
            return exact, self._evaluator.run(moved)[self.output]
        except AmpError:
            return None

    def _move_input(self, name: str, value: Array, low: DType, rng: np.random.Generator) -> Array:
        if not is_float(value) or (name in self._floats and value.size <= _FEW):
            return value
        with np.errstate(over="ignore", invalid="ignore"):
            step = np.abs(value) * (low.epsilon / 2) + low.smallest_subnormal / 2
            moved = (value + step * rng.choice([-1.0, 1.0], value.shape)).astype(value.dtype)
        return np.where(np.isfinite(moved) & (value != 0), moved, value)

    def _model_of_node(self, feeds: Values) -> onnx.ModelProto:
        graph = onnx.helper.make_graph(
            [ir.serde.serialize_node(self._node)],
            "node",
            [
                onnx.helper.make_tensor_value_info(
                    name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), [None] * value.ndim
                )
                for name, value in feeds.items()
            ],
            [onnx.helper.make_tensor_value_info(self.output, FLOAT32.number, None)],
            [onnx.numpy_helper.from_array(value, n) for n, value in self._others.items()],
        )
        opsets = [
            onnx.helper.make_opsetid(domain, version)
            for domain, version in self._model.graph.opset_imports.items()
        ]
        return onnx.helper.make_model(
            graph, opset_imports=opsets, ir_version=self._model.ir_version
        )
