"""Carry a plan out: change types, convert weights, insert casts. Nothing is decided here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import onnx_ir as ir

from amp_rewrite.dtypes import DType
from amp_rewrite.graph.constants import FIRST_IR_WITH_OVERRIDES
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.flat_model import FlatModel
from amp_rewrite.graph.origin import hand_over_output
from amp_rewrite.graph.tensors import ConvertedTensor
from amp_rewrite.rewriting.casts import CastPlan, PlannedCast, PlannedWeight, Use
from amp_rewrite.rewriting.retype import pin_attributes, retype_attributes, retype_value
from amp_rewrite.rewriting.typed_attributes import OPSET_OF_CASTS


def apply_plan(flat: FlatModel, plan: CastPlan, type_graph: TypeGraph) -> None:
    """Change the model behind a flat graph as `plan` says, which was made for that graph."""
    if not plan.is_empty:
        _Applier(flat, plan, type_graph).run()


@dataclass
class _Applier:
    flat: FlatModel
    plan: CastPlan
    type_graph: TypeGraph
    last_at_start: dict[ir.Graph, ir.Node] = field(default_factory=dict)

    def run(self) -> None:
        """Retype, then convert, then cast."""
        low, values, graph = self.plan.low, self.flat.values, self.type_graph
        touched = [(self.flat.nodes[graph.nodes[v]], v) for v in self.plan.vertices]
        for node, vertex in touched:
            fill = self.plan.fills.get(vertex, 0.0)
            retype_attributes(node, graph.kind_of(vertex), low, fill)
        for node, _ in touched:
            pin_attributes(node)
        inputs = [v for v in self.plan.ends if self.flat.is_input(v)]
        for number in (*self.plan.retyped, *inputs):
            retype_value(values[number], low)
        for weight in self.plan.weights:
            self._convert(weight)
        if self.plan.casts:
            self.flat.model.graph.opset_imports.setdefault("", OPSET_OF_CASTS)
        for planned in self.plan.casts:
            self._cast(planned)

    def _convert(self, weight: PlannedWeight) -> None:
        value, low = self.flat.values[weight.value], weight.dtype
        name = weight.name if weight.keep_float32 else value.name
        producer = self.flat.producer[weight.value]
        is_initializer = producer == ABSENT
        held = self.flat.initializer(weight.value) if is_initializer else self.flat.held(producer)
        source = cast("ir.TensorProtocol", held)
        tensor = ConvertedTensor(source, low, saturate=weight.saturate, name=name)
        node = value.producer()
        if weight.keep_float32:
            copy = self._copy_constant(weight, tensor)
            self._redirect(weight.uses, value, copy)
        elif node is not None:
            _set_constant(node, tensor)
            retype_value(value, low)
        else:
            value.const_value = tensor
            retype_value(value, low)

    def _copy_constant(self, weight: PlannedWeight, tensor: ConvertedTensor) -> ir.Value:
        """Add a low-precision copy beside a constant that something still reads as float32."""
        value = self.flat.values[weight.value]
        node, graph = value.producer(), value.graph
        copy = _like(value, weight.name, weight.dtype)
        if node is not None:
            made = ir.Node("", "Constant", [], outputs=[copy], name=weight.name)
            _set_constant(made, tensor)
            node.append(made)
        elif graph is not None:
            copy.const_value = tensor
            copy.type = ir.TensorType(weight.dtype.ir)
            graph.register_initializer(copy)
            if self.flat.ir_version < FIRST_IR_WITH_OVERRIDES and value.is_graph_input():
                graph.inputs.append(copy)
        return copy

    def _cast(self, planned: PlannedCast) -> None:
        value = self.flat.values[planned.value]
        if planned.existing != ABSENT:
            node = self.flat.nodes[planned.existing]
            if node.graph is not None:
                node.graph.remove(node)
            if node.outputs[0].type is None and any(use.body != ABSENT for use in planned.uses):
                node.outputs[0].type = ir.TensorType(planned.to.ir)  # a graph output has to say it
        else:
            to = ir.AttrInt64("to", planned.to.ir.value)
            output = _like(value, planned.name, planned.to)
            node = ir.Node("", "Cast", [value], [to], outputs=[output], name=planned.name)
        self._insert(node, value)
        self._redirect(planned.uses, value, node.outputs[0])

    def _insert(self, node: ir.Node, value: ir.Value) -> None:
        """Put a node right after the producer of a value, or at the start of the value's graph."""
        producer = value.producer()
        if producer is not None:
            producer.append(node)
            return
        graph = value.graph
        if graph is None:
            return
        before = self.last_at_start.get(graph)
        if before is not None:
            before.append(node)
        elif len(graph):
            graph[0].prepend(node)
        else:
            graph.append(node)
        self.last_at_start[graph] = node

    def _redirect(self, uses: tuple[Use, ...], old: ir.Value, new: ir.Value) -> None:
        for use in uses:
            if use.node != ABSENT:
                self.flat.nodes[use.node].replace_input_with(use.index, new)
            else:
                self._replace_output(self.flat.graphs[use.body], use.index, old, new)

    def _replace_output(self, graph: ir.Graph, index: int, old: ir.Value, new: ir.Value) -> None:
        """Make `new` a graph output; in the main graph it takes over the output's name."""
        graph.outputs[index] = new
        model = self.flat.model
        if graph is model.graph and old.producer() is not None and not old.is_graph_output():
            hand_over_output(model, old, new)
            old.name = self.plan.inner[self.flat.number[old]]


def remove_noop_casts(flat: FlatModel, casts: tuple[int, ...]) -> None:
    """Let the consumers of no-op Casts read what the Casts read, and remove the Casts."""
    for node in (flat.nodes[number] for number in casts):
        source, output = node.inputs[0], node.outputs[0]
        if source is None or node.graph is None:
            continue
        for use in tuple(output.uses()):
            use.node.replace_input_with(use.idx, source)
        node.graph.remove(node, safe=True)


def _like(value: ir.Value, name: str, dtype: DType) -> ir.Value:
    """Return a value of another type with the same recorded shape."""
    shape = None if value.shape is None else value.shape.copy()
    type_ = None if value.type is None else ir.TensorType(dtype.ir)
    return ir.Value(name=name, type=type_, shape=shape)


def _set_constant(node: ir.Node, tensor: ir.TensorProtocol) -> None:
    for name in ("value_float", "value_floats"):
        node.attributes.pop(name, None)
    node.attributes["value"] = ir.AttrTensor("value", tensor)
