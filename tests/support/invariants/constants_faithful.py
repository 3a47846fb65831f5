"""Invariants of initializers and constants: whole, converted faithfully, and used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT32, LOW, DType, of
from amp_rewrite.graph.added import origin
from invariants.violation import Violation, graphs, place

Array = np.ndarray[Any, np.dtype[Any]]


def check_no_unused_initializers(original: ir.Model, rewritten: ir.Model) -> Iterator[Violation]:
    """Every initializer is read or is an output, unless the original has it unused as well."""
    before = {place(scope, value.name) for scope, value in _unused_values(original)}
    for scope, value in _unused_values(rewritten):
        if (where := place(scope, value.name)) not in before:
            yield Violation("no-unused-initializers", where, "nothing reads it")


def _unused_values(model: ir.Model) -> Iterator[tuple[str, ir.Value]]:
    for scope, graph in graphs(model):
        if isinstance(graph, ir.Graph):
            for value in graph.initializers.values():
                if not value.uses() and not value.is_graph_output():
                    yield scope, value


def _tensors(model: ir.Model) -> Iterator[tuple[str, ir.Value, ir.TensorProtocol]]:
    """Yield (scope, value, tensor) of every initializer and Constant node."""
    for scope, graph in graphs(model):
        if isinstance(graph, ir.Graph):
            for value in graph.initializers.values():
                if value.const_value is not None:
                    yield scope, value, value.const_value
        for node in graph:
            tensor = _constant(node)
            if tensor is not None:
                yield scope, node.outputs[0], tensor


def _constant(node: ir.Node) -> ir.TensorProtocol | None:
    attribute = node.attributes.get("value") if node.op_type == "Constant" else None
    if attribute is None or attribute.is_ref() or attribute.type != ir.AttributeType.TENSOR:
        return None
    return attribute.as_tensor()


def check_initializers_intact(original: ir.Model, rewritten: ir.Model) -> Iterator[Violation]:
    """Initializers and Constants hold what they held, or its nearest value in a low type.

    Shape and size agree with the type. A float32 tensor may have become low: rounded to nearest,
    ties to even; NaN, infinities and signs kept. A finite value beyond the range is the largest
    finite one, never infinity, unless it is a bound of Clip. A tensor with an added name is
    compared with its origin.
    """
    originals: dict[str, list[ir.TensorProtocol]] = defaultdict(list)
    for _, value, tensor in _tensors(original):
        originals[value.name or ""].append(tensor)
    for scope, value, tensor in _tensors(rewritten):
        name = value.name or ""
        sources = originals.get(name) or originals.get(origin(name)) or []
        problem = _size_problem(tensor) or _problem(sources, tensor, _is_bound(value))
        if problem:
            yield Violation("initializers-intact", place(scope, name), problem)
    yield from _type_problems(rewritten)


def _type_problems(model: ir.Model) -> Iterator[Violation]:
    for scope, graph in graphs(model):
        for value in graph.initializers.values() if isinstance(graph, ir.Graph) else ():
            tensor = value.const_value
            if tensor is not None and value.dtype not in (None, tensor.dtype):
                message = f"is declared {value.dtype} and holds {tensor.dtype}"
                yield Violation("initializers-intact", place(scope, value.name), message)


def _size_problem(tensor: ir.TensorProtocol) -> str | None:
    if tensor.dtype == ir.DataType.STRING:
        return None
    expected = -(-prod(tensor.shape.numpy()) * tensor.dtype.bitwidth // 8)
    size = tensor.nbytes
    if isinstance(tensor, ir.ExternalTensor) and tensor.length is not None:
        size = tensor.length
    return None if size == expected else f"has {size} bytes, its shape and type need {expected}"


def _is_bound(value: ir.Value) -> bool:
    """Tell whether a constant only bounds Clips: infinity bounds as little as 1e38 does."""
    return all(use.node.op_type == "Clip" and use.idx > 0 for use in value.uses())


def _problem(
    sources: list[ir.TensorProtocol], tensor: ir.TensorProtocol, bound: bool
) -> str | None:
    """Return why `tensor` comes from none of the tensors that had its name; None if it is new."""
    problems = [_difference(source, tensor, bound) for source in sources]
    return None if not problems or None in problems else problems[0]


def _difference(source: ir.TensorProtocol, tensor: ir.TensorProtocol, bound: bool) -> str | None:
    if source is tensor:
        return None
    if source.shape != tensor.shape:
        return f"shape was {source.shape}, is {tensor.shape}"
    if source.dtype == tensor.dtype:
        same = _same_place(source, tensor) or _same_data(source, tensor)
        return None if same else "its values differ from the original's"
    low = of(tensor.dtype)
    if source.dtype != FLOAT32.ir or low is None or low.name not in LOW:
        return f"type was {source.dtype}, is {tensor.dtype}"
    return _rounding_problem(source.numpy(), tensor.numpy(), low, bound)


def _same_place(a: ir.TensorProtocol, b: ir.TensorProtocol) -> bool:
    if not isinstance(a, ir.ExternalTensor) or not isinstance(b, ir.ExternalTensor):
        return False
    return (a.path, a.offset, a.length) == (b.path, b.offset, b.length)


def _same_data(a: ir.TensorProtocol, b: ir.TensorProtocol) -> bool:
    if a.dtype == ir.DataType.STRING:
        return bool(np.array_equal(a.numpy(), b.numpy()))
    return a.tobytes() == b.tobytes()


def _rounding_problem(source: Array, low_array: Array, low: DType, bound: bool) -> str | None:
    """Return how `low_array` differs from `source` (float32) rounded; None if it does not."""
    with np.errstate(over="ignore", invalid="ignore"):
        expected = source.astype(low.numpy)
    finite = np.isfinite(source)
    equal = np.isnan(source) & np.isnan(low_array)
    for largest in (low.max, low.max / 2):  # half where a mask is added to something
        end = np.copysign(np.array(largest, low.numpy), expected)
        saturated = np.where(finite & np.isinf(expected), end, expected)
        equal |= _same_bits(low_array, saturated.astype(low.numpy))
    if bound:
        equal |= _same_bits(low_array, expected)
    if equal.all():
        return None
    index = tuple(int(i) for i in np.argwhere(~equal)[0]) if source.ndim else ()
    return f"element {index} was {source[index]}, is {low_array[index]}"


def _same_bits(a: Array, b: Array) -> Array:
    bits = np.dtype(f"u{a.dtype.itemsize}")
    return np.asarray(a.view(bits) == b.view(bits))
