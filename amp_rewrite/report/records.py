"""The report: frozen records with one JSON form (formats.md), and a short table for a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from amp_rewrite import arguments
from amp_rewrite.paint.painting import Reason
from amp_rewrite.report.device_advice import device_lines
from amp_rewrite.report.gains import Sizes, headline
from amp_rewrite.report.phrases import plain_phrase

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

VERSION = 1
"""Version of the JSON form: keys may be added, never renamed."""

MOST_REASONS = 12
"""How many (reason, operator) rows the table shows."""

_MOST_LENGTHS = 4
"""How many lengths that tensor cores do not fill the text shows."""

_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Record:
    """A part of the report, whose JSON form has a key for each field."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}


def _plain(value: object) -> object:
    """Return records, mappings and tuples as JSON has them."""
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True)
class VariableRecord(Record):
    """One type variable that was float32 before.

    Attributes:
        dtype: Its type after rewriting.
        reason: Why, one of paint.painting.Reason.
        because: The vertex from which the mark spread ("Pow_3/T"), or None for an origin.
        detail: A sentence for the user, or None.
        bound: What no magnitude of its results exceeds, whatever the model is fed; None if unknown.
    """

    dtype: str
    reason: str
    because: str | None
    detail: str | None
    bound: float | None = None


@dataclass(frozen=True, slots=True)
class NodeRecord(Record):
    """One node.

    Attributes:
        scope: The path of the enclosing subgraph, "" at the top: "loop/body".
        list: The op list that it is on: "allow", ..., "unlisted", or "unknown" if no list knows it.
        variables: Its float32 type variables; empty for a node without any.
        group: What it is a part of, such as "LayerNormalization from ReduceMean_3 to Add_9".
    """

    name: str
    op: str
    domain: str
    scope: str
    list: str
    variables: Mapping[str, VariableRecord]
    group: str | None = None


@dataclass(frozen=True, slots=True)
class CastRecord(Record):
    """One Cast that the rewrite added, or an existing one that it gave consumers.

    Attributes:
        value: What it casts.
        to: The type that it casts to.
        consumers: The vertices that read it, and the graph outputs that it is.
        name: Its name.
        existing: Whether it is one of the model's own.
        producer: The vertex that makes the value; None for an input or a constant.
        bytes: What it reads and writes in a run, 0 for a constant, whose Cast is folded when the
            model is loaded; None if the size of the value is not known.
    """

    value: str
    to: str
    consumers: tuple[str, ...]
    name: str
    existing: bool
    producer: str | None
    bytes: int | None


@dataclass(frozen=True, slots=True)
class RegionRecord(Record):
    """A connected region of low vertices, and what its casts cost against what it saves in a run.

    Attributes:
        first: Its first vertex in execution order.
        vertices: How many vertices it has.
        casts: How many Casts at its border would not be there if it were float32.
        cast_bytes: What they read and write; None if a size is not known, as for all that follow.
        bytes_saved: How much less its operators read and write, weights included.
        multiply_accumulates: How many of them its allow-list operators make.
    """

    first: str
    vertices: int
    casts: int
    cast_bytes: int | None
    bytes_saved: int | None
    multiply_accumulates: int | None


@dataclass(frozen=True, slots=True)
class RangeRecord(Record):
    """A constant that loses elements.

    Attributes:
        name: The constant.
        count: How many elements overflow or flush to zero.
        largest: Its largest finite magnitude.
        action: "kept" (float32, with its consumer), "saturated", "unbounded" or "flushed".
        consumers: The vertices concerned.
    """

    name: str
    count: int
    largest: float
    action: str
    consumers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoredRecord(Record):
    """A constant that computes as float32 and is stored in 16 bits, behind a Cast.

    Attributes:
        name: The constant.
        dtype: The type that it is stored in.
        bytes_saved: By how many bytes the file is smaller for it.
        largest_relative: The largest error of an element, relative to it.
        small: How many nonzero elements lie below the smallest normal number of the type, where
            their error is half of its smallest number at most; they are not among the former.
    """

    name: str
    dtype: str
    bytes_saved: int
    largest_relative: float
    small: int


@dataclass(frozen=True, slots=True)
class WeightsRecord(Record):
    """What became of the float32 constants.

    Attributes:
        converted: How many are low for what computes low.
        kept: How many are float32 in the file, because something reads them so.
        overflow: Those with elements out of the low type's range.
        underflow: Those with elements that round to zero.
        stored: Those that something reads as float32, stored in 16 bits all the same.
    """

    converted: int
    kept: int
    overflow: tuple[RangeRecord, ...]
    underflow: tuple[RangeRecord, ...]
    stored: tuple[StoredRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class AlignmentRecord(Record):
    """A static length of a low product that tensor cores do not fill.

    Attributes:
        node: The product or convolution.
        dimension: "rows", "inner length" or "columns" of a product, "input channels" or "output
            channels" of a convolution.
        length: The length.
        multiple: What it should be a multiple of.
    """

    node: str
    dimension: str
    length: int
    multiple: int


@dataclass(frozen=True, slots=True)
class Summary(Record):
    """The figures of a rewrite.

    Attributes:
        nodes_converted: Nodes with at least one low type variable.
        float_nodes: Nodes that had at least one float32 type variable.
        casts_added: Cast nodes added.
        casts_removed: The model's own Casts removed because they became no-ops.
        compute_converted: The low share of the multiply-accumulates of allow-list operators, from
            0 to 1, estimated from weights and recorded shapes; 0 if there are none.
        cast_bytes: What the Casts of values of known size read and write in a run.
        casts_of_unknown_size: How many Casts are not among these.
    """

    nodes_converted: int
    float_nodes: int
    casts_added: int
    casts_removed: int
    compute_converted: float
    cast_bytes: int = 0
    casts_of_unknown_size: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return Record.to_dict(self) | {"compute_converted": round(self.compute_converted, 4)}


@dataclass(frozen=True, slots=True)
class OpsetAdvice(Record):
    """A newer opset that lets more of the model become low.

    Attributes:
        opset: The oldest opset of ai.onnx that does.
        compute_converted: The share of multiply-accumulates that could be low then, from 0 to 1.
    """

    opset: int
    compute_converted: float

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return Record.to_dict(self) | {"compute_converted": round(self.compute_converted, 4)}


@dataclass(frozen=True, slots=True)
class RaisedOpset(Record):
    """How the model came to its opset.

    Attributes:
        before: The opset of ai.onnx that it had.
        compute_before: The low share of multiply-accumulates that a rewrite gives there.
        unverified: Why the outputs of the raised model were not compared with those of the model
            before; None if they were, and are the same.
    """

    before: int
    compute_before: float
    unverified: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return Record.to_dict(self) | {"compute_before": round(self.compute_before, 4)}


class Details(Protocol):
    """What a report says of every node and cast, which takes longer to say than all else."""

    def nodes(self) -> tuple[NodeRecord, ...]:
        """Return a record of every node."""
        ...

    def casts(self) -> tuple[CastRecord, ...]:
        """Return a record of every Cast that was added or given consumers."""
        ...

    def regions(self) -> tuple[RegionRecord, ...]:
        """Return a record of every connected region of low vertices, in execution order."""
        ...


@dataclass(frozen=True)
class Report:
    """What a rewrite did and why.

    Attributes:
        kept: (reason, operator) -> how many nodes stay float32 for it.
        n_casts: How many Casts were added or given consumers.
        details: What is said of each of them, and of every node.
        opset_advice: A newer opset that lets more of the model become low, or None.
        opset_raised: How the model came to its opset, if that was raised first.
        boundaries: Operators that no list knows and function calls, with how often each occurs.
        input_ranges: Graph input -> what the user said of the numbers that it holds.
        likely_overflow: Where an estimate first keeps something float32, and why; None if nowhere.
        alignment: Lengths of low products that tensor cores do not fill, if the target has them.
        batch_multiple: What free lengths have to be multiples of for low products to fill them;
            None if the target has none.
    """

    precision: str
    target: str
    level: str
    opset: int
    weights: WeightsRecord
    summary: Summary
    kept: Mapping[tuple[str, str], int]
    n_casts: int
    details: Details = field(repr=False, compare=False)
    boundaries: Mapping[str, int] = field(default_factory=dict)
    functions: str = "none"
    input_ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    likely_overflow: str | None = None
    opset_advice: OpsetAdvice | None = None
    opset_raised: RaisedOpset | None = None
    alignment: tuple[AlignmentRecord, ...] = ()
    batch_multiple: int | None = None

    @cached_property
    def nodes(self) -> tuple[NodeRecord, ...]:
        """All nodes, in execution order; made when first asked for."""
        return self.details.nodes()

    @cached_property
    def casts(self) -> tuple[CastRecord, ...]:
        """The Casts that were added or given consumers; made when first asked for."""
        return self.details.casts()

    @cached_property
    def regions(self) -> tuple[RegionRecord, ...]:
        """The connected regions of low vertices, in execution order; found when first asked for."""
        return self.details.regions()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, version 1."""
        return {
            "version": VERSION,
            "precision": self.precision,
            "target": self.target,
            "level": self.level,
            "model": {"opset": self.opset, "nodes": len(self.nodes), "functions": self.functions},
            "nodes": [n.to_dict() for n in self.nodes],
            "casts": [c.to_dict() for c in self.casts],
            "regions": [r.to_dict() for r in self.regions],
            "weights": self.weights.to_dict(),
            "boundaries": dict(self.boundaries),
            "input_ranges": {name: list(ends) for name, ends in self.input_ranges.items()},
            "likely_overflow": self.likely_overflow,
            "alignment": [a.to_dict() for a in self.alignment],
            "batch_multiple": self.batch_multiple,
            "opset_advice": _plain(self.opset_advice),
            "opset_raised": _plain(self.opset_raised),
            "summary": self.summary.to_dict(),
        }

    def to_json(self, indent: int | None = 1) -> str:
        """Return the report as JSON text, each level `indent` spaces further in.

        Raises:
            OptionError: `indent` is not None and not an integer from 0 to 100.
        """
        spaces = None if indent is None else arguments.integer("indent", indent, high=100)
        return json.dumps(self.to_dict(), indent=spaces)

    def to_text(self) -> str:
        """Return a short table: what was converted, and why the rest stayed float32."""
        from amp_rewrite.report.plain_console import printed  # rich takes 40 ms to load

        return printed(lambda console: print_report(self, console), _WIDTH)

    def _repr_html_(self) -> str:
        """Return what notebooks show: what was gained, and what stays float32 and why."""
        from amp_rewrite.html_table import HtmlTable, to_html
        from amp_rewrite.report.report_html import kept_table

        summary = self.summary
        line = (
            f"{summary.nodes_converted} of {summary.float_nodes} float32 nodes compute in "
            f"{self.precision} (target {self.target}); casts: {summary.casts_added} added, "
            f"{summary.casts_removed} removed"
        )
        kept = kept_table(self.kept_reasons(), self.precision, self.target)
        unknown = HtmlTable(("on no list", "nodes"), list(self.boundaries.items()))
        return to_html(headline(self), (line,), (kept, unknown))

    def kept_reasons(self) -> dict[tuple[str, str], int]:
        """Return (reason, operator) -> how many nodes stay float32 for it, most frequent first."""
        return dict(sorted(self.kept.items(), key=lambda item: (-item[1], item[0])))


def print_report(report: Report, console: Console, sizes: Sizes | None = None) -> None:
    """Print on a console what was gained, the figures, and why the rest stays float32.

    Args:
        report: The report.
        console: Where to print.
        sizes: How large the model is before and after, if that is known.
    """
    summary, weights = report.summary, report.weights
    console.print(headline(report, sizes))
    console.print(
        f"{summary.nodes_converted} of {summary.float_nodes} float32 nodes now compute in "
        f"{report.precision} (target {report.target}): "
        f"{summary.compute_converted:.1%} of the multiply-accumulates",
    )
    console.print(
        f"casts: {summary.casts_added} added, {summary.casts_removed} removed; "
        f"constants: {weights.converted} converted, {weights.kept} kept float32, "
        f"{len(weights.overflow)} out of range, {len(weights.underflow)} with elements that "
        "round to zero",
    )
    for line in _opset_lines(report):
        console.print(line)
    if report.n_casts:
        console.print(_movement(summary))
    if report.likely_overflow:
        console.print(f"by estimate: {report.likely_overflow}")
    if weights.stored:
        console.print(_storage(weights.stored))
    if report.alignment:
        console.print(_advice(report.alignment))
    for line in device_lines(report.precision, report.batch_multiple):
        console.print(line)
    reasons = report.kept_reasons()
    if reasons:
        console.print(_reason_table(report, reasons))
    if report.boundaries:
        names = ", ".join(f"{name} x{count}" for name, count in report.boundaries.items())
        console.print(f"boundaries (no list knows them): {names}")


def _opset_lines(report: Report) -> Iterator[str]:
    """Yield what the opset gained, and what another one would gain."""
    raised, advice = report.opset_raised, report.opset_advice
    if raised is not None:
        checked = "same outputs in float32"
        if raised.unverified is not None:
            checked = f"outputs not compared: {raised.unverified}"
        yield (
            f"opset {raised.before} raised to {report.opset} ({checked}): it converts "
            f"{report.summary.compute_converted:.1%} instead of {raised.compute_before:.1%}"
        )
    if advice is not None:
        yield (
            f"opset {advice.opset} would let up to {advice.compute_converted:.1%} of the "
            f"multiply-accumulates be {report.precision}: convert --opset {advice.opset}"
        )


def _movement(summary: Summary) -> str:
    known, unknown = f"{summary.cast_bytes:,} bytes a run", summary.casts_of_unknown_size
    if not unknown:
        return f"casts move {known}"
    return f"casts move {known}, without {unknown} of unknown size (--explain-casts infers shapes)"


def _advice(alignment: Sequence[AlignmentRecord]) -> str:
    shown = [f"{a.node} ({a.dimension} {a.length})" for a in alignment[:_MOST_LENGTHS]]
    more = ["..."] if len(alignment) > _MOST_LENGTHS else []
    lengths = "length of low products is" if len(alignment) == 1 else "lengths of low products are"
    return (
        f"tensor cores: {len(alignment)} {lengths} no multiple of "
        f"{alignment[0].multiple}: {', '.join(shown + more)}"
    )


def _storage(stored: Sequence[StoredRecord]) -> str:
    saved = sum(record.bytes_saved for record in stored)
    small = sum(record.small for record in stored)
    worst = max(record.largest_relative for record in stored)
    types = " or ".join(dict.fromkeys(record.dtype for record in stored))
    return (
        f"stored in {types} though float32: {len(stored)} constants, {saved:,} bytes less; "
        f"relative error at most {worst:.2g}, {small} elements below the normal numbers"
    )


def _reason_table(report: Report, reasons: dict[tuple[str, str], int]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title="stays float32", title_justify="left", box=None, pad_edge=False)
    table.add_column("nodes", justify="right")
    table.add_column("operator")
    table.add_column("because it")
    for (reason, op), count in list(reasons.items())[:MOST_REASONS]:
        said = plain_phrase(reason, report.precision, report.target)
        table.add_row(str(count), op, Text(f"{said} ").append(f"({reason})", "dim"))
    rest = sum(list(reasons.values())[MOST_REASONS:])
    if rest:
        table.add_row(str(rest), "...", "the JSON report names every node")
    return table


def shortcomings(report: Report) -> tuple[str, ...]:
    """Return one line for everything that keeps a rewrite from being complete, as `strict` asks."""
    lines: list[str] = []
    if not report.summary.nodes_converted:
        lines.append("nothing was converted: the model has no allow-list operator that could be")
    lines += [
        f"no op list knows {name} ({count} nodes); put it on a list, or on `unlisted` with a reason"
        for name, count in report.boundaries.items()
    ]
    missing = sorted(
        {
            node.op
            for node in report.nodes
            if node.list == "allow"
            and any(v.reason == Reason.NO_KERNEL for v in node.variables.values())
        }
    )
    lines += [f"target {report.target} has no {report.precision} kernel for {op}" for op in missing]
    return tuple(lines)
