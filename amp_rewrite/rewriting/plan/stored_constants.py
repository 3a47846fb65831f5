"""Tables and masks that compute as float32 and are stored in 16 bits, behind one Cast.

A runtime folds a Cast of an initializer when it loads the model, so that the file halves and
nothing else changes: what it fuses around Gather of embeddings still fuses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from amp_rewrite.dtypes import FLOAT16, FLOAT32, DType, may_leave_range
from amp_rewrite.graph.constants import constant_tensor, read_constants
from amp_rewrite.graph.dataflow import TypeGraph, vertices_in
from amp_rewrite.graph.flat import ABSENT, Array
from amp_rewrite.graph.proto.stored import StoredTensor
from amp_rewrite.graph.reach import walk
from amp_rewrite.graph.streams import Stream
from amp_rewrite.graph.traits import Trait, having
from amp_rewrite.oplists import ListName
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.masks import CARRYING
from amp_rewrite.rewriting.paint.painting import Painting
from amp_rewrite.rewriting.paint.saturation import (
    may_stand_behind_cast,
    saturates_in_float32,
    saturation,
)

LEAST_ELEMENTS = 1024
"""Smaller tables save less than the Cast and its names take."""

_MOST_SMALL = 0.01
"""The share of nonzero elements that may lie below the smallest normal number, where a 16-bit type
has fewer digits. Weights around 0.02, such as embeddings, have 0.2 % there in float16."""

# operators: what the normalization behind a sum of embeddings is made of, fused or not.
_NORMALIZING = (
    *("Sub", "Mul", "Div", "Pow", "Sqrt", "Reciprocal", "Dropout", "Shape"),
    *("ReduceMean", "ReduceSum", "ReduceSumSquare", "ReduceL2", "LpNormalization"),
    *("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"),
    "com.microsoft::SkipLayerNormalization",
    "com.microsoft::SkipSimplifiedLayerNormalization",
)

_STEADY = frozenset(_NORMALIZING) | (
    having(Trait.MOVES, Trait.ADDS) - having(Trait.JUMPS, Trait.SEQUENCE, Trait.OPAQUE)
)
"""Operators through which the rounding of a table's rows stays what it is, relative to them."""


@dataclass(frozen=True, slots=True)
class Use:
    """One consumer of a value: an input of a node, or an output of a graph.

    Attributes:
        node: The consuming node, or ABSENT for a graph output.
        index: Which input of the node, or which output of the graph.
        body: The graph whose output it is, or ABSENT for a node.
        vertex: The consuming vertex; ABSENT for an output of the main or of an opaque graph.
    """

    node: int
    index: int
    body: int = ABSENT
    vertex: int = ABSENT

    def name(self, type_graph: TypeGraph) -> str:
        """Return the consumer as the report spells it: "MatMul_3/T", or the graph output's name."""
        flat = type_graph.flat
        if self.vertex != ABSENT:
            return type_graph.name(self.vertex)
        if self.body != ABSENT:
            return flat.value_names[flat.bodies[self.body].outputs[self.index]]
        return f"{flat.node_names[self.node]}/in[{self.index}]"


@dataclass(frozen=True, slots=True)
class PlannedWeight:
    """One constant to convert in the file.

    Attributes:
        value: The initializer's value, or a Constant node's output.
        uses: The uses that will read the low-precision copy.
        keep_float32: Whether the float32 one stays beside it, for what reads that.
        saturate: The magnitude at which elements out of range end; 0 makes them infinite.
        name: The name of the copy if both are kept.
        stored: Whether it is stored in 16 bits for what reads it as float32, behind a Cast.
    """

    value: int
    tensor: StoredTensor
    dtype: DType
    uses: tuple[Use, ...] = ()
    keep_float32: bool = False
    saturate: float = 0.0
    name: str = ""
    stored: bool = False


def stored_tables(context: PaintContext, painting: Painting) -> dict[int, PlannedWeight]:
    """Return, by value, the tables that Gather reads as float32, and that are stored in 16 bits.

    What a list keeps float32 by the name of a node has been measured: its tables stay as they are,
    and so do all where a runtime would convert each row that it looks up.
    """
    target = context.target
    if context.low is FLOAT32 or context.given is not None or not context.converts_weights:
        return {}
    if target is not None and target.converts_rows:
        return {}
    measured = {rule.node for rule in context.node_rules if rule.list is ListName.DENY}
    flat, planned = context.type_graph.flat, dict[int, PlannedWeight]()
    for value, tensor in _tables(context, painting).items():
        if measured and any(flat.node_names[node] in measured for node in flat.readers(value)):
            continue
        if tensor.size < LEAST_ELEMENTS or not may_stand_behind_cast(context, value):
            continue
        is_shared = any(painting.allow[v] for v in context.type_graph.readers(value))
        for dtype in dict.fromkeys((context.low,) if is_shared else (FLOAT16, context.low)):
            if _survives(tensor.stream, dtype):
                planned[value] = PlannedWeight(value, tensor, dtype, stored=True)
                break
    return planned


def saturated_masks(context: PaintContext, painting: Painting) -> dict[int, PlannedWeight]:
    """Return, by value, the masks out of range that compute as float32 and are cast at run time."""
    graph, masks = context.type_graph, dict[int, PlannedWeight]()
    if context.low is FLOAT32 or may_leave_range(context.low) or not context.converts_weights:
        return masks
    stays = graph.called(CARRYING) & ~painting.allow
    ends_low = graph.mask(walk(vertices_in(painting.allow), graph.predecessors, stays)) & stays
    for value in read_constants(graph):
        readers = [v for v in graph.readers(value) if v != ABSENT and ends_low[v]]
        tensor = constant_tensor(graph, value) if readers else None
        if tensor is None:
            continue
        stats = context.values.stats(value, tensor)
        if stats.overflow(context.low) and saturates_in_float32(context, value):
            end = saturation(graph, stats, readers, context.low)
            masks[value] = PlannedWeight(value, tensor, context.low, saturate=end, stored=True)
    return masks


def _survives(stream: Stream, dtype: DType) -> bool:
    """Tell whether no element overflows, and nearly all keep the digits of a 16-bit type."""
    nonzero = small = 0
    for block in stream.blocks():
        magnitude = np.abs(block[np.isfinite(block) & (block != 0)])
        if (magnitude >= dtype.overflow).any():
            return False
        nonzero += magnitude.size
        small += int(np.count_nonzero(magnitude < dtype.smallest_normal))
    return small <= _MOST_SMALL * nonzero


def _tables(context: PaintContext, painting: Painting) -> dict[int, StoredTensor]:
    """Return what Gather alone reads as float32, if all its rows end in converted parts."""
    graph, flat = context.type_graph, context.type_graph.flat
    tables: dict[int, list[int]] = {}
    for node in flat.nodes_of("Gather"):
        value, vertex = flat.inputs_of(node)[0], graph.reads[flat.input_start[node]]
        if vertex != ABSENT and not painting.allow[vertex]:
            tables.setdefault(value, []).append(vertex)
    tensors = {v: tensor for v in tables if (tensor := constant_tensor(graph, v)) is not None}
    if not tensors:
        return {}
    ends_low = _ends_low(graph, painting)
    return {
        value: tensor
        for value, tensor in tensors.items()
        if all(ends_low[row] for row in tables[value])
        and all(
            v in tables[value] or v == ABSENT or painting.allow[v] for v in graph.readers(value)
        )
    }


def _ends_low(graph: TypeGraph, painting: Painting) -> Array:
    """Return a mask of the float32 vertices all of whose results become low in the end.

    Nothing of them leaves the model or steers it as float32, and what lies on the way magnifies no
    rounding, so that rounding them costs about what rounding at the end does.
    """
    stays = ~painting.allow
    tells = stays & ~graph.called(_STEADY)
    tells[_read_elsewhere(graph)] = True
    tells &= stays
    spoilt = walk(vertices_in(tells), graph.predecessors, stays)
    reaching = walk(vertices_in(painting.allow), graph.predecessors, stays)
    return graph.mask(reaching) & ~graph.mask(spoilt) & stays


def _read_elsewhere(graph: TypeGraph) -> list[int]:
    """Return the vertices whose results the caller, or something opaque, reads as float32."""
    values = np.array(graph.flat.inputs, np.int64)
    opaque = values[(np.array(graph.reads, np.int64) == ABSENT) & (values != ABSENT)].tolist()
    sources = (graph.source[value] for value in (*opaque, *graph.flat.main.outputs))
    return [vertex for vertex in sources if vertex != ABSENT]
