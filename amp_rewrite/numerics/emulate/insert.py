"""Put casts into a graph: rounding pairs, and casts at its ends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.added import AddedNames


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

    def round(self, value: ir.Value, dtype: DType, but: Collection[ir.Node] = ()) -> None:
        """Round a node's output: whoever read it reads the rounded value, which takes its name.

        Nodes in `but` go on reading it as it was computed.
        """
        uses = [use for use in value.uses() if use[0] not in but]
        low = self.cast(value, dtype, self.names.cast(value.name or "", dtype))
        back = self.cast(low.outputs[0], FLOAT32, value.name or "")
        self._read_from(value, uses, low, back)
        value.name = self.names.inner(value.name or "", FLOAT32)

    def is_end(self, value: ir.Value) -> bool:
        """Return whether a graph returns a value."""
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

    def cast_back(self, value: ir.Value, dtype: DType) -> None:
        """Let every reader of a 16-bit output read it as float32, under the name that it had."""
        uses = list(value.uses())
        back = self.cast(value, FLOAT32, value.name or "")
        self._read_from(value, uses, back)
        value.name = self.names.inner(value.name or "", dtype)

    def convert_input(self, value: ir.Value, type_: str, to: DType) -> None:
        """Let the readers of a graph input, or of an initializer, read it in another type."""
        uses = list(value.uses())
        cast = self._converted(value, type_, to, self.names.cast(value.name or "", to))
        self._read_from(value, uses, cast, keep=self._main)

    def round_input(self, value: ir.Value, dtype: DType) -> None:
        """Round a graph input that is fed as float32."""
        uses = list(value.uses())
        low = self.cast(value, dtype, self.names.cast(value.name or "", dtype))
        back = self.cast(low.outputs[0], FLOAT32, self.names.cast(value.name or "", FLOAT32))
        self._read_from(value, uses, low, back, keep=self._main)

    def retype_output(self, value: ir.Value, type_: str, dtype: DType) -> ir.Value:
        """Return a value of the main graph in another type, under the name that it had."""
        cast = self._converted(value, type_, dtype, value.name or "")
        value.name = self.names.inner(value.name or "", FLOAT32)
        self._main.append(cast)
        return cast.outputs[0]

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

    def _read_from(
        self,
        value: ir.Value,
        uses: Iterable[tuple[ir.Node, int]],
        *nodes: ir.Node,
        keep: ir.Graph | None = None,
    ) -> None:
        """Put nodes right after a value's producer, or at the start of its graph.

        These uses, and all graphs but `keep` that return the value, get the last node's result.
        """
        self._redirect(value, uses, nodes[-1].outputs[0], keep)
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

    def _converted(self, value: ir.Value, type_: str, to: DType, name: str) -> ir.Node:
        """Return a Cast of a tensor to another type.

        Raises:
            OptionError: It is a sequence or an optional, which have no cast.
        """
        if type_.startswith("tensor("):
            return self.cast(value, to, name)
        raise OptionError(
            "a sequence or an optional cannot keep its 16-bit type",
            where=value.name,
            found=type_,
            remedy="make it a tensor, or emulate its rounding",
        )


def _graph(node: ir.Node) -> ir.Graph:
    graph = node.graph
    assert isinstance(graph, ir.Graph), "functions are inlined before"
    return graph
