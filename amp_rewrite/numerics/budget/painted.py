"""The 16-bit type variables of a mixed model, in terms of its float32 original."""

from __future__ import annotations

from collections.abc import Collection
from typing import get_args

import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT32, LOW, Precision
from amp_rewrite.errors import DataError, OptionError
from amp_rewrite.graph import elements
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.io.load import Source, load
from amp_rewrite.graph.io.read_object import infer_types
from amp_rewrite.numerics.emulate.model import low_values
from amp_rewrite.numerics.inputs.batches import Array
from amp_rewrite.numerics.repaint.repaint import Repainter
from amp_rewrite.rewriting.apply.written_metadata import for_model
from amp_rewrite.rewriting.plan.options import RewriteOptions


def painting_of(
    original: Source, rewritten: Source | None, options: RewriteOptions
) -> tuple[Repainter, Array]:
    """Return the original, and a mask of its type variables that are 16-bit in the mixed model.

    Args:
        original: The float32 model.
        rewritten: The mixed model; None for what `rewrite` makes of the original.
        options: How the original is to be rewritten; with a rewritten model, the target alone.

    Raises:
        OptionError: There are options, besides the target, for a model that has been rewritten.
        DataError: The two models do not belong together.
    """
    if rewritten is None:
        painter = Repainter.of(original, options)
        return painter, painter.paint(()).painting.allow
    if options != RewriteOptions(target=options.target):
        raise OptionError(
            "options say how to rewrite the original, but a rewritten model is given",
            remedy="leave one of the two away; only the target may be named",
        )
    mixed = load(rewritten)
    ends = (*mixed.graph.inputs, *mixed.graph.outputs)
    wide = tuple(v.name for v in ends if v.name and v.dtype == FLOAT32.ir)
    kept = RewriteOptions(
        precision=_precision_of(mixed), target=options.target, keep_io_types=wide or False
    )
    painter = Repainter.of(original, for_model(kept, mixed))
    return painter, _painted(painter, mixed)


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
            "the rewritten model has no 16-bit value",
            expected="a model made by `amp-rewrite convert`",
            remedy="name the original first, then the rewritten model",
        )
    return name


def _painted(painter: Repainter, rewritten: ir.Model) -> Array:
    """Return the type variables of the original that are 16-bit in the rewritten model.

    Nodes correspond by name and operator; casts that the rewrite added have no counterpart.

    Raises:
        DataError: No low-precision node of the rewritten model is in the original.
    """
    low = {v for v, t in low_values(infer_types(rewritten)).items() if t is painter.low}
    twins: dict[tuple[str | None, str], list[ir.Node]] = {}
    for node in rewritten.graph.all_nodes():
        twins.setdefault((node.name, node.op_type), []).append(node)
    vertices: set[int] = set()
    for i, node in enumerate(painter.nodes):
        same = twins.get((node.name, node.op_type))
        if same:
            vertices |= _low_vertices(painter, i, same.pop(0), low)
    if not vertices:
        raise DataError(
            "no node is low-precision in the rewritten model and float32 in the original",
            remedy="name the model that was rewritten as the original",
        )
    return painter.type_graph.mask(vertices)


def _low_vertices(
    painter: Repainter, index: int, twin: ir.Node, low: Collection[ir.Value | None]
) -> set[int]:
    graph, flat = painter.type_graph, painter.flat
    reads = graph.reads[flat.input_start[index] : flat.input_start[index + 1]]
    writes = graph.writes[flat.output_start[index] : flat.output_start[index + 1]]
    ports = [*zip(reads, twin.inputs, strict=False), *zip(writes, twin.outputs, strict=False)]
    return {vertex for vertex, value in ports if vertex != ABSENT and value in low}
