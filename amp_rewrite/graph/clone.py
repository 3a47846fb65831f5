"""Copy an onnx_ir.Model completely: nothing that can be changed is shared."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import onnx_ir as ir

from amp_rewrite.errors import GraphError
from amp_rewrite.graph.tensors import ProtoTensor
from amp_rewrite.graph.traverse import subgraphs


def clone(model: ir.Model) -> ir.Model:
    """Return a copy of `model` that may be changed without touching it.

    `Model.clone` shares types and tensors, which renaming and retyping change in place, and drops
    the metadata of the model.

    Raises:
        GraphError: The graph is not sorted, or uses a value that it does not define.
    """
    try:
        copied = model.clone()
    except (RuntimeError, ValueError, AssertionError) as error:
        raise GraphError(
            "the model cannot be copied",
            where="main graph",
            found=_innermost_error(error),
            expected="a graph that is sorted and defines every value it uses",
        ) from error
    copied.meta.update(model.meta)
    for value in _values(copied):
        _detach(value)
    return copied


def value_pairs(model: ir.Model, copied: ir.Model) -> Iterator[tuple[ir.Value, ir.Value]]:
    """Yield the values of the graphs of a model, each with that of an unchanged clone."""
    return zip(_values(model), _values(copied), strict=True)


def _innermost_error(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


def _values(model: ir.Model) -> Iterator[ir.Value]:
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        yield from values_in(graph)


def values_in(graph: ir.Graph) -> Iterator[ir.Value]:
    """Yield the values of a graph and of those inside it, in the order of their numbers."""
    yield from graph.inputs
    yield from (value for value in graph.initializers.values() if not value.is_graph_input())
    for node in graph:
        yield from node.outputs
        for inner in subgraphs(node):
            yield from values_in(inner)


def _detach(value: ir.Value) -> None:
    if value.type is not None:
        value.type = _own_type(value.type)
    if value.is_initializer() and value.const_value is not None:
        value.const_value = _renamable(value.const_value)


def _own_type(kind: ir.TypeProtocol) -> ir.TypeProtocol:
    """Return a type of its own; of a tensor in a tenth of the time that copying deeply takes."""
    if type(kind) is ir.TensorType:
        return ir.TensorType(kind.dtype, denotation=kind.denotation)
    return copy.deepcopy(kind)


def _renamable(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """Return a tensor of the same data, which are not copied, whose name is its own."""
    if isinstance(tensor, ir.TensorProtoTensor) and not isinstance(tensor, ProtoTensor):
        return ProtoTensor(tensor.raw)  # onnx_ir's is called as the message, which is shared
    return copy.copy(tensor)
