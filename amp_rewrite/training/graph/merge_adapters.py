"""A model whose weights are merged with their adapters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import StepError
from amp_rewrite.graph.names import FreeNames, names_in
from amp_rewrite.graph.traverse import graphs_in
from amp_rewrite.training.graph.adapter import Adapter
from amp_rewrite.training.graph.weight_products import PRODUCTS, source_of_factor

Array = np.ndarray[Any, Any]


def merge(model: ir.Model, adapters: Iterable[Adapter], states: Mapping[str, Array]) -> None:
    """Add adapters to the weights of a model, in place; it has the results that they made.

    A weight that some of its readers use without the adapter stays as it is; the others get a
    weight of their own.

    Raises:
        StepError: The model lacks a weight, or the result of a product that alone has an adapter.
    """
    for adapter in adapters:
        weight = model.graph.initializers.get(adapter.weight)
        if weight is None or weight.const_value is None:
            raise _cannot_merge(adapter, "the model has no such weight")
        old = weight.const_value
        array = adapter.merged(old.numpy(), states[adapter.a], states[adapter.b])
        if adapter.products is None:
            weight.const_value = ir.tensor(array, dtype=old.dtype, name=weight.name)
        else:
            own = _own_weight(model, weight, ir.tensor(array, dtype=old.dtype))
            for name in adapter.products:
                _read_instead(_named_product(model, name, adapter), weight, own)


def _own_weight(model: ir.Model, weight: ir.Value, tensor: ir.TensorProtocol) -> ir.Value:
    """Add a weight like another one, with numbers of its own."""
    name = FreeNames(names_in(model.graph)).take(f"{weight.name}/adapted")
    tensor.name = name
    value = ir.Value(name=name, type=weight.type, shape=weight.shape, const_value=tensor)
    model.graph.register_initializer(value)
    return value


def _named_product(model: ir.Model, name: str, adapter: Adapter) -> ir.Node:
    """Return the product that computes a value."""
    for graph in graphs_in(model.graph):
        for node in graph:
            if node.op_type in PRODUCTS and node.outputs[0].name == name:
                return node
    raise _cannot_merge(adapter, f"the model has no product {name!r}")


def _read_instead(node: ir.Node, weight: ir.Value, own: ir.Value) -> None:
    """Let a product read another weight, through copies of what lies between the two."""
    for index in (1, 0):
        if source_of_factor(node.inputs[index])[0] is weight:
            node.replace_input_with(index, _copied(node, node.inputs[index], weight, own))
            return


def _copied(reader: ir.Node, value: ir.Value | None, weight: ir.Value, own: ir.Value) -> ir.Value:
    """Return a value as it is computed from another weight, by nodes in front of a reader."""
    if value is weight:
        return own
    maker = None if value is None else value.producer()
    assert value is not None and maker is not None, "a factor is made from the weight"  # noqa: PT018
    inner = _copied(reader, maker.inputs[0], weight, own)
    name = f"{value.name}/{reader.outputs[0].name}"
    copy = ir.Node(
        maker.domain, maker.op_type, [inner], maker.attributes.values(), num_outputs=1, name=name
    )
    copy.outputs[0].name, copy.outputs[0].type = name, value.type
    copy.outputs[0].shape = value.shape
    reader.prepend(copy)
    return copy.outputs[0]


def _cannot_merge(adapter: Adapter, obstacle: str) -> StepError:
    return StepError(
        "an adapter cannot be merged into the model",
        where=adapter.weight,
        found=obstacle,
        remedy="build the step again from the model that it trains",
    )
