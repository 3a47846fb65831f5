"""Which values a run returns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from amp_rewrite import dtypes
from amp_rewrite.errors import OptionError
from amp_rewrite.graph import elements
from amp_rewrite.graph.added import AddedNames
from amp_rewrite.graph.infer import Types
from amp_rewrite.graph.rounding import to_low
from amp_rewrite.numerics.emulate.emulated_feeds import Array


@dataclass(frozen=True, slots=True)
class Fetch:
    """One value to return.

    Attributes:
        name: The name that was asked for.
        output: The name of the graph output that holds it.
        type: Its type string, "" if it is unknown.
    """

    name: str
    output: str
    type: str


def choose_outputs(model: ir.Model, types: Types, names: Iterable[str] | None) -> list[Fetch]:
    """Make values of the main graph, None those that are, its only outputs; the model is modified.

    Raises:
        OptionError: A name is not that of a value of the main graph.
    """
    graph = model.graph
    if names is None:
        wanted = list(graph.outputs)
    else:
        values = _values(graph)
        listed = isinstance(names, Iterable) and not isinstance(names, str)  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        if not listed:
            raise OptionError("outputs must be a list of names", found=repr(names))
        wanted = [_find(values, name) for name in names]
    wanted = list(dict.fromkeys(wanted))
    free = AddedNames.of(model.graph)
    graph.outputs[:] = []
    fetches: list[Fetch] = []
    for value in wanted:
        output = value if value.producer() is not None else _copy(graph, value, free)
        graph.outputs.append(output)
        fetches.append(Fetch(value.name or "", output.name or "", types.get(value, "")))
        if output is not value and value in types:
            types[output] = types[value]
        if output.type is None and output in types:
            output.type = elements.to_ir(types[output])
    return fetches


def _values(graph: ir.Graph) -> dict[str, ir.Value]:
    values = {v.name: v for v in graph.inputs}
    values |= {v.name: v for v in graph.initializers.values()}
    values |= {v.name: v for node in graph for v in node.outputs}
    return {name: value for name, value in values.items() if name}


def _find(known: dict[str, ir.Value], name: str) -> ir.Value:
    try:
        return known[name]
    except (KeyError, TypeError):  # unknown, or nothing that could be a name
        raise OptionError(
            "no such value in the main graph",
            found=repr(name),
            expected="the name of an input, a weight or a node's output",
        ) from None


def _copy(graph: ir.Graph, value: ir.Value, names: AddedNames) -> ir.Value:
    """Return an Identity of a graph input or a weight, which cannot be an output everywhere."""
    name = names.cast(value.name or "", dtypes.FLOAT32)
    output = ir.Value(name=name, type=value.type, shape=value.shape)
    graph.append(
        ir.Node("", "Identity", [value], outputs=[output], name=names.part(name, "Identity"))
    )
    return output


def narrowed(fetch: Fetch, result: Any) -> Any:
    """Return a result in the type that the model gives it; the numbers are those already."""
    member = elements.element(fetch.type)
    dtype = dtypes.LOW.get("" if member is None else dtypes.dtype_name(member))
    if dtype is None or result is None:
        return result
    if isinstance(result, list):
        return [_narrow(item, dtype) for item in result]
    return _narrow(result, dtype)


def _narrow(array: Array, dtype: dtypes.DType) -> Array:
    return array if array.dtype == dtype.numpy else to_low(array, dtype)
