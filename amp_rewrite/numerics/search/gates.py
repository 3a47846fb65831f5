"""A float32 model in which every type variable can be made low at run time.

Each slot (a node's type variable) has a gate, a boolean fed with the batch. Where it is open, the
slot's inputs and results are rounded to the low type, as emulate/ does, and partial sums where the
target keeps them low; where it is closed they pass unchanged. One loaded model so evaluates any
painting, and any single node on its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from amp_rewrite import targets
from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.errors import GraphError
from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.constants import constant_tensor
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT, FlatGraph, spans
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.io.read import tensor_of
from amp_rewrite.graph.io.read_object import number_object, values_in
from amp_rewrite.graph.rounding import to_low
from amp_rewrite.graph.tensors import ConvertedTensor, elements
from amp_rewrite.graph.traverse import graphs_in
from amp_rewrite.graph.versions import FIRST_OPSET_WITH_WHERE
from amp_rewrite.numerics.compare.intermediates import Chunks
from amp_rewrite.numerics.emulate.exact import is_exact
from amp_rewrite.numerics.inputs.batches import Array, Feeds
from amp_rewrite.numerics.repaint.float32_session import Float32Session
from amp_rewrite.numerics.repaint.raised_for_sums import places_of, raised_for_sums
from amp_rewrite.numerics.repaint.repaint import Repainter, Slot
from amp_rewrite.numerics.search.expose import expose
from amp_rewrite.numerics.search.gated_sums import GatedSums
from amp_rewrite.rewriting.paint.saturation import saturation
from amp_rewrite.runtimes.ort.time_limit import check_time
from amp_rewrite.values.weight_stats import measure

_GATES = "amp-rewrite.gates"

NodeValue = tuple[int, int]
"""An output of a node: the node's index in execution order, and which output."""


@dataclass
class GatedModel:
    """A loaded model with gates.

    Attributes:
        slots: The slots that have gates, in order.
        outputs: The names of the model's own outputs.
        values: The node outputs that can be fetched, and under which name.
        ends: The names of the model's inputs and outputs that become low where any slot does.
        low: The low type.
    """

    slots: tuple[Slot, ...]
    outputs: tuple[str, ...]
    values: dict[NodeValue, str]
    ends: frozenset[str]
    low: DType
    _session: Float32Session
    _sizes: dict[str, int] = field(default_factory=dict[str, int])

    @staticmethod
    def of(painter: Repainter, slots: Collection[Slot], *, expose_all: bool = False) -> GatedModel:
        """Build and load the model.

        `expose_all` makes the outputs of all nodes fetchable, those of loop bodies excepted.

        Raises:
            GraphError: The model's opset has no Where, or ONNX Runtime refuses the model.
        """
        model, places = _copied(painter)
        opset = model.graph.opset_imports.get("", FIRST_OPSET_WITH_WHERE)
        if slots and opset < FIRST_OPSET_WITH_WHERE:
            raise GraphError(
                "the opset is too old to emulate one node at a time",
                found=opset,
                expected=f"at least {FIRST_OPSET_WITH_WHERE}",
                remedy="convert the model with onnx.version_converter",
            )
        outputs = tuple(v.name or "" for v in model.graph.outputs)
        builder = _Builder(model, painter, tuple(sorted(slots)), places)
        results = builder.run()
        values = expose(model, results) if expose_all else {}
        _restore_names(model, outputs)
        ends = frozenset(value.name or "" for value in painter.ends)
        return GatedModel(builder.slots, outputs, values, ends, painter.low, Float32Session(model))

    def run(
        self,
        feeds: Feeds,
        low: Collection[Slot],
        fetch: Sequence[str] | None = None,
        *,
        ends: bool = True,
    ) -> dict[str, Array]:
        """Return outputs (or what is fetched) with the slots in `low` rounded, all others not.

        Args:
            feeds: A batch.
            low: The slots to round.
            fetch: Names in `values`; None for the outputs.
            ends: Round the inputs and outputs in `ends` too, if any slot is rounded.

        Raises:
            DataError: The batch does not fit the model.
        """
        rounds_ends = bool(ends and low)
        if rounds_ends:
            feeds = self._rounded(feeds)
        if self.slots:
            gates = np.array([slot in low for slot in self.slots], np.bool_)
            feeds = {**feeds, _GATES: gates}
        if fetch is not None:
            return self._session.run(feeds, fetch)
        arrays = self._session.run(feeds, self.outputs)
        return self._rounded(arrays) if rounds_ends else arrays

    def values_in_chunks(
        self, feeds: Feeds, *lows: Collection[Slot]
    ) -> Iterator[dict[str, tuple[Array, ...]]]:
        """Yield what `values` are with each of some sets of slots rounded, as memory allows."""
        names = [name for _, name in sorted(self.values.items())]
        chunks = Chunks(names, self._sizes if len(self._sizes) == len(names) else None)
        for chunk in chunks:
            runs = [self.run(feeds, low, chunk) for low in lows]
            sizes = {name: runs[0][name].nbytes for name in chunk}
            chunks.held = len(lows) * sum(sizes.values())
            self._sizes = self._sizes | sizes
            yield {name: tuple(run[name] for run in runs) for name in chunk}

    def _rounded(self, arrays: Feeds) -> dict[str, Array]:
        return {
            name: to_low(array, self.low).astype(np.float32) if name in self.ends else array
            for name, array in arrays.items()
        }


def _copied(painter: Repainter) -> tuple[ir.Model, Sequence[int]]:
    """Return the model to put gates into, and which of the painter's nodes each node is."""
    target = targets.find(painter.options.chosen_target)
    raised = raised_for_sums(painter.model, target, painter.low)
    if raised is painter.model:
        return load(painter.model), range(len(painter.nodes))
    return raised, places_of(list(raised.graph.all_nodes()), painter.nodes)


def _restore_names(model: ir.Model, outputs: tuple[str, ...]) -> None:
    """Give the graph outputs their names back where a rounded value took the place of one."""
    for name, value in zip(outputs, list(model.graph.outputs)[: len(outputs)], strict=True):
        if value.name != name:
            for node in model.graph:
                for other in node.outputs:
                    if other.name == name:
                        other.name = f"{name}/before-rounding"
            value.name = name


@dataclass
class _Builder:
    model: ir.Model
    painter: Repainter
    slots: tuple[Slot, ...]
    places: Sequence[int]
    flat: FlatGraph = field(init=False)
    type_graph: TypeGraph = field(init=False)
    rounded: dict[ir.Value, ir.Value] = field(default_factory=dict[ir.Value, ir.Value])
    gates: dict[Slot, ir.Value] = field(default_factory=dict[Slot, ir.Value])
    count: int = 0

    def __post_init__(self) -> None:
        """Look at the copy before anything is changed."""
        self.flat = number_object(self.model)
        self.nodes = list(self.model.graph.all_nodes())
        self.numbers = {value: v for v, value in enumerate(values_in(self.model.graph))}
        self.type_graph = build_type_graph(self.flat)
        self.low: DType = self.painter.low
        self.sums = GatedSums.of(self.model, self.painter.options.chosen_target, self.low)

    def run(self) -> dict[NodeValue, ir.Value]:
        """Insert the gates; return what each float32 output of a node has become."""
        flat, graph = self.flat, self.type_graph
        graphs = list(graphs_in(self.model.graph))
        reads = [
            (self.nodes[flat.reader(position)], flat.index(position), self._slot(vertex))
            for position, vertex in enumerate(graph.reads)
            if vertex != ABSENT
        ]
        writes = [
            ((self.places[i], k), node.outputs[k], self._slot(vertex), is_exact(node))
            for i, (node, part) in enumerate(zip(self.nodes, spans(flat.output_start), strict=True))
            for k, vertex in enumerate(graph.writes[part])
            if vertex != ABSENT and self.places[i] != ABSENT
        ]
        sinks = [
            (graphs[number], k, self._slot(vertex))
            for number, vertices in graph.sinks.items()
            for k, vertex in enumerate(vertices)
        ]
        wanted = set(self.slots)
        self._add_gates()
        sums = {key for key, value, *_ in writes if self.sums.concern(value.producer())}
        check_time()
        results = {
            key: self._round_result(value, slot)
            if slot in wanted and not exact and key not in sums
            else value
            for key, value, slot, exact in writes
        }
        for node, k, slot in reads:
            if slot in wanted:
                self._round_read(node, k, slot)
        check_time()
        for body, k, slot in sinks:
            if slot in wanted:
                body.outputs[k] = self._gated(body.outputs[k], slot, body)
        # What adds up in the low type reads what is rounded by now.
        for key, value, slot, _ in writes:
            if slot in wanted and key in sums:
                results[key] = self._gate_sum(value, slot)
        return results

    def _slot(self, vertex: int) -> Slot:
        """Return the painter's slot for a vertex, by the order in the node: names may change."""
        graph, painted = self.type_graph, self.painter.type_graph
        node = ABSENT if vertex == ABSENT else graph.nodes[vertex]
        place = ABSENT if node == ABSENT else self.places[node]
        if place == ABSENT:
            return Slot(ABSENT, "")
        own = painted.vertices_of(place)[vertex - graph.vertices_of(node)[0] :]
        return Slot(place, painted.kind_of(own[0]).variables[0]) if own else Slot(ABSENT, "")

    def _add_gates(self) -> None:
        if not self.slots:
            return
        shape = ir.Shape([len(self.slots)])
        gates = ir.Value(name=_GATES, type=ir.TensorType(ir.DataType.BOOL), shape=shape)
        added: list[ir.Node] = []
        for i, slot in enumerate(self.slots):
            index = ir.AttrTensor("value", ir.Tensor(np.array(i, np.int64)))
            constant = ir.Node("", "Constant", [], [index], outputs=[self._value()])
            gate = ir.Node("", "Gather", [gates, constant.outputs[0]], outputs=[self._value()])
            self.gates[slot] = gate.outputs[0]
            added += [constant, gate]
        _prepend(self.model.graph, added)
        self.model.graph.inputs.append(gates)

    def _round_read(self, node: ir.Node, index: int, slot: Slot) -> None:
        value, graph = node.inputs[index], node.graph
        if value is None or not isinstance(graph, ir.Graph) or not self._is_tensor(value):
            return
        node.replace_input_with(index, self._gated(value, slot, graph, before=node))

    def _round_result(self, value: ir.Value, slot: Slot) -> ir.Value:
        node = value.producer()
        if node is None or not isinstance(node.graph, ir.Graph) or not self._is_tensor(value):
            return value
        uses = list(value.uses())
        gated = self._gated(value, slot, node.graph, after=self._pair(value))
        self._redirect(value, uses, gated)
        self.rounded[gated] = self.rounded[value]
        return gated

    def _gate_sum(self, value: ir.Value, slot: Slot) -> ir.Value:
        node = value.producer()
        if node is None or not isinstance(node.graph, ir.Graph):
            return value
        uses = list(value.uses())
        gated = self.sums.insert(node, node.graph, self.gates[slot])
        self._redirect(value, uses, gated)
        return gated

    def _redirect(
        self, value: ir.Value, uses: Iterable[tuple[ir.Node, int]], gated: ir.Value
    ) -> None:
        """Let these uses of a value, and the graphs that return it, take the gated one."""
        for user, index in uses:
            user.replace_input_with(index, gated)
        if value.is_graph_output():
            for graph in (self.model.graph, *self.model.graph.subgraphs()):
                for k, output in enumerate(graph.outputs):
                    if output is value:
                        graph.outputs[k] = gated

    def _is_tensor(self, value: ir.Value) -> bool:
        number = self.numbers.get(value)
        type_ = None if number is None else self.type_graph.types[number]
        return type_ is None or type_ == f"tensor({FLOAT32.onnx})"

    def _gated(
        self,
        value: ir.Value,
        slot: Slot,
        graph: ir.Graph,
        before: ir.Node | None = None,
        after: ir.Node | None = None,
    ) -> ir.Value:
        """Add Where(gate, rounded, value) to a graph."""
        rounded = self._rounded(value)
        inputs = [self.gates[slot], rounded, value]
        node = ir.Node("", "Where", inputs, outputs=[self._value(value)])
        if before is not None:
            graph.insert_before(before, node)
        elif after is not None:
            graph.insert_after(after, node)
        else:
            graph.append(node)
        return node.outputs[0]

    def _pair(self, value: ir.Value) -> ir.Node:
        """Return the last node of the rounding of a value that a node makes."""
        self._rounded(value)
        maker = self.rounded[value].producer()
        if maker is None:
            raise GraphError("a result without a node", where=value.name)
        return maker

    def _rounded(self, value: ir.Value) -> ir.Value:
        if value not in self.rounded:
            self.rounded[value] = self._round(value)
        return self.rounded[value]

    def _round(self, value: ir.Value) -> ir.Value:
        """Add the rounded value next to where a value is made."""
        number = self.numbers.get(value)
        tensor = None if number is None else constant_tensor(self.type_graph, number)
        held = None if tensor is None else tensor_of(tensor)
        nodes = self._casts(value) if held is None else [self._constant(value, held)]
        producer, home = value.producer(), value.graph
        if producer is not None and isinstance(producer.graph, ir.Graph):
            producer.graph.insert_after(producer, nodes)
        elif isinstance(home, ir.Graph):
            _prepend(home, nodes)
        return nodes[-1].outputs[0]

    def _casts(self, value: ir.Value) -> list[ir.Node]:
        to_low = ir.AttrInt64("to", self.low.ir.value)
        narrow = ir.Node("", "Cast", [value], [to_low], outputs=[self._value()])
        to_float = ir.AttrInt64("to", FLOAT32.ir.value)
        widen = ir.Node("", "Cast", narrow.outputs, [to_float], outputs=[self._value(value)])
        return [narrow, widen]

    def _constant(self, value: ir.Value, tensor: ir.TensorProtocol) -> ir.Node:
        graph = self.type_graph
        readers = self.flat.readers(self.numbers[value])
        vertices = [v for n in readers for v in graph.vertices_of(n)]
        saturate = saturation(self.type_graph, measure(elements(tensor)), vertices, self.low)
        low = ConvertedTensor(tensor, self.low, saturate=saturate, name=value.name or "constant")
        with np.errstate(over="ignore"):
            rounded = low.numpy().astype(np.float32)
        attribute = ir.AttrTensor("value", ir.Tensor(rounded))
        return ir.Node("", "Constant", [], [attribute], outputs=[self._value()])

    def _value(self, like: ir.Value | None = None) -> ir.Value:
        """Return a new value, of the shape of another one."""
        self.count += 1
        shape = None if like is None else like.shape
        return ir.Value(name=f"amp-rewrite.gated.{self.count}", shape=shape)


def _prepend(graph: ir.Graph, nodes: Sequence[ir.Node]) -> None:
    head = next(iter(graph), None)
    if head is None:
        graph.extend(nodes)
    else:
        graph.insert_before(head, nodes)
