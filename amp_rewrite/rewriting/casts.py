"""The plan: which casts, which weights and which types a painting asks for.

`plan_casts` is pure and its result printable; apply_plan.py carries a plan out and decides nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.graph.added import AddedNames
from amp_rewrite.graph.constants import constant_tensor
from amp_rewrite.graph.dataflow import TypeGraph, Vertex
from amp_rewrite.graph.elements import tensor as tensor_type
from amp_rewrite.graph.special_types import attribute_type
from amp_rewrite.paint.context import PaintContext
from amp_rewrite.paint.painting import Painting
from amp_rewrite.rewriting.saturation import fill_saturation, saturation


@dataclass(frozen=True, slots=True)
class Use:
    """One consumer of a value: an input of a node, or an output of a graph.

    Attributes:
        node: The consuming node, or None for a graph output.
        index: Which input of the node, or which output of the graph.
        graph: The graph whose output it is, or None for a node.
        vertex: The consuming vertex; None for an output of the main or of an opaque graph.
    """

    node: ir.Node | None
    index: int
    graph: ir.Graph | None = None
    vertex: Vertex | None = None

    @property
    def name(self) -> str:
        """The consumer as the report spells it: "MatMul_3/T", or the graph output's name."""
        if self.vertex is not None:
            return self.vertex.name
        if self.graph is not None:
            return self.graph.outputs[self.index].name or ""
        return "" if self.node is None else f"{self.node.name}/in[{self.index}]"


@dataclass(frozen=True, slots=True)
class PlannedCast:
    """One Cast, shared by every use of a value that wants the other type.

    Attributes:
        value: The value to cast.
        source: Its name in the model as given.
        to: The type to cast to.
        uses: The uses that will read the cast.
        name: The name of the Cast and of its output.
        existing: A Cast of the model that already does it, or None.
    """

    value: ir.Value
    source: str
    to: DType
    uses: tuple[Use, ...]
    name: str
    existing: ir.Node | None = None


@dataclass(frozen=True, slots=True)
class PlannedWeight:
    """One constant to convert in the file.

    Attributes:
        value: The initializer's value, or a Constant node's output.
        tensor: Its float32 contents.
        uses: The uses that will read the low-precision copy.
        keep_float32: Whether anything still reads the float32 one.
        saturate: The magnitude at which elements out of range end; 0 makes them infinite.
        name: The name of the copy if both are kept.
    """

    value: ir.Value
    tensor: ir.TensorProtocol
    uses: tuple[Use, ...]
    keep_float32: bool
    saturate: float
    name: str


@dataclass(frozen=True, slots=True)
class CastPlan:
    """Everything that a rewrite changes.

    Attributes:
        low: The low-precision type.
        casts: The casts to insert or reuse.
        weights: The constants to convert.
        vertices: The vertices whose attributes and output types become low.
        fills: ConstantOfShape vertex -> the magnitude at which its constant ends.
        retyped: The values that become low because of their producer.
        ends: Graph inputs and outputs whose own type becomes low; an output that is computed in
            float32 gives its place to a cast.
        names: The names in use, for what the plan could not name.
    """

    low: DType
    casts: tuple[PlannedCast, ...]
    weights: tuple[PlannedWeight, ...]
    vertices: tuple[Vertex, ...]
    fills: Mapping[Vertex, float]
    retyped: tuple[ir.Value, ...]
    ends: tuple[ir.Value, ...]
    names: AddedNames

    @property
    def is_empty(self) -> bool:
        """Whether the plan changes nothing."""
        return not (self.casts or self.weights or self.vertices or self.ends)


def plan_casts(context: PaintContext, painting: Painting) -> CastPlan:
    """Return the plan for a painting.

    Args:
        context: What the painting knew: the type graph, which graph inputs and outputs give up
            their type, and what becomes of weights.
        painting: The painting.
    """
    return _Planner(context.type_graph, context, painting).plan()


@dataclass
class _Planner:
    type_graph: TypeGraph
    context: PaintContext
    painting: Painting
    ends: tuple[ir.Value, ...] = ()
    low_values: set[ir.Value] = field(default_factory=set)
    allowed: set[Vertex] = field(default_factory=set)
    outputs: Counter[ir.Value] = field(default_factory=Counter)

    def plan(self) -> CastPlan:
        """Collect every use that wants another type than its value has, and group by value."""
        low = self.context.low
        self.allowed = set(self.painting.allowed())
        retyped = [v for v, p in self.type_graph.producers.items() if p in self.allowed]
        self.ends = self._converted_ends()
        inputs = set(self.type_graph.model.graph.inputs)
        self.low_values = {*retyped, *(v for v in self.ends if v in inputs)}
        names = AddedNames(self.type_graph.model.graph)
        casts: list[PlannedCast] = []
        weights: list[PlannedWeight] = []
        for value, uses in self._mismatches().items():
            to = FLOAT32 if value in self.low_values else low
            tensor = None
            if self.context.converts_weights and to is low:
                tensor = constant_tensor(self.type_graph, value)
            name = names.cast(value.name or "", to)
            if tensor is None:
                existing = self._existing_cast(value, to, uses)
                casts.append(PlannedCast(value, value.name or "", to, tuple(uses), name, existing))
            else:
                weights.append(self._weight(value, tensor, uses, name))
        vertices = tuple(v for v in self.type_graph.vertices() if v in self.allowed)
        fills = {
            v: fill_saturation(self.context, v)
            for v in vertices
            if v.node.op_type == "ConstantOfShape"
        }
        return CastPlan(
            low, tuple(casts), tuple(weights), vertices, fills, tuple(retyped), self.ends, names
        )

    def _converted_ends(self) -> tuple[ir.Value, ...]:
        """Return the graph inputs and outputs that give up their type; none in a float32 model."""
        graph, ends = self.type_graph.model.graph, self.context.low_ends
        if not self.allowed:
            return ()
        return tuple(dict.fromkeys(v for v in (*graph.inputs, *graph.outputs) if v in ends))

    def _mismatches(self) -> dict[ir.Value, list[Use]]:
        """Return value -> the uses that want the other type, in execution order."""
        found: dict[ir.Value, list[Use]] = {}
        low_values, allowed = self.low_values, self.allowed
        for node, entry in self.type_graph.nodes.items():
            for index, vertex in enumerate(entry.inputs):
                if vertex is None:
                    continue
                value = node.inputs[index]
                if (vertex in allowed) != (value in low_values) and value is not None:
                    if value in low_values and self._reads_any_type(node):
                        continue
                    found.setdefault(value, []).append(Use(node, index, None, vertex))
        for graph, vertices in self._graph_outputs():
            self.outputs.update(graph.outputs)
            for index, (value, vertex) in enumerate(zip(graph.outputs, vertices, strict=True)):
                if self._wants_low(graph, value, vertex) != (value in low_values):
                    found.setdefault(value, []).append(Use(None, index, graph, vertex))
        return {v: uses for v, uses in found.items() if self.type_graph.is_float32(v)}

    def _graph_outputs(self) -> Iterator[tuple[ir.Graph, list[Vertex | None]]]:
        main = self.type_graph.model.graph
        yield main, [None] * len(main.outputs)
        yield from self.type_graph.sinks.items()

    def _wants_low(self, graph: ir.Graph, value: ir.Value, vertex: Vertex | None) -> bool:
        if graph is self.type_graph.model.graph:
            return value in self.ends
        return vertex in self.allowed

    def _reads_any_type(self, node: ir.Node) -> bool:
        """Tell whether a node is a Cast of the model: widening first would change nothing."""
        return node.op_type == "Cast" and node.domain == "" and self._cast_reads_low(node)

    def _cast_reads_low(self, node: ir.Node) -> bool:
        schema = self.type_graph.nodes[node].ports.schema
        admitted = frozenset() if schema is None else schema.variables.get("T1", frozenset())
        return tensor_type(self.context.low.ir) in admitted

    def _existing_cast(self, value: ir.Value, to: DType, uses: list[Use]) -> ir.Node | None:
        """Return a Cast of the same value, in its own scope, that already gives the type.

        A Cast that takes an output's place is always a new one: the model's own keeps its name.
        """
        main = self.type_graph.model.graph
        if any(use.graph is main for use in uses):
            return None
        home = value.graph or (None if value.producer() is None else value.producer().graph)  # pyright: ignore[reportOptionalMemberAccess]
        for use in value.uses():
            node = use.node
            if node.op_type != "Cast" or node.domain != "" or node.graph is not home:
                continue
            target = attribute_type(node.attributes, "to")
            if target == tensor_type(to.ir) and node.outputs[0] not in self.low_values:
                return node
        return None

    def _weight(
        self, value: ir.Value, tensor: ir.TensorProtocol, uses: list[Use], name: str
    ) -> PlannedWeight:
        total = len(value.uses()) + self.outputs[value]
        vertices = [use.vertex for use in uses if use.vertex is not None]
        stats = self.context.measured.stats(value, tensor)
        return PlannedWeight(
            value,
            tensor,
            tuple(uses),
            keep_float32=len(uses) < total,
            saturate=saturation(self.type_graph, stats, vertices, self.context.low),
            name=name,
        )
