"""Localise: which node spoils a mixed model, without a GPU and without guessing.

The float32 model is loaded once with a gate at every low type variable (gates.py). All gates closed
against all open gives the error of every node's output; opening the gates of one node alone gives
what that node contributes to the outputs. Errors are distances ||low - float32|| / ||float32||
(Euclidean), infinite where the float32 numbers are finite and the low ones are not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Unpack, get_args

import numpy as np
import onnx_ir as ir

from amp_rewrite.base import arguments
from amp_rewrite.dtypes import LOW, Precision
from amp_rewrite.errors import DataError, OptionError
from amp_rewrite.graph import elements
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.io.load import Source, load
from amp_rewrite.graph.io.read_object import infer_types
from amp_rewrite.graph.traverse import subgraphs
from amp_rewrite.numerics.compare.masked_rows import MaskedRows, rows_of
from amp_rewrite.numerics.emulate.model import low_values
from amp_rewrite.numerics.inputs.batches import Array, Data, Feeds, batches
from amp_rewrite.numerics.repaint.repaint import Repainter, Slot
from amp_rewrite.numerics.search.gates import GatedModel, NodeValue
from amp_rewrite.numerics.search.localisation import Localisation, NodeError
from amp_rewrite.rewriting.apply.written_metadata import for_model
from amp_rewrite.rewriting.plan.options import Changes, RewriteOptions, changed, with_option_names

TOLERANCE = 4.0
"""A distance above this many times the low type's rtol is a departure."""

BUDGET = 60.0
"""Seconds for opening the gates of single nodes."""

FILL = -1e8
"""Numbers up to that are fills of masks, which a low type saturates or makes infinite."""

SATURATED = -32768.0
"""A fill is one still up to that: half of what float16 ends at."""


Progress = Callable[[int, int], None]
"""Called with how many candidates were tried, and how many there are."""


@with_option_names
def localise(
    original: Source,
    rewritten: Source | None,
    data: Data,
    options: RewriteOptions | None = None,
    *,
    tolerance: float | None = None,
    budget: float = BUDGET,
    progress: Progress | None = None,
    **changes: Unpack[Changes],
) -> Localisation:
    """Find the node where the error starts and the node that contributes most.

    Args:
        original: The float32 model.
        rewritten: The mixed model, whose nodes are found in the original by name; None for what
            `rewrite` makes of the original.
        data: Batches as for `calibrate`; a node's error is that of its worst batch.
        options: How the original is to be rewritten, as for `rewrite`, if `rewritten` is None; else
            only the target, whose arithmetic is emulated.
        tolerance: The distance from which an output counts as wrong; by default four times the
            rtol of the 16-bit type (0.016 for float16).
        budget: Seconds for trying nodes alone; the most suspicious are tried first.
        progress: Called after each node that was tried.
        **changes: Single options by name, as for `rewrite`.

    Raises:
        AmpError: A model, the data or an option is wrong, or the two models do not belong together.

    Examples:
        >>> data = [{"x": np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8)}]
        >>> low = amp.rewrite("model.onnx").model
        >>> amp.localise("model.onnx", low, data)
        <Localisation: passed; most fc2; 3 nodes tried>
    """
    budget = arguments.number("budget", budget, expected="a number of seconds")
    progress = arguments.function("progress", progress)
    if tolerance is not None:
        expected = "a number of at least 0"
        tolerance = arguments.number("tolerance", tolerance, low=0, expected=expected)
    painter, low = _painting(original, rewritten, changed(options, **changes))
    feeds = list(batches(data, painter.model))
    return localise_slots(
        painter, low, feeds, tolerance=tolerance, budget=budget, progress=progress
    )


def _painting(
    original: Source, rewritten: Source | None, options: RewriteOptions
) -> tuple[Repainter, frozenset[Slot]]:
    """Return the original, and what is low in the mixed model.

    Raises:
        OptionError: There are options, besides the target, for a model that has been rewritten.
    """
    if rewritten is None:
        painter = Repainter.of(original, options)
        return painter, painter.low_slots(painter.rewrite())
    if options != RewriteOptions(target=options.target):
        raise OptionError(
            "options say how to rewrite the original, but a rewritten model is given",
            remedy="leave one of the two away; only the target may be named",
        )
    mixed = load(rewritten)
    kept = RewriteOptions(precision=_precision_of(mixed), target=options.target)
    painter = Repainter.of(original, for_model(kept, mixed))
    return painter, _painted_slots(painter, mixed)


def localise_slots(
    painter: Repainter,
    low: frozenset[Slot],
    data: Sequence[Feeds],
    *,
    tolerance: float | None = None,
    budget: float = BUDGET,
    progress: Progress | None = None,
    gated: GatedModel | None = None,
) -> Localisation:
    """Do what `localise` does, for a painting of a loaded model.

    `gated` is the model with gates for `low` at least and all nodes exposed, if there is one.
    """
    if not data:
        raise DataError("the data hold no batch", remedy="pass at least one")
    limit = TOLERANCE * painter.low.rtol if tolerance is None else tolerance
    gated = gated or GatedModel.of(painter, low, expose_all=True)
    search = _Search(painter, gated, low, data, time.monotonic() + budget, progress)
    distances = search.distances()
    outputs = search.output_distances(low)
    suspects = search.suspects(distances)
    ranking = search.rank(suspects)
    errors = [search.error(painter.index[n], distances) for n in _inner_first(painter.model.graph)]
    alone = {e.node: e for e in ranking if not math.isnan(e.contribution)}
    departed = (alone[e.node] for e in errors if e.node in alone and _departs(e, limit))
    finite = all(math.isfinite(d) for d in outputs.values())
    return Localisation(
        first=next(departed, None),
        most=ranking[0] if ranking else None,
        ranking=tuple(ranking),
        absorbed=tuple(e.node for e in errors if e.absorbed) if finite else (),
        outputs=outputs,
        tolerance=limit,
        tried=search.tried,
        target=painter.options.chosen_target,
    )


def _departs(error: NodeError, limit: float) -> bool:
    return error.distance > limit or error.absorbed


def distance(reference: Array, output: Array, apart: Array | None = None) -> float:
    """Return ||found - reference|| / ||reference|| over the elements finite in the reference.

    Infinite if one of those is not finite in `output`; if the reference is all zero, 0 or infinite.
    Scores that carry the fill of a mask in both count for nothing, and neither do the rows `apart`.
    """
    if reference.dtype.kind not in "fiub" or reference.shape != output.shape:
        return 0.0 if reference.shape == output.shape else math.inf
    if apart is not None:
        reference, output = reference[~apart], output[~apart]
    finite = np.isfinite(reference)
    if reference.dtype.kind == "f" and np.finfo(reference.dtype).min <= FILL:
        finite &= ~((reference <= FILL) & (output <= SATURATED))
    a, b = reference[finite].astype(np.float64), output[finite].astype(np.float64)
    if not np.isfinite(b).all():
        return math.inf
    norm = float(np.linalg.norm(a))
    error = float(np.linalg.norm(b - a))
    return error / norm if norm else (math.inf if error else 0.0)


@dataclass
class _Search:
    painter: Repainter
    gated: GatedModel
    low: frozenset[Slot]
    data: Sequence[Feeds]
    deadline: float
    progress: Progress | None
    tried: int = 0
    references: list[dict[str, Array]] = field(default_factory=list[dict[str, Array]])
    masked: list[tuple[Array, ...]] = field(default_factory=list[tuple[Array, ...]])

    def __post_init__(self) -> None:
        """Run the float32 model."""
        self.references = [self.gated.run(feeds, ()) for feeds in self.data]
        self.low_nodes = sorted({slot.node for slot in self.low})
        places = {self.painter.nodes[i].outputs[k].name or "": (i, k) for i, k in self.gated.values}
        rows = MaskedRows(self.painter.model, places.keys())
        self.masked = [rows.find(partial(self._plain_values, feeds, places)) for feeds in self.data]

    def _plain_values(
        self, feeds: Feeds, places: Mapping[str, NodeValue], names: Collection[str]
    ) -> dict[str, Array]:
        """Return values of the float32 model by their names in it; some are inputs."""
        inner = {name: self.gated.values[places[name]] for name in names if name in places}
        outputs = self.gated.run(feeds, (), [*inner.values()]) if inner else {}
        fed = {name: feeds[name] for name in names if name in feeds}
        return fed | {name: outputs[exposed] for name, exposed in inner.items()}

    def distances(self) -> dict[NodeValue, float]:
        """Return the distance of every node output that can be fetched, over all batches."""
        worst: dict[NodeValue, float] = {}
        keys = {name: key for key, name in self.gated.values.items()}
        for feeds, masked in zip(self.data, self.masked, strict=True):
            for arrays in self.gated.values_in_chunks(feeds, (), self.low):
                for name, (plain, mixed) in arrays.items():
                    apart_by = distance(plain, mixed, rows_of(plain, masked))
                    worst[keys[name]] = max(worst.get(keys[name], 0.0), apart_by)
        return worst

    def output_distances(self, low: Collection[Slot], *, ends: bool = True) -> dict[str, float]:
        """Return the distance of every output of the model, over all batches.

        `ends` is that of `GatedModel.run`: without it the slots alone make the distance.
        """
        worst = dict.fromkeys(self.gated.outputs, 0.0)
        batches_seen = zip(self.data, self.references, self.masked, strict=True)
        for feeds, reference, masked in batches_seen:
            outputs = self.gated.run(feeds, low, ends=ends)
            for name in worst:
                apart = rows_of(reference[name], masked)
                worst[name] = max(worst[name], distance(reference[name], outputs[name], apart))
        return worst

    def error(self, index: int, distances: Mapping[NodeValue, float]) -> NodeError:
        """Return what the distances say of a node."""
        node = self.painter.nodes[index]
        own = [distances[index, k] for k in range(len(node.outputs)) if (index, k) in distances]
        if not own:
            return NodeError(node.name or "", node.op_type, math.nan, math.nan)
        mine, before = max(own), self._inputs_distance(index, distances)
        growth = mine - before if math.isfinite(before) else 0.0
        return NodeError(node.name or "", node.op_type, mine, growth, absorbed=math.isinf(mine))

    def suspects(self, distances: Mapping[NodeValue, float]) -> list[tuple[int, NodeError]]:
        """Return the low nodes, those behind which the error grew most first.

        Nodes in loop bodies, whose outputs cannot be fetched, come before those that did nothing.
        """
        errors = [(i, self.error(i, distances)) for i in self.low_nodes]
        return sorted(errors, key=lambda pair: (-_number_or_nothing(pair[1].growth), pair[0]))

    def rank(self, suspects: Sequence[tuple[int, NodeError]]) -> list[NodeError]:
        """Open the gates of one node after the other, and sort by what comes out."""
        ranked: list[tuple[float, float, int, NodeError]] = []
        for done, (i, error) in enumerate(suspects, 1):
            alone = math.nan
            if time.monotonic() < self.deadline or not self.tried:
                slots = [slot for slot in self.low if slot.node == i]
                alone = max(self.output_distances(slots, ends=False).values(), default=0.0)
                self.tried += 1
            made_here = error.absorbed and error.growth > 0
            key = math.inf if made_here else _number_or_nothing(alone)
            untried = -_number_or_nothing(error.growth) if math.isnan(alone) else 0.0
            ranked.append((-key, untried, i, replace(error, contribution=alone)))
            if self.progress is not None:
                self.progress(done, len(suspects))
        return [error for *_, error in sorted(ranked, key=lambda r: r[:3])]

    def _inputs_distance(self, index: int, distances: Mapping[NodeValue, float]) -> float:
        node = self.painter.nodes[index]
        worst = 0.0
        for value in (*node.inputs, *_body_outputs(node)):
            producer = None if value is None else value.producer()
            if value is None or producer is None or producer not in self.painter.index:
                continue
            key = (self.painter.index[producer], producer.outputs.index(value))
            worst = max(worst, distances.get(key, 0.0))
        return worst


def _inner_first(graph: ir.Graph) -> Iterator[ir.Node]:
    """Yield the nodes in topological order, the owner of a body behind the nodes in it."""
    for node in graph:
        for body in subgraphs(node):
            yield from _inner_first(body)
        yield node


def _body_outputs(node: ir.Node) -> list[ir.Value]:
    return [value for body in subgraphs(node) for value in body.outputs]


def _number_or_nothing(number: float) -> float:
    return 0.0 if math.isnan(number) else number


def _precision_of(rewritten: ir.Model) -> Precision:
    """Return the low type that a model uses most, "float16" or "bfloat16"."""
    types = list(infer_types(rewritten).values())
    counts = {
        name: sum(1 for t in types if elements.element(t) == LOW[name].number)
        for name in get_args(Precision)
    }
    name = max(counts, key=lambda n: counts[n])
    if not counts[name]:
        raise DataError(
            "the rewritten model has no low-precision value",
            expected="a model made by `amp-rewrite convert`",
            remedy="name the original first, then the rewritten model",
        )
    return name


def _painted_slots(painter: Repainter, rewritten: ir.Model) -> frozenset[Slot]:
    """Return the slots of the original that are low in the rewritten model.

    Nodes correspond by name and operator; casts that the rewrite added have no counterpart.

    Raises:
        DataError: No low-precision node of the rewritten model is in the original.
    """
    low = {v for v, t in low_values(infer_types(rewritten)).items() if t is painter.low}
    twins: dict[tuple[str | None, str], list[ir.Node]] = {}
    for node in rewritten.graph.all_nodes():
        twins.setdefault((node.name, node.op_type), []).append(node)
    slots: set[Slot] = set()
    for i, node in enumerate(painter.nodes):
        same = twins.get((node.name, node.op_type))
        if same:
            slots |= _low_slots(painter, i, same.pop(0), low)
    if not slots:
        raise DataError(
            "no node is low-precision in the rewritten model and float32 in the original",
            remedy="name the model that was rewritten as the original",
        )
    return frozenset(slots)


def _low_slots(
    painter: Repainter, index: int, twin: ir.Node, low: Collection[ir.Value | None]
) -> set[Slot]:
    graph, flat = painter.type_graph, painter.flat
    reads = graph.reads[flat.input_start[index] : flat.input_start[index + 1]]
    writes = graph.writes[flat.output_start[index] : flat.output_start[index + 1]]
    ports = [*zip(reads, twin.inputs, strict=False), *zip(writes, twin.outputs, strict=False)]
    return {
        Slot(index, graph.kind_of(vertex).variables[0])
        for vertex, value in ports
        if vertex != ABSENT and value in low
    }
