"""What rounding each value of a model brings at its outputs, estimated for all values in one pass.

Rounding a value y to r(y) changes the outputs by J (r(y) - y) to first order, J being the Jacobian
of the outputs. Its squared length is the mean of (u . J (r(y) - y))^2 over random u whose elements
are independent and of variance 1 (Hutchinson, 1989), and u . J is a gradient: one backward pass
gives that number for every value at once. What independent roundings bring adds up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from amp_rewrite.base import arguments
from amp_rewrite.dtypes import FLOAT32, LOW, DType
from amp_rewrite.errors import DataError, GradientError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.oldest_opset import modernise
from amp_rewrite.grad.prepare import prepare
from amp_rewrite.grad.rule import IndexedSlices
from amp_rewrite.grad.walk import gradients
from amp_rewrite.graph.clone import clone
from amp_rewrite.graph.io.load import Source, load
from amp_rewrite.numerics.inputs.batches import Array, Data, batches
from amp_rewrite.numerics.repaint.float32_session import Float32Session
from amp_rewrite.runtimes.ort.time_limit import check_time

DRAWS = 8
"""How many random directions are tried with each batch."""

_TINY = 1e-15
"""The length below which an output counts as zero."""


def rounding_errors(
    model: Source, data: Data, precision: str = "float16", *, draws: int = DRAWS
) -> Mapping[str, float]:
    """Estimate what rounding each value alone to a 16-bit type brings at the outputs.

    Args:
        model: A float32 model: a path, an onnx_ir model or a ModelProto; never modified.
        data: Batches, as for `calibrate`.
        precision: The low type: "float16" or "bfloat16".
        draws: How many random directions are tried with each batch; an estimate from n numbers is
            off by a share of sqrt(2 / n) of itself.

    Returns:
        Name of a float32 value of the main graph -> the mean squared error of the outputs, each
        relative to its norm, over the batches. Infinity where the value overflows. Values behind
        which no gradient passes bring 0, and values inside branches and loops are not there.

    Raises:
        GradientError: The opset is too old and cannot be raised, or no output is float32.
        AmpError: The model, the data or an option is wrong, or ONNX Runtime is not installed.
    """
    arguments.one_of("precision", precision, tuple(LOW))
    draws = arguments.integer("draws", draws, low=1)
    original, generator = load(model), np.random.default_rng(0)
    fed = list(batches(data, original))
    if not fed:
        raise DataError("the data hold no batch", remedy="pass at least one")
    work = clone(original)
    check_time()
    modernise(work)
    prepare(work)
    check_time()
    asked = _asked(work, LOW[precision])
    if not asked.draws:
        raise GradientError(
            "no output has gradients",
            where="main graph",
            expected="a float32 output",
            remedy="make what the outputs are computed of an output",
        )
    plain = Float32Session(original)
    results = [plain.run(feeds, list(asked.draws)) for feeds in fed]
    del plain  # before the larger one is loaded
    session = Float32Session(work, "the model with its gradients")
    squares = dict.fromkeys(asked.changes, 0.0)
    for feeds, outputs in zip(fed, results, strict=True):
        for _ in range(draws):
            drawn = {asked.draws[name]: _drawn(generator, out) for name, out in outputs.items()}
            changes = session.run({**feeds, **drawn}, list(asked.changes.values()))
            for name, output in asked.changes.items():
                change = float(changes[output])
                squares[name] += change**2 if np.isfinite(change) else np.inf
    return {name: total / (draws * len(fed)) for name, total in squares.items()}


def _drawn(generator: np.random.Generator, output: Array) -> Array:
    """Return a random direction for an output, by the length of the output."""
    norm = float(np.linalg.norm(output.astype(np.float64)))
    return (generator.standard_normal(output.shape) / max(norm, _TINY)).astype(np.float32)


class _Asked(NamedTuple):
    """What a model takes and returns besides.

    Attributes:
        draws: Float32 output -> the input that takes a random direction u for it.
        changes: Name of a value y -> the output that gives u . J (r(y) - y).
    """

    draws: dict[str, str]
    changes: dict[str, str]


def _asked(model: ir.Model, low: DType) -> _Asked:
    """Let a model take random directions, and return what rounding changes along them alone."""
    graph, b = model.graph, Builder(model, scope="rounding")
    values = [v for v in _values(graph) if v.dtype == FLOAT32.ir and v.name]
    asked, seeds = _Asked({}, {}), dict[ir.Value, ir.Value]()
    for value in dict.fromkeys(graph.outputs):
        if value.dtype == FLOAT32.ir and value.name:
            name = asked.draws[value.name] = b.free_name("rounding/direction")
            seeds[value] = ir.Value(name=name, type=value.type, shape=value.shape)
            graph.inputs.append(seeds[value])
    derivatives = gradients(b, seeds, values, sparse=False, stops=set[ir.Node]())
    graph.outputs.clear()
    for value, gradient in zip(values, derivatives, strict=True):
        if gradient is None or isinstance(gradient, IndexedSlices):
            continue
        rounded = b.cast(b.cast(value, low.ir), FLOAT32.ir)
        change = b.reduce_sum(b.mul(gradient, b.sub(rounded, value)), keepdims=False)
        graph.outputs.append(change)
        asked.changes[value.name or ""] = change.name or ""
    return asked


def _values(graph: ir.Graph) -> list[ir.Value]:
    outputs = (value for node in graph for value in node.outputs)
    return list(dict.fromkeys((*graph.inputs, *graph.initializers.values(), *outputs)))
