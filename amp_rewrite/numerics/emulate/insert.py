"""Put casts into a graph: rounding pairs, and casts at its ends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.added import AddedNames
from amp_rewrite.numerics.emulate.node_collector import NodeCollector


class Inserter:
    """Adds nodes to one model; the value that ends up rounded has the name that it had before."""

    def __init__(self, model: ir.Model) -> None:
        """Note which values are outputs of which graph, so that these can be redirected."""
        self.names = AddedNames.of(model.graph)
        self._main = model.graph
        self._ends: dict[ir.Value, list[tuple[ir.Graph, int]]] = defaultdict(list)
        self._first: dict[ir.Graph, ir.Node | None] = {}
        for graph in (model.graph, *model.graph.subgraphs()):
            self._first[graph] = next(iter(graph), None)
            for index, value in enumerate(graph.outputs):
                self._ends[value].append((graph, index))

    def cast(self, value: ir.Value, to: DType, name: str) -> ir.Node:
        """Return a Cast, not in any graph yet."""
        shape = None if value.shape is None else value.shape.copy()
        output = ir.Value(name=name, type=ir.TensorType(to.ir), shape=shape)
        attribute = ir.AttrInt64("to", to.ir.value)
        node_name = self.names.part(name, "Cast")
        return ir.Node("", "Cast", [value], [attribute], outputs=[output], name=node_name)

    def round(self, value: ir.Value, dtype: DType, but: Collection[ir.Node] = ()) -> ir.Value:
        """Round a node's output: whoever read it reads the rounded value, which takes its name.

        Nodes in `but` go on reading it as it was computed.
        """
        uses = tuple(use for use in value.uses() if use[0] not in but)
        low = self.cast(value, dtype, self.names.cast(value.name or "", dtype))
        back = self.cast(low.outputs[0], FLOAT32, value.name or "")
        self._redirect(value, uses, back.outputs[0])
        value.name = self.names.inner(value.name or "", FLOAT32)
        self._after(value, low, back)
        return back.outputs[0]

    def is_end(self, value: ir.Value) -> bool:
        """Tell whether a graph returns a value."""
        return bool(self._ends.get(value))

    def replace_node(self, node: ir.Node, nodes: Sequence[ir.Node], *results: ir.Value) -> None:
        """Put nodes in place of one; a result for each output takes over the output's name."""
        olds = node.outputs
        before = [(old.name or "", tuple(old.uses()), old.shape) for old in olds]
        for old, (_, uses, shape), result in zip(olds, before, results, strict=True):
            self._redirect(old, uses, result)
            result.shape = shape
        node.append(nodes)
        if self._first.get(graph := _graph(node)) is node:
            self._first[graph] = nodes[0]
        graph.remove(node, safe=True)
        for (name, _, _), result in zip(before, results, strict=True):
            result.name = name

    def put_before(self, node: ir.Node, nodes: Sequence[ir.Node]) -> None:
        """Put nodes in front of one."""
        node.prepend(nodes)
        if nodes and self._first.get(graph := _graph(node)) is node:
            self._first[graph] = nodes[0]

    def cast_back(self, value: ir.Value, dtype: DType) -> ir.Value:
        """Let every reader of a low output read it as float32, under the name that it had."""
        uses = tuple(value.uses())
        back = self.cast(value, FLOAT32, value.name or "")
        self._redirect(value, uses, back.outputs[0])
        value.name = self.names.inner(value.name or "", dtype)
        self._after(value, back)
        return back.outputs[0]

    def cast_before(self, node: ir.Node, value: ir.Value, dtype: DType) -> ir.Value:
        """Return `value` cast to a low type just before `node`."""
        cast = self.cast(value, dtype, self.names.cast(value.name or "", dtype))
        node.prepend(cast)
        return cast.outputs[0]

    def convert_input(self, value: ir.Value, type_: str, to: DType) -> None:
        """Let the readers of a graph input, or of an initializer, read it in another type.

        Raises:
            OptionError: It is an optional, which has no cast.
        """
        uses = tuple(value.uses())
        nodes, converted = self._convert(value, type_, to, self.names.cast(value.name or "", to))
        self._redirect(value, uses, converted, keep=self._main)
        self._after(value, *nodes)

    def round_input(self, value: ir.Value, dtype: DType) -> None:
        """Round a graph input that is fed as float32."""
        uses = tuple(value.uses())
        low = self.cast(value, dtype, self.names.cast(value.name or "", dtype))
        back = self.cast(low.outputs[0], FLOAT32, self.names.cast(value.name or "", FLOAT32))
        self._redirect(value, uses, back.outputs[0], keep=self._main)
        self._after(value, low, back)

    def narrow_output(self, value: ir.Value, type_: str, dtype: DType) -> ir.Value:
        """Return a float32 value of the main graph in a low type, under the name that it had.

        Raises:
            OptionError: It is an optional, which has no cast.
        """
        nodes, narrowed = self._convert(value, type_, dtype, value.name or "")
        value.name = self.names.inner(value.name or "", FLOAT32)
        self._main.extend(nodes)
        return narrowed

    def _redirect(
        self,
        old: ir.Value,
        uses: Iterable[tuple[ir.Node, int]],
        new: ir.Value,
        keep: ir.Graph | None = None,
    ) -> None:
        """Let these uses of a value, and all graphs but `keep` that return it, take another one."""
        for user, index in uses:
            user.replace_input_with(index, new)
        for graph, index in self._ends.pop(old, []):
            if graph is keep:
                self._ends[old].append((graph, index))
            else:
                graph.outputs[index] = new
                self._ends[new].append((graph, index))

    def _after(self, value: ir.Value, *nodes: ir.Node) -> None:
        """Put nodes right behind a value's producer, or at the start of its graph."""
        producer = value.producer()
        if producer is not None:
            producer.append(nodes)
            return
        graph = value.graph or self._main
        first = self._first[graph]
        if first is None:
            graph.extend(nodes)
        else:
            first.prepend(nodes)

    def _convert(
        self, value: ir.Value, type_: str, to: DType, name: str
    ) -> tuple[list[ir.Node], ir.Value]:
        if type_.startswith("tensor("):
            node = self.cast(value, to, name)
            return [node], node.outputs[0]
        if type_.startswith("seq(tensor("):
            nodes = NodeCollector(name, self.names)
            result = cast_sequence(nodes, value, to)
            result.name = name
            return nodes.made, result
        raise OptionError(
            "an optional cannot keep its 16-bit type",
            where=value.name,
            found=type_,
            remedy="pass keep_io_types=False, or make it a tensor",
        )


def _graph(node: ir.Node) -> ir.Graph:
    graph = node.graph
    assert isinstance(graph, ir.Graph), "functions are inlined before"
    return graph


def cast_sequence(nodes: NodeCollector, value: ir.Value, to: DType) -> ir.Value:
    """Add the nodes that cast a sequence of tensors, and return their result.

    A Loop over the sequence casts one tensor at a time (a sequence can be carried by a Loop since
    opset 13): it takes element i of the outer sequence, casts it, and appends it.
    """
    body, integer, boolean = nodes.nested("body"), ir.DataType.INT64, ir.DataType.BOOL
    length = nodes.add("SequenceLength", [value], type_=integer)
    empty = nodes.add("SequenceEmpty", [], [ir.AttrInt64("dtype", to.ir.value)])
    index, again = (body.value(n, t, ir.Shape([])) for n, t in (("i", integer), ("again", boolean)))
    carried = body.value("carried", to.ir)
    element = body.cast(body.add("SequenceAt", [value, index]), to.ir)
    longer = body.add("SequenceInsert", [carried, element])
    ends = [body.add("Identity", [again], type_=boolean), longer]
    loop = ir.Graph([index, again, carried], ends, nodes=body.made, name=f"{value.name}/body")
    result = nodes.add("Loop", [length, None, empty], [ir.AttrGraph("body", loop)])
    for sequence in (empty, carried, longer, result):
        sequence.type = ir.SequenceType(ir.TensorType(to.ir))
    return result
