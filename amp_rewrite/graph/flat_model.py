"""onnx_ir.Model -> FlatGraph; the numbers lead back to the objects."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import onnx_ir as ir

from amp_rewrite.graph import elements
from amp_rewrite.graph.flat import (
    ABSENT,
    NUMBERS_OF_CONSTANT,
    Attribute,
    Body,
    FlatFunction,
    FlatGraph,
    Operator,
    Tensor,
)
from amp_rewrite.graph.origin import training_names
from amp_rewrite.graph.schemas import has_kernels
from amp_rewrite.graph.streams import Stream
from amp_rewrite.graph.tensors import SparseTensor
from amp_rewrite.graph.tensors import elements as elements_of
from amp_rewrite.graph.traverse import named_subgraphs

_GRAPHS = frozenset({ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS})
NUMBERS_AND_STRINGS = frozenset(
    {
        ir.AttributeType.INT,
        ir.AttributeType.INTS,
        ir.AttributeType.FLOAT,
        ir.AttributeType.FLOATS,
        ir.AttributeType.STRING,
        ir.AttributeType.STRINGS,
    }
)
"""The types of attributes whose values can be compared as they are."""


@dataclass
class FlatModel(FlatGraph):
    """The flat graph of an onnx_ir model, or of one of its functions.

    Attributes:
        model: The model.
        nodes: By number, the node.
        values: By number, the value.
        graphs: By number, the graph.
        number: Value -> its number.
    """

    model: ir.Model = field(kw_only=True)
    nodes: list[ir.Node] = field(default_factory=list[ir.Node])
    values: list[ir.Value] = field(default_factory=list[ir.Value])
    graphs: list[ir.Graph] = field(default_factory=list[ir.Graph])
    number: dict[ir.Value, int] = field(default_factory=dict[ir.Value, int])
    _called: dict[Operator, int] = field(default_factory=dict[Operator, int])

    @classmethod
    def of(cls, model: ir.Model) -> FlatModel:
        """Return the flat graph of a model; the model must not change while it is used."""
        attached: dict[Operator, FlatFunction] = {}
        opsets = model.graph.opset_imports
        run = [key for key in model.functions if not has_kernels(*key, opsets)]
        functions: dict[Operator, FlatFunction] = {}
        for key, function in model.functions.items():
            inner = cls(function.opset_imports, functions=functions, model=model)
            inner.add_graph(function.graph, Body())
            defaults = {
                a.name: plain(a) for a in function.attributes.values() if a.value is not None
            }
            attached[Operator(*key)] = FlatFunction(inner, defaults)
        functions.update((Operator(*key), attached[Operator(*key)]) for key in run)
        flat = cls(
            opsets,
            model.ir_version,
            model.metadata_props,
            functions,
            attached,
            model=model,
        )
        flat.add_graph(model.graph, Body())
        flat.bind(training_names(model))
        return flat

    def add_graph(self, graph: ir.Graph, body: Body) -> None:
        """Add a graph and those inside it."""
        number = len(self.bodies)
        self.bodies.append(body)
        self.graphs.append(graph)
        body.inputs = [self._add_value(value, ABSENT, number) for value in graph.inputs]
        for value in graph.initializers.values():
            number_before = self.number.get(value)
            body.initializers.append(
                self._add_value(value, ABSENT, number) if number_before is None else number_before
            )
        for node in graph:
            self._add_node(node, number, body)
        body.outputs = [self.number[value] for value in graph.outputs]
        body.end = len(self.nodes)

    def _add_node(self, node: ir.Node, body_number: int, body: Body) -> None:
        index, number = len(self.nodes), self.number
        body.nodes.append(index)
        self.nodes.append(node)
        key = Operator(node.domain, node.op_type, node.overload)
        operator = self._called.get(key)
        if operator is None:
            operator = self._called[key] = len(self.operators)
            self.operators.append(key)
        self.operator.append(operator)
        self.node_names.append(node.name or "")
        self.body_of.append(body_number)
        if node.metadata_props:
            self.metadata[index] = node.metadata_props
        # What is not defined yet counts as left out: invariants look at models that are not sorted.
        self.inputs += [ABSENT if v is None else number.get(v, ABSENT) for v in node.inputs]
        self.input_start.append(len(self.inputs))
        self.outputs += [self._add_value(value, index, body_number) for value in node.outputs]
        self.output_start.append(len(self.outputs))
        if any(a.type in _GRAPHS for a in node.attributes.data.values()):
            for name, graph in named_subgraphs(node):
                inner = len(self.bodies)
                self.add_graph(graph, Body(index, name))
                self.finished.append(inner)

    def _add_value(self, value: ir.Value, producer: int, home: int) -> int:
        number = self.number[value] = len(self.values)
        self.values.append(value)
        self.value_names.append(value.name or "")
        recorded = elements.from_ir(value.type)
        if recorded is None and producer == ABSENT and value.const_value is not None:
            recorded = elements.tensor(value.const_value.dtype)
        self.recorded.append(recorded)
        self.producer.append(producer)
        self.home.append(home)
        return number

    def attributes(self, node: int) -> Mapping[str, Attribute]:
        """Return the attributes of a node, in order."""
        return {a.name: plain(a) for a in self.nodes[node].attributes.values()}

    def signature(self, node: int) -> tuple[tuple[str, int, bool], ...]:
        """Return the name and type of each attribute, and whether it is a reference."""
        attributes = self.nodes[node].attributes.data.values()
        return tuple([(a.name, a.type.value, a.is_ref()) for a in attributes])

    def spelled_attributes(self, node: int) -> Hashable:
        """Return something that nodes share only if their attributes are equal.

        Tensors, graphs and types are not compared: a node with such attributes shares nothing.
        """
        attributes = self.nodes[node].attributes.data.values()
        if not all(a.is_ref() or a.type in NUMBERS_AND_STRINGS for a in attributes):
            return node
        return tuple([(a.name, a.type, a.ref_attr_name, repr(a.value)) for a in attributes])

    def shape(self, value: int) -> Sequence[int | None] | None:
        """Return the recorded shape of a value, None for a free dimension; None if unknown."""
        shape = self.values[value].shape
        return None if shape is None else [d if isinstance(d, int) else None for d in shape]

    def initializer(self, value: int) -> Tensor | None:
        """Return the dense tensor of an initializer; None for a sparse one, or any other value."""
        ir_value = self.values[value]
        tensor = ir_value.const_value if ir_value.is_initializer() else None
        return None if isinstance(tensor, SparseTensor) else tensor

    def elements(self, tensor: Tensor) -> Stream:
        """Return the elements of one of the model's tensors; nothing is read yet."""
        return elements_of(cast("ir.TensorProtocol", tensor))

    def held(self, node: int) -> Tensor | None:
        """Return the dense tensor of numbers that a Constant node holds; None for any other."""
        return held_tensor(self.nodes[node])


def plain(attribute: ir.Attr) -> Attribute:
    """Return an attribute of onnx_ir as flat graphs have it."""
    value: Any = attribute.value
    if attribute.is_ref() or attribute.type in _GRAPHS:
        value = None
    elif attribute.type is ir.AttributeType.TYPE_PROTO:
        value = elements.from_ir(cast("ir.TypeAndShape", value).type)
    return Attribute(attribute.type.value, value, attribute.ref_attr_name or "")


def held_tensor(node: ir.Node) -> ir.TensorProtocol | None:
    """Return the dense tensor of numbers that a Constant node holds; None for any other node."""
    if node.op_type != "Constant" or node.domain != "":
        return None
    for attribute in node.attributes.values():
        if attribute.is_ref():
            return None
        if attribute.name == "value":
            return attribute.as_tensor()
        if attribute.name in NUMBERS_OF_CONSTANT:
            return ir.Tensor(np.array(attribute.value, NUMBERS_OF_CONSTANT[attribute.name]))
    return None
