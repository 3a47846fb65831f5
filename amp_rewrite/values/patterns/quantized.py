"""Operators that a runtime computes in 8 bits or fewer: what stands between quantised tensors.

A quantised model in QDQ form computes in float32 on paper: DequantizeLinear -> Conv ->
QuantizeLinear. ONNX Runtime, TensorRT and others fuse the three into one operator on integers. A
Cast in between prevents that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.elements import bits, element
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.values.patterns.plain_view import PlainView

_DOMAINS = ("", "com.microsoft")
# operators: what becomes part of the range of the QuantizeLinear behind it.
_ACTIVATIONS = ("Clip", "Relu")
# operators: what is computed on integers, too, where its result is not quantised.
_FLOAT_RESULTS = ("Gemm", "MatMul")


class QuantizedGroup(NamedTuple):
    """Nodes that are one operator on integers.

    Attributes:
        nodes: The nodes between the quantised tensors: an operator, and perhaps its activation.
        first: A DequantizeLinear in front.
        last: A QuantizeLinear behind, or ABSENT for a result in float32.
        keeps_operand: Whether only the second operand is quantised, in few bits: the product is one
            in floating point.
    """

    nodes: tuple[int, ...]
    first: int
    last: int
    keeps_operand: bool = False


def quantized_groups(type_graph: TypeGraph) -> list[QuantizedGroup]:
    """Return the groups of a model, in execution order.

    A node is one if it reads a DequantizeLinear, and no float32 value but such results and
    constants, and QuantizeLinear alone reads its results, perhaps behind one Relu or Clip; a MatMul
    or Gemm may return float32 instead. So is a MatMul whose second operand is stored in fewer than
    8 bits: only the product is fused.
    """
    flat = type_graph.flat
    wanted = {i for i, o in enumerate(flat.operators) if _is(o, "DequantizeLinear")}
    if not wanted:
        return []
    view = PlainView(type_graph)
    outputs = [flat.outputs_of(n)[0] for n in flat.nodes_calling(wanted)]
    nodes = {reader.node for value in outputs for reader in view.readers(value)}
    groups = (_group(view, node) for node in sorted(nodes))
    return [group for group in groups if group is not None]


def _group(view: PlainView, node: int) -> QuantizedGroup | None:
    graph, called = view.type_graph, view.type_graph.flat.called(node)
    if not graph.vertices_of(node) or has(called, Trait.SUBGRAPHS) or graph.flat.is_call(node):
        return None
    if _is(called, "QuantizeLinear", "DequantizeLinear"):
        return None
    makers = list(_quantized_operands(view, node))
    first = next((m for m in makers if m != ABSENT), ABSENT)
    if first == ABSENT:
        return None
    if called[:2] == ("", "MatMul") and _is_stored_in_few_bits(view, makers[-1]):
        return QuantizedGroup((node,), makers[-1], ABSENT, ABSENT in makers[:-1])
    if ABSENT in makers:
        return None
    last = _quantizer(view, node)
    if last != ABSENT:
        return QuantizedGroup((node,), first, last)
    activation = _activation(view, node)
    if activation != ABSENT and (last := _quantizer(view, activation)) != ABSENT:
        return QuantizedGroup((node, activation), first, last)
    is_product = called.domain == "" and called.op_type in _FLOAT_RESULTS
    return QuantizedGroup((node,), first, ABSENT) if is_product else None


def _quantized_operands(view: PlainView, node: int) -> Iterator[int]:
    """Yield, for each float32 operand that is not a constant, its DequantizeLinear or ABSENT."""
    graph = view.type_graph
    for value in graph.flat.inputs_of(node):
        if value == ABSENT or not graph.is_float32(value):
            continue
        if view.constant(value) is not None:
            continue
        maker = view.maker(value)
        is_quantized = maker != ABSENT and _is(graph.flat.called(maker), "DequantizeLinear")
        yield maker if is_quantized else ABSENT


def _is_stored_in_few_bits(view: PlainView, quantizer: int) -> bool:
    if quantizer == ABSENT:
        return False
    graph = view.type_graph
    stored = element(graph.types[graph.flat.inputs_of(quantizer)[0]] or "")
    return stored is not None and bits(stored) < 8


def _quantizer(view: PlainView, node: int) -> int:
    """Return a QuantizeLinear of a node's results if nothing else reads them, or ABSENT."""
    flat, quantizer = view.type_graph.flat, ABSENT
    for value in flat.outputs_of(node):
        if view.leaves(value):
            return ABSENT
        for reader, port in view.readers(value):
            if port != 0 or not _is(flat.called(reader), "QuantizeLinear"):
                return ABSENT
            quantizer = reader
    return quantizer


def _activation(view: PlainView, node: int) -> int:
    """Return the Relu or Clip that alone reads a node's only result, or ABSENT."""
    flat = view.type_graph.flat
    outputs = flat.outputs_of(node)
    readers = view.readers(outputs[0])
    if len(outputs) > 1 or len(readers) != 1 or view.leaves(outputs[0]):
        return ABSENT
    reader, port = readers[0]
    called = flat.called(reader)
    is_activation = called.domain == "" and called.op_type in _ACTIVATIONS
    return reader if is_activation and port == 0 else ABSENT


def _is(called: tuple[str, ...], *op_types: str) -> bool:
    """Tell whether an operator is one of some, as ONNX or ONNX Runtime defines it."""
    return called[0] in _DOMAINS and called[1] in op_types
