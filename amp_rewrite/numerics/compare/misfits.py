"""Nodes that compute something else than the original's: a broken file, not a rounding.

Where the inputs of a node are right and its output is far off, the original's node is run in
float32 on the inputs that the rewritten model gives it. Cancellation, steep functions and steps
make the same of these; another weight, a lost fraction or a state that was reset do not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.errors import AmpError
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.graph.traverse import subgraphs
from amp_rewrite.numerics.compare.distance import is_float
from amp_rewrite.numerics.compare.intermediates import IntermediateComparer, Run
from amp_rewrite.numerics.compare.masked_rows import rows_of
from amp_rewrite.numerics.compare.verify_report import Misfit
from amp_rewrite.numerics.emulate.evaluator import Evaluator
from amp_rewrite.numerics.emulate.typed_model import TypedModel
from amp_rewrite.numerics.inputs.batches import Array
from amp_rewrite.numerics.inputs.consumers import constant

FAR = 0.1
"""How far an output must be off, relative to its size, that its node is run again."""

_GROWTH = 20.0
_TRIES = 8
_TINY = 64.0

Values = Mapping[str, Any]


def misfits(
    original: TypedModel,
    inside: IntermediateComparer,
    low: DType,
    run_rewritten: Run,
    masked: tuple[Array, ...] = (),
) -> tuple[Misfit, ...]:
    """Return the first node that computes something else, if there is one.

    Args:
        original: The model before.
        inside: What is known of the values inside, over all feeds.
        low: The lowest precision of the rewritten model.
        run_rewritten: Runs the rewritten model on a feed.
        masked: The rows of attention without any score in that feed, which are left out.
    """
    errors = inside.errors()
    known: dict[str, list[str]] = {}
    for name, before in inside.pairs.items():
        known.setdefault(before, []).append(name)
    tried = 0
    for node in original.model.graph:
        if tried >= _TRIES:
            break
        output = _suspect(node, known, errors, low)
        if output is None or not _can_run(node, original, known):
            continue
        tried += 1
        found = _error(node, known, output, low, run_rewritten, original, masked)
        if found is not None and found > FAR:
            return (Misfit(output, node.name or "", node.op_type, found),)
    return ()


def _suspect(
    node: ir.Node, known: Mapping[str, list[str]], errors: Mapping[str, float], low: DType
) -> str | None:
    """Return an output that is far off, though no input of its node is."""
    entering = [min(errors.get(n, 0.0) for n in names) for names in _read(node, known).values()]
    least = max(max(entering, default=0.0), low.epsilon / 2)
    for value in node.outputs[:1]:
        for name in known.get(value.name or "", ()):
            if max(FAR, _GROWTH * least) < errors.get(name, 0.0) < math.inf:
                return name
    return None


def _read(node: ir.Node, known: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return the compared values that a node reads, with their names in the rewritten model."""
    names = [v.name or "" for v in node.inputs if v is not None]
    return {name: known[name] for name in names if name in known}


def _can_run(node: ir.Node, original: TypedModel, known: Mapping[str, list[str]]) -> bool:
    if any(subgraphs(node)) or has(node, Trait.RANDOM) or not _read(node, known):
        return False
    if (node.domain, node.op_type, node.overload) in original.model.functions:
        return False
    return all(
        v is None or (v.name or "") in known or constant(v) is not None for v in node.inputs
    ) and all(original.types.get(v) == "tensor(float)" for v in node.outputs[:1])


def _error(
    node: ir.Node,
    known: Mapping[str, list[str]],
    output: str,
    low: DType,
    run_rewritten: Run,
    original: TypedModel,
    masked: tuple[Array, ...],
) -> float | None:
    """Return how far an output is from what the original's node makes of the same inputs."""
    read = _read(node, known)
    found = run_rewritten({output, *(n for names in read.values() for n in names)})
    errors = [
        error
        for feeds in _choices(read, found)
        if (error := _far(_expected(node, feeds, original), found[output], low, masked)) is not None
    ]
    return min(errors, default=None)


def _choices(read: Mapping[str, list[str]], found: Values) -> Iterator[Values]:
    """Yield the inputs of a node as they are before casts, and behind them."""
    for place in (0, -1):
        feeds = {name: np.asarray(found[names[place]]) for name, names in read.items()}
        if all(is_float(array) and np.isfinite(array).all() for array in feeds.values()):
            yield {name: array.astype(FLOAT32.numpy) for name, array in feeds.items()}


def _expected(node: ir.Node, feeds: Values, original: TypedModel) -> Any:
    try:
        return Evaluator(_alone(node, feeds, original.model)).run(feeds)[node.outputs[0].name or ""]
    except AmpError:
        return None


def _alone(node: ir.Node, feeds: Values, model: ir.Model) -> onnx.ModelProto:
    """Return a model of one node, whose constants are those of the original."""
    held: list[onnx.TensorProto] = []
    for value in node.inputs:
        tensor = None if value is None or value.name in feeds else constant(value)
        if value is not None and tensor is not None:
            held.append(onnx.numpy_helper.from_array(tensor.numpy(), value.name))
    number = FLOAT32.number
    graph = onnx.helper.make_graph(
        [ir.serde.serialize_node(node)],
        "node",
        [onnx.helper.make_tensor_value_info(n, number, a.shape) for n, a in feeds.items()],
        [onnx.helper.make_tensor_value_info(node.outputs[0].name or "", number, None)],
        list({tensor.name: tensor for tensor in held}.values()),
    )
    opsets = [onnx.helper.make_opsetid(d, v) for d, v in model.graph.opset_imports.items()]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=model.ir_version)


def _far(expected: Any, found: Any, low: DType, masked: tuple[Array, ...]) -> float | None:
    """Return |found - expected| / |expected|; None where that says nothing."""
    if expected is None or np.shape(expected) != np.shape(found):
        return None
    a, b = np.asarray(expected, np.float64), np.asarray(found).astype(np.float64)
    both = np.isfinite(a) & np.isfinite(b) & (np.abs(a) <= low.overflow)
    rows = rows_of(a, masked)
    if rows is not None:
        both[rows] = False
    size = float(np.linalg.norm(a[both]))
    if not both.any() or size / math.sqrt(both.sum()) <= _TINY * low.smallest_normal:
        return None
    return float(np.linalg.norm(b[both] - a[both])) / size
