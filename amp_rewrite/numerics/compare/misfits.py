"""Nodes that compute something else than the original's: a broken file, not a rounding.

Where an output is further off than the inputs of its node, the original's node is run in float32 on
the inputs that the rewritten model gives it. Cancellation, steep functions and steps make the same
of these; another weight, a lost fraction or a state that was reset do not. How much of a difference
is rounding is measured: the node is run once more on inputs and weights moved by a rounding each.

Evidence: tests/corpus/test_broken_on_purpose.py: 16 of 197 breakages are found by this alone (7 in
magika alone), since the outputs pass.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT32, LOW, DType
from amp_rewrite.errors import AmpError
from amp_rewrite.graph.tensors import known_tensor
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.graph.traverse import subgraphs
from amp_rewrite.numerics.compare.distance import is_float
from amp_rewrite.numerics.compare.intermediates import IntermediateComparer, Run, chunked
from amp_rewrite.numerics.compare.moved_inputs import stepped
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

_OTHERS = frozenset(f"tensor({name})" for name in ("bool", "int32", "int64", "uint8", "int8"))

Values = Mapping[str, Any]
Known = Mapping[str, list[str]]
"""Name in the original -> the names of the same value in the rewritten model, casts last."""


class Seen(NamedTuple):
    """The rewritten model on one feed.

    `others` are values that are not floats and can be fetched, `adds_low` the operators that add up
    in the lowest precision, `low`.
    """

    run: Run
    others: Collection[str]
    low: DType
    adds_low: Collection[str]


def other_inputs(before: TypedModel, after: TypedModel) -> list[str]:
    """Return the names of what nodes read in both models that is neither float nor constant."""
    made = (v for node in after.model.graph for v in node.outputs)
    types_after = {v.name: after.types.get(v) for v in (*made, *after.model.graph.inputs)}
    read = (v for node in before.model.graph for v in node.inputs if v is not None and v.name)
    typed = ((v.name or "", before.types.get(v)) for v in read)
    names = (name for name, t in typed if t in _OTHERS and types_after.get(name) == t)
    return list(dict.fromkeys(names))


def misfits(original: TypedModel, inside: IntermediateComparer, seen: Seen) -> tuple[Inside, ...]:
    """Return the first node that computes something else, if there is one.

    `inside` is what is known of the values inside, over all feeds.
    """
    names_of: dict[str, list[str]] = {}
    for name, before in inside.pairs.items():
        names_of.setdefault(before, []).append(name)
    checks = _Misfits(original, names_of, seen)
    growths = dict(checks.growths(inside.errors()))
    worst = set(sorted(growths, key=lambda check: -growths[check])[:_TRIES])
    chosen = {check.output: check for check in growths if check in worst}
    sizes = {o: sum(inside.sizes.get(n, 0) for n in c.needed) for o, c in chosen.items()}
    for chunk in chunked(chosen, sizes):
        values = seen.run({name for output in chunk for name in chosen[output].needed})
        for output in chunk:
            error = checks.error(chosen[output], values)
            if error is not None:
                node = chosen[output].node
                return (Inside(output, node.name or "", node.op_type, error),)
    return ()


class _Check(NamedTuple):
    """A node, its output in the rewritten model, and the values there that it is run on."""

    node: ir.Node
    output: str
    needed: frozenset[str]


class _Misfits(NamedTuple):
    """The nodes of the original, each run on what the rewritten model gives it."""

    original: TypedModel
    names_of: Known
    seen: Seen

    def growths(self, errors: Mapping[str, float]) -> Iterator[tuple[_Check, float]]:
        """Yield nodes that can be run, and how many times as far off as its inputs each is."""
        for node in self.original.model.graph:
            read = self._read(node).values()
            entering = max((min(errors.get(n, 0.0) for n in names) for names in read), default=0.0)
            least = max(entering, LEAST / _GROWTH, self.seen.low.epsilon / 4)
            for name in self.names_of.get(node.outputs[0].name or "", ()) if node.outputs else ():
                error = errors.get(name, 0.0)
                if _GROWTH * least < error < math.inf and self._can_run(node):
                    floats = (n for names in read for n in names)
                    needed = frozenset({name, *floats, *self._others(node)})
                    yield _Check(node, name, needed), error / least
                    break

    def _others(self, node: ir.Node) -> list[str]:
        names = [v.name or "" for v in node.inputs if v is not None]
        return [name for name in names if name in self.seen.others]

    def _read(self, node: ir.Node) -> dict[str, list[str]]:
        """Return the compared values that a node reads, with their names in the rewritten model."""
        names = [v.name or "" for v in node.inputs if v is not None]
        return {name: self.names_of[name] for name in names if name in self.names_of}

    def _can_run(self, node: ir.Node) -> bool:
        if any(subgraphs(node)) or has(node, Trait.RANDOM):
            return False
        if (node.domain, node.op_type, node.overload) in self.original.model.functions:
            return False
        there = {*self._read(node), *self._others(node)}
        given = (v is None or v.name in there or known_tensor(v) is not None for v in node.inputs)
        return all(given) and self.original.types.get(node.outputs[0]) == "tensor(float)"

    def error(self, check: _Check, values: Values) -> float | None:
        """Return how far an output is from what the original's node makes of the same inputs.

        Relative to its size; None if it may be rounding, or nobody knows. Inputs are those after
        casts.
        """
        seen, node = self.seen, check.node
        feeds = {n: np.asarray(values[names[-1]]) for n, names in self._read(node).items()}
        if not all(is_float(array) and np.isfinite(array).all() for array in feeds.values()):
            return None
        wide = {name: array.astype(FLOAT32.numpy) for name, array in feeds.items()}
        others = {name: values[name] for name in self._others(node)}
        results = _run_node(node, self.original.model, wide | others, seen.low)
        if results is None:
            return None
        exact, moved = (np.asarray(array, np.float64) for array in results)
        output = np.asarray(values[check.output])
        if not exact.shape == moved.shape == output.shape:
            return None
        type_ = next((low for low in LOW.values() if low.numpy == output.dtype), FLOAT32)
        result = output.astype(np.float64)
        finite = np.isfinite(exact) & np.isfinite(moved) & np.isfinite(result)
        counts = np.asarray(finite & (np.abs(exact) <= seen.low.overflow))
        size = float(np.linalg.norm(exact[counts]))
        if not size:
            return None
        noise = float(np.linalg.norm(moved[counts] - exact[counts])) / size
        units = UNITS * (type_.epsilon + type_.smallest_subnormal * math.sqrt(counts.sum()) / size)
        adds_low = type_ is seen.low and node.op_type in seen.adds_low
        limit = max(FAR if adds_low else LEAST, units + ROUNDINGS * noise)
        error = float(np.linalg.norm(result[counts] - exact[counts])) / size
        return error if error > limit else None


def _run_node(
    node: ir.Node, model: ir.Model, feeds: Values, low: DType
) -> tuple[Array, Array] | None:
    """Return a node's first output, and what it is where all floats move by a rounding to `low`.

    Every number moves by half a unit in its last place, up or down. None where the runtime does
    not run the node by itself.
    """
    known = ((v, known_tensor(v)) for v in node.inputs if v is not None)
    constants = {v.name or "": tensor.numpy() for v, tensor in known if tensor is not None}
    others = {n: array for n, array in constants.items() if array.dtype != FLOAT32.numpy}
    held = {n: array for n, array in constants.items() if n not in others} | dict(feeds)
    rng = np.random.default_rng(0)
    moved = {
        name: value
        if not is_float(value) or (name in constants and value.size <= _FEW)
        else _move(value, low, rng)
        for name, value in held.items()
    }
    output = node.outputs[0].name or ""
    try:
        evaluator = Evaluator(_model_of_node(node, model, held, others))
        return evaluator.run(held)[output], evaluator.run(moved)[output]
    except AmpError:
        return None


def _move(value: Array, low: DType, rng: np.random.Generator) -> Array:
    step = np.abs(value) * (low.epsilon / 2) + low.smallest_subnormal / 2
    return stepped(value, np.where(value != 0, step, 0), rng)


def _model_of_node(node: ir.Node, model: ir.Model, feeds: Values, others: Values) -> Any:
    """Return a node as a model, in which constants of floats are inputs."""
    helper = onnx.helper
    types = {n: helper.np_dtype_to_tensor_dtype(value.dtype) for n, value in feeds.items()}
    return helper.make_model(
        helper.make_graph(
            [ir.serde.serialize_node(node)],
            "node",
            [
                helper.make_tensor_value_info(name, types[name], [None] * value.ndim)
                for name, value in feeds.items()
            ],
            [helper.make_tensor_value_info(node.outputs[0].name or "", FLOAT32.number, None)],
            [onnx.numpy_helper.from_array(value, n) for n, value in others.items()],
        ),
        opset_imports=[helper.make_opsetid(*each) for each in model.graph.opset_imports.items()],
        ir_version=model.ir_version,
    )
