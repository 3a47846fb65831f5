"""The dearest casts of a rewrite, and what its regions cost and save, as text."""

from __future__ import annotations

from collections.abc import Iterator

from amp_rewrite.base.printable import counted, printable
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.rewriting.report.explain import vertices_by_name
from amp_rewrite.rewriting.report.phrases import phrase
from amp_rewrite.rewriting.report.records import CastRecord, VariableRecord
from amp_rewrite.rewriting.report.rewrite_report import Report

MOST = 12
"""How many casts, and how many regions, are listed."""

_MOST_CONSUMERS = 4


def explain_casts(report: Report, most: int = MOST) -> str:
    """Return the casts that move most in a run and why they are there, then the dearest regions.

    There are at most `most` of each; those of unknown size come last.
    """
    return "\n".join(map(printable, (*_casts(report, most), *_regions(report, most))))


def _casts(report: Report, most: int) -> Iterator[str]:
    summary = report.summary
    unknown = summary.casts_of_unknown_size
    yield (
        f"{counted(len(report.casts), 'cast')}: {summary.cast_bytes:,} bytes per run"
        f"{f' ({unknown} of unknown size not counted)' if unknown else ''}"
    )
    variables = {name: variable for name, (_, variable) in vertices_by_name(report).items()}
    for cast in sorted(report.casts, key=lambda c: -_known(c.bytes))[:most]:
        yield f"{_bytes(cast.bytes)}  {cast.name}"
        yield f"{'':15}  {cast.producer or cast.value} -> {_shown(cast.consumers)}"
        yield f"{'':15}  {_why(report, cast, variables)}"


def _why(report: Report, cast: CastRecord, variables: dict[str, VariableRecord]) -> str:
    """Return what disagrees: why the one side is low, and why the other stays float32."""
    ends = [("" if cast.producer is None else cast.producer), *cast.consumers]
    low: str | None = None
    kept: str | None = None
    for end in ends:
        variable = variables.get(end)
        if variable is not None and variable.dtype == FLOAT32.name:
            kept = kept or f"{end} stays float32: {_said(report, variable)}"
        elif variable is not None:
            low = low or f"{end} is low: {_said(report, variable)}"
    if kept is None:
        kept = f"{_other_end(cast, variables)} keeps its type"
    return "; ".join(part for part in (low, kept) if part is not None)


def _other_end(cast: CastRecord, variables: dict[str, VariableRecord]) -> str:
    """Return the end of a cast that is not a vertex: an input, a constant, or an output."""
    if cast.to != FLOAT32.name or cast.producer is None:
        return cast.value
    return next((c for c in cast.consumers if c not in variables), cast.value)


def _said(report: Report, variable: VariableRecord) -> str:
    """Return the reason of a type variable in words."""
    text = phrase(variable.reason, report.precision, report.target)
    return text if variable.because is None else f"{text} {variable.because}"


def _regions(report: Report, most: int) -> Iterator[str]:
    yield f"{len(report.regions)} regions; what their casts move, what they save, first vertex"
    for region in sorted(report.regions, key=lambda r: (-_known(r.cast_bytes), r.first))[:most]:
        work = region.multiply_accumulates
        products = "unknown" if work is None else f"{work:,}"
        yield f"{_bytes(region.cast_bytes)} {_bytes(region.bytes_saved)}  {region.first}"
        vertices = f"{region.vertices} {'vertex' if region.vertices == 1 else 'vertices'}"
        size = f"{vertices}, {counted(region.casts, 'cast')}"
        yield f"{'':31}  {size}, {products} multiply-accumulates"


def _known(count: int | None) -> int:
    """Return a number of bytes to sort by: what is not known is the least."""
    return -1 if count is None else count


def _bytes(count: int | None) -> str:
    return f"{'unknown' if count is None else format(count, ','):>15}"


def _shown(names: tuple[str, ...]) -> str:
    rest = len(names) - _MOST_CONSUMERS
    return ", ".join(names[:_MOST_CONSUMERS]) + (f" and {rest} more" if rest > 0 else "")
