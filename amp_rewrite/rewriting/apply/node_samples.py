"""One node of each kind: what the inference of onnx's checker gets of a model of many nodes.

Inference takes longer than all else that the checker does. What it says of a node follows from the
node's attributes and the types that it reads and makes, so that of many nodes which share these,
and which a rewrite touches, it is asked about one.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

import onnx
from onnx.helper import make_tensor_value_info

from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.elements import element
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.rewriting.apply.rewiring import Added, Item, Read, Rewiring
from amp_rewrite.rewriting.plan.casts import PlannedWeight

_Types = tuple[int, ...]

_UNKNOWN = -1
"""The type of what is no tensor, or of which no type is known."""


class NodeSamples:
    """The samples of the main graph of a rewritten model without graphs inside nodes."""

    def __init__(
        self,
        wiring: Rewiring,
        type_graph: TypeGraph,
        touched: Iterable[int],
        retyped: Container[int],
    ) -> None:
        """Look up what the types of values become.

        Args:
            wiring: Who reads what after the rewrite.
            type_graph: The model as it was read.
            touched: The nodes whose messages change.
            retyped: Those whose attributes change.
        """
        plan, flat = wiring.plan, wiring.flat
        self._wiring, self._flat, self._retyped = wiring, flat, retyped
        low = {type_graph.nodes[vertex] for vertex in plan.vertices}
        self._nodes = {*touched, *low} - wiring.removed - {ABSENT}
        numbers = {t: _number(t) for t in {*type_graph.types}}
        self._types = [*(numbers[t] for t in type_graph.types), 0]  # of ABSENT
        for value in (*plan.retyped, *(v for v in plan.ends if flat.is_input(v))):
            self._types[value] = plan.low.number
        for value, weight in wiring.weights.items():
            self._types[value] = weight.dtype.number
        for node in wiring.removed:
            value = flat.outputs_of(node)[0]
            self._types[value] = self._type(wiring.left_of(value))
        self._read = [self._types[value] for value in flat.inputs]
        for slot, read in wiring.redirected.items():
            self._read[slot] = self._type(read)

    def graph(
        self, message_of: Callable[[Item], onnx.NodeProto], infos: Iterable[onnx.ValueInfoProto]
    ) -> onnx.GraphProto | None:
        """Return a graph of one touched node of each kind, which reads nothing but graph inputs.

        Args:
            message_of: Returns the message of a node of the rewritten main graph.
            infos: The declarations of values in it.

        Returns:
            The graph; None if a touched node reads or makes what is no tensor of a known type.
        """
        said = self._said({info.name: info.type.tensor_type.elem_type for info in infos})
        graph, kinds = onnx.GraphProto(name="samples"), set[tuple[object, ...]]()
        for item, call, read, made in self._calls():
            types = self._declared(item, made, said) if said else made
            kind = (call, read, types)
            if kind not in kinds:
                kinds.add(kind)
                if _UNKNOWN in read or _UNKNOWN in types:
                    return None
                _add(graph, f"{len(kinds)}", message_of(item), read, types)
        return graph

    def _calls(self) -> Iterator[tuple[Item, object, tuple[int, ...], tuple[int, ...]]]:
        """Yield the touched nodes, what tells their calls, and the types of their ends."""
        flat, wiring, types, read = self._flat, self._wiring, self._types, self._read
        for name, planned in wiring.planned.items():
            is_weight = isinstance(planned, PlannedWeight)
            call, inputs = ("Constant", ()) if is_weight else (planned.op_type, planned.inputs)
            given = tuple([self._type(wiring.left_of(value)) for value in inputs])
            yield name, call, given, (self._type(wiring.made_by(name)),)
        first, behind, operators = flat.input_start, flat.output_start, flat.operator
        for node in self._nodes:
            call = operators[node], flat.spelled_attributes(node), node in self._retyped
            given = tuple(read[first[node] : first[node + 1]])
            made = tuple([types[v] for v in flat.outputs[behind[node] : behind[node + 1]]])
            yield node, call, given, made

    def _said(self, types: Mapping[str, int]) -> dict[Read, int]:
        """Return value -> its declared type, of types by name; without those that are 0."""
        flat, wiring = self._flat, self._wiring
        declared = (*flat.declared, *wiring.outputs.values(), *wiring.added.values())
        values = {read: types.get(wiring.name(read)) for read in declared} if types else {}
        return {read: type_ for read, type_ in values.items() if type_}

    def _declared(self, item: Item, made: tuple[int, ...], said: Mapping[Read, int]) -> _Types:
        """Return the types that are declared of what a node makes, or else what they are."""
        wiring = self._wiring
        values: Sequence[Read] = (
            [wiring.made_by(item)] if isinstance(item, str) else self._flat.outputs_of(item)
        )
        if said.keys().isdisjoint(values):
            return made
        return tuple([said.get(v, known) for v, known in zip(values, made, strict=True)])

    def _type(self, read: Read) -> int:
        """Return the element type of a value of the rewritten model; 0 of one that is left out."""
        if isinstance(read, Added):
            is_axes = read.name in self._wiring.axes
            return onnx.TensorProto.INT64 if is_axes else read.dtype.number
        return self._types[read]


def _number(type_: str | None) -> int:
    """Return the element type of a tensor as a number of TensorProto.DataType."""
    number = element(type_) if type_ is not None and type_.startswith("tensor(") else None
    return _UNKNOWN if number is None else number


def _add(
    graph: onnx.GraphProto,
    name: str,
    message: onnx.NodeProto,
    read: Sequence[int],
    made: Sequence[int],
) -> None:
    """Add a node as a sample: its inputs are graph inputs, its outputs graph outputs."""
    node = graph.node.add()
    node.CopyFrom(message)
    inputs = [f"{name}.{index}" if given else "" for index, given in enumerate(message.input)]
    outputs = [f"{name}:{index}" if given else "" for index, given in enumerate(message.output)]
    del node.input[:], node.output[:]
    node.name = name
    node.input.extend(inputs)
    node.output.extend(outputs)
    for names, types, infos in ((inputs, read, graph.input), (outputs, made, graph.output)):
        for value, kind in zip(names, types, strict=True):
            if value:
                infos.append(make_tensor_value_info(value, kind, None))
