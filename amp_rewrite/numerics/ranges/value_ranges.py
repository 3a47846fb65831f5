"""The range of every value of a model over a data set: running statistics, no activations kept.

All statistics are computed inside ONNX Runtime (probe.py); a batch returns two vectors.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.graph.clone import value_pairs
from amp_rewrite.graph.constants import constant_tensor
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.traverse import subgraphs
from amp_rewrite.graph.versions import FIRST_OPSET_WITH_WHERE
from amp_rewrite.numerics.inputs.batches import Array, Feeds
from amp_rewrite.numerics.ranges.bounds import partial_sum, same_elements, sensitive_values
from amp_rewrite.numerics.ranges.probe import MAX, SUM, Prober, combine_name, reaches_out
from amp_rewrite.numerics.repaint.float32_session import Float32Session
from amp_rewrite.numerics.repaint.repaint import Repainter
from amp_rewrite.rewriting.paint.masks import Absorbed

Key = tuple[str, int]
"""The subject of a number: a statistic's name and the index of a value or of a node."""


class Range(NamedTuple):
    """Measurements of one value over all batches.

    Attributes:
        largest: The largest finite magnitude.
        smallest: The smallest nonzero magnitude; inf where it was not measured.
        subnormal_share: In the worst batch, the share of the sum of magnitudes that lies below the
            low type's smallest normal.
        counted: The largest finite magnitude without the fills of masks that end in a Softmax.
    """

    largest: float
    smallest: float
    subnormal_share: float
    counted: float


@dataclass
class RangeMeter:
    """Measures the values of a model batch by batch.

    Attributes:
        values: The values that are measured, in execution order; one of those that hold the same
            elements (a Reshape's output, say).
        source: Value -> the measured value that holds the same elements.
        absorbed: Value -> which of its elements are fills that end in a Softmax.
        sums: Indices of the nodes whose partial sums are measured.
        unmeasured: Names of values in bodies of operators that the prober cannot see into.
    """

    painter: Repainter
    values: tuple[ir.Value, ...]
    source: dict[ir.Value, ir.Value]
    absorbed: dict[ir.Value, Absorbed]
    sums: tuple[int, ...]
    unmeasured: tuple[str, ...]
    batches: int = 0
    _session: Float32Session | None = None
    _keys: dict[str, list[Key]] = field(default_factory=dict[str, list[Key]])
    _max: Array = field(default_factory=lambda: np.zeros(0))
    _worst: dict[int, float] = field(default_factory=dict[int, float])

    @staticmethod
    def of(painter: Repainter, summing: Iterable[str]) -> RangeMeter:
        """Choose values: those that paintable vertices write or read, and ends; no constants."""
        paintable = painter.paintable(painter.rewrite())
        wanted = [
            value
            for value, vertices in painter.carriers.items()
            if (value in painter.ends or not paintable.isdisjoint(vertices))
            and _is_measurable(painter, same_elements(value))
        ]
        source = {v: same_elements(v) for v in wanted}
        chosen = dict.fromkeys(source.values())
        reachable = _reachable_graphs(painter.model.graph, painter.model)
        measured = tuple(v for v in chosen if _home(v) in reachable)
        missed = tuple(v.name or "" for v in chosen if _home(v) not in reachable)
        absorbed = painter.absorbed(source)
        ops, nodes = frozenset(summing), {painter.type_graph.nodes[v] for v in paintable}
        sums = tuple(
            i
            for i, node in enumerate(painter.nodes)
            if node.op_type in ops
            and node.graph in reachable
            and i in nodes
            and not all(value in absorbed for value in node.outputs)
        )
        return RangeMeter(painter, measured, source, absorbed, sums, missed)

    def add(self, feeds: Feeds) -> None:
        """Run the float32 model on one batch and update the statistics; DataError if it misfits."""
        if self.values or self.sums:
            results = (self._session or self._open()).run(feeds)
            if MAX in self._keys:
                np.fmax(self._max, results[combine_name(MAX)].astype(np.float64), out=self._max)
            if SUM in self._keys:
                self._note_shares(results[combine_name(SUM)].astype(np.float64))
        self.batches += 1

    def ranges(self) -> dict[ir.Value, Range]:
        """Return what was measured of each value."""
        largest = dict(zip(self._keys.get(MAX, ()), self._max, strict=True))
        range_of: dict[ir.Value, Range] = {}
        for i, value in enumerate(self.values):
            reached = max(0.0, float(largest.get(("largest", i), 0.0)))
            range_of[value] = Range(
                reached,
                -float(largest.get(("smallest", i), -np.inf)),
                self._worst.get(i, 0.0),
                max(0.0, float(largest.get(("counted", i), reached))),
            )
        return range_of

    def partial_sums(self) -> dict[int, float]:
        """Return node index -> the largest sum of magnitudes that its reduction formed."""
        pairs = zip(self._keys.get(MAX, ()), self._max, strict=True)
        return {key[1]: float(number) for key, number in pairs if key[0] == "partial"}

    def _open(self) -> Float32Session:
        model = load(self.painter.model)
        prober, twins = Prober(model), dict(value_pairs(self.painter.model, model))
        sensitive, number = sensitive_values(self.painter.type_graph), self.painter.number
        for i, value in enumerate(self.values):
            careful = number[value] in sensitive
            _probe_value(prober, twins[value], i, self.painter.low, careful=careful)
        index = {value: i for i, value in enumerate(self.values)}
        for source, fills in {self.source[v]: fills for v, fills in self.absorbed.items()}.items():
            if source in index and prober.opset >= FIRST_OPSET_WITH_WHERE:
                _probe_counted(prober, twins[source], index[source], fills)
        for i in self.sums:
            node = twins[self.painter.nodes[i].outputs[0]].producer()
            sums = None if node is None else partial_sum(prober, node)
            if node is not None and sums is not None and isinstance(node.graph, ir.Graph):
                number = prober.reduce(node.graph, "ReduceMax", prober.flat(node.graph, sums))
                prober.probe(node.graph, ("partial", i), MAX, number)
        prober.finish()
        self._keys = prober.keys  # pyright: ignore[reportAttributeAccessIssue] every key is a Key
        self._max = np.full(len(self._keys.get(MAX, ())), -np.inf)
        self._session = Float32Session(model)
        return self._session

    def _note_shares(self, sums: Array) -> None:
        numbers = dict(zip(self._keys[SUM], sums, strict=True))
        for i in range(len(self.values)):
            mass, normal = numbers[("mass", i)], numbers[("normal", i)]
            if np.isfinite(mass) and mass > 0:
                self._worst[i] = max(self._worst.get(i, 0.0), 1.0 - float(normal / mass))


def _probe_value(prober: Prober, value: ir.Value, index: int, low: DType, *, careful: bool) -> None:
    """Add the statistics of one value; a careful one also looks for its smallest element."""
    graph = _home(value)
    if graph is None:
        return
    flat = prober.flat(graph, value)
    finite = magnitude = prober.add(graph, "Abs", [flat])
    if prober.opset >= FIRST_OPSET_WITH_WHERE:
        is_finite = _compared(prober, graph, "Less", magnitude, np.inf)
        finite = prober.add(graph, "Where", [is_finite, magnitude, prober.constant(0.0)])
    below = float(np.nextafter(np.float32(low.smallest_normal), np.float32(0)))
    normal = prober.add(graph, "ThresholdedRelu", [finite], [ir.AttrFloat32("alpha", below)])
    for name, combine, op, of in (
        ("largest", MAX, "ReduceMax", finite),
        ("mass", SUM, "ReduceSum", finite),
        ("normal", SUM, "ReduceSum", normal),
    ):
        prober.probe(graph, (name, index), combine, prober.reduce(graph, op, of))
    if careful and prober.opset >= FIRST_OPSET_WITH_WHERE:
        some = _compared(prober, graph, "Greater", finite, 0.0)
        nonzero = prober.add(graph, "Where", [some, finite, prober.constant(np.inf)])
        smallest = prober.add(graph, "Neg", [prober.reduce(graph, "ReduceMin", nonzero)])
        prober.probe(graph, ("smallest", index), MAX, smallest)


def _probe_counted(prober: Prober, value: ir.Value, index: int, fills: Absorbed) -> None:
    """Add the largest magnitude of elements that are no fills."""
    graph = _home(value)
    if graph is None:
        return
    elements = prober.flat(graph, value)
    magnitude = prober.add(graph, "Abs", [elements])
    asked = magnitude if fills.either_sign else prober.add(graph, "Neg", [elements])
    conditions = [
        _compared(prober, graph, "Less", asked, fills.beyond),
        _compared(prober, graph, "Less", magnitude, np.inf),
    ]
    counts = prober.add(graph, "And", conditions, dtype=ir.DataType.BOOL)
    counted = prober.add(graph, "Where", [counts, magnitude, prober.constant(0.0)])
    prober.probe(graph, ("counted", index), MAX, prober.reduce(graph, "ReduceMax", counted))


def _compared(prober: Prober, graph: ir.Graph, op: str, value: ir.Value, to: float) -> ir.Value:
    return prober.add(graph, op, [value, prober.constant(to)], dtype=ir.DataType.BOOL)


def _home(value: ir.Value) -> ir.Graph | None:
    """Return the graph in which a value is defined."""
    node = value.producer()
    return value.graph if node is None else node.graph  # pyright: ignore[reportReturnType] no function bodies here


def _is_measurable(painter: Repainter, value: ir.Value) -> bool:
    graph, number = painter.type_graph, painter.number[value]
    is_tensor = graph.types[number] == f"tensor({FLOAT32.onnx})"
    return is_tensor and constant_tensor(graph, number) is None


def _reachable_graphs(graph: ir.Graph, model: ir.Model) -> frozenset[ir.Graph]:
    """Return the graphs whose probes can be passed outward: branches, and bodies of loops."""
    graphs = {graph}
    opset = model.graph.opset_imports.get("", 1)
    for node in graph:
        if reaches_out(node, opset):
            for inner in subgraphs(node):
                graphs |= _reachable_graphs(inner, model)
    return frozenset(graphs)
