"""A rewritten model in memory: its messages refer to what is converted when it is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT, MAIN, FlatGraph
from amp_rewrite.graph.io.model_files import Place, Weight, refer
from amp_rewrite.graph.proto.external import HELD, Held
from amp_rewrite.graph.proto.number_model import number_model
from amp_rewrite.rewriting.apply.rewritten_graph import RewrittenGraph, converted
from amp_rewrite.rewriting.apply.save_rewritten import header
from amp_rewrite.rewriting.plan.casts import CastPlan, PlannedWeight

if TYPE_CHECKING:
    from amp_rewrite.graph.tensors import ConvertedTensor


class RewrittenFlat(NamedTuple):
    """A rewritten model in numbers.

    Attributes:
        origins: By node of it, which node it was, ABSENT for one that was added.
    """

    flat: FlatGraph
    origins: Sequence[int]


def rewritten_flat(
    flat: FlatGraph,
    type_graph: TypeGraph,
    plan: CastPlan,
    removed: Iterable[int],
    metadata: Mapping[str, str],
) -> RewrittenFlat:
    """Return the model that a plan makes of one; nodes without a name keep the given ones.

    `removed` are the model's own Casts that become no-ops; `metadata` are added or replaced.
    """
    held: list[Held] = []

    def convert(weight: PlannedWeight) -> Weight:
        message, stream = converted(flat, weight)
        refer(message, Place(HELD, len(flat.files.held) + len(held), stream.nbytes))
        held.append(Held(lambda: stream, partial(_converted_object, weight, message.name)))
        return Weight(message)

    graph = RewrittenGraph(flat, type_graph, plan, removed, convert)
    proto = header(flat, plan, metadata)
    proto.functions.extend(flat.proto.functions)
    proto.graph.CopyFrom(graph.body(MAIN, graph.all_weights()))
    rewritten = number_model(proto, flat.files.holding(held))
    rewritten.customs = flat.customs
    origins = list(graph.origins(MAIN))
    rewritten.keep_names([flat.node_names[v] if v != ABSENT else "" for v in origins])
    for called, function in rewritten.attached.items():
        function.graph.keep_names(flat.attached[called].graph.node_names)
    return RewrittenFlat(rewritten, origins)


def _converted_object(weight: PlannedWeight, name: str) -> ConvertedTensor:
    from amp_rewrite.graph.io.read import tensor_of
    from amp_rewrite.graph.tensors import ConvertedTensor

    source = tensor_of(weight.tensor)
    return ConvertedTensor(source, weight.dtype, saturate=weight.saturate, name=name)
