"""What `verify` found: frozen records, as text and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from amp_rewrite import targets
from amp_rewrite.base import arguments
from amp_rewrite.base.html_table import HtmlTable, to_html
from amp_rewrite.base.printable import counted, one_line, percent, printable, share
from amp_rewrite.graph.sizes import Shape
from amp_rewrite.numerics.compare.distance import (
    AGREEMENT,
    DISTANCE,
    SLICE_DISTANCE,
    OutputComparison,
    Tolerances,
)
from amp_rewrite.numerics.compare.selection_report import SelectionComparison
from amp_rewrite.numerics.compare.stress_report import StressReport
from amp_rewrite.numerics.compare.weights_alone import AS_FAR, is_as_far
from amp_rewrite.rewriting.report.plain_console import printed

VERSION = 1

MADE_UP = "made-up inputs"
"""How `VerifyReport.data` begins where no data were given."""

_SLICE = "slice"
_OUTPUT_COLUMNS = (
    *("output", "max abs", "max rel", "cosine", "distance", _SLICE, "within", "NaN", "Inf"),
    *("top-1", ""),
)
_NAME, _GAP = 12, 2
"""To how many characters names are folded in a table, and the spaces between columns."""
_GROWTH_COLUMNS = ("largest error growth", "operator", "error in", "error out", "times")


@dataclass(frozen=True, slots=True)
class NodeGrowth:
    """How much a node of the rewritten model magnifies the error.

    Attributes:
        node: Its name.
        op: Its operator.
        error_in: The largest error among its inputs: |rewritten - original| / |original|
            (Euclidean, over the finite elements of all feeds).
        error_out: The largest error among its outputs.
        growth: error_out over error_in, where the latter counts as at least half the precision's
            epsilon: what rounding alone may add.
    """

    node: str
    op: str
    error_in: float
    error_out: float
    growth: float


@dataclass(frozen=True, slots=True)
class ValueDistance:
    """How far a value inside the rewritten model is from the original.

    Attributes:
        value: Its name in the rewritten model.
        node: The node that makes it; "" for an input.
        distance: |rewritten - original| / |original| (Euclidean, over the finite elements of all
            feeds).
    """

    value: str
    node: str
    distance: float


@dataclass(frozen=True, slots=True)
class Infinity:
    """A value inside the rewritten model with infinities or NaNs that the original does not have.

    Attributes:
        value: Its name in the rewritten model.
        node: The node that makes it; "" for an input or a weight.
        op: That node's operator.
        inf: How many elements are infinite and finite in the original, over all feeds.
        nan: The same for NaN.
    """

    value: str
    node: str
    op: str
    inf: int
    nan: int


@dataclass(frozen=True, slots=True)
class Misfit:
    """A node of the original that the rewritten model computes otherwise.

    Attributes:
        value: The output, by its name in the rewritten model.
        node: The name of the original's node.
        op: Its operator.
        error: |rewritten - expected| / |expected|, where the original's node in float32 makes what
            is expected of the inputs in the rewritten model.
    """

    value: str
    node: str
    op: str
    error: float

    def __str__(self) -> str:
        """Return it as one line."""
        place = f"{self.op} {self.node}".strip()
        return (
            f"{place} computes something else than in the original: of the same inputs, "
            f"{self.value} is {self.error:.2g} of its size away"
        )


@dataclass(frozen=True, slots=True)
class DeviceComparison:
    """The rewritten model on real hardware, against its emulation.

    Attributes:
        providers: The execution providers that ran it.
        outputs: How far the device's outputs are from the emulated ones.
        error: Why it could not be run there, or None.
        original: How far the device's outputs are from those of the original.
        asked: The user asked for the device, so that it must hold.
        itself: How far the original is there from what the CPU makes of it, on the feeds on which
            the rewritten model departs; empty if it departs on none, or if it cannot be run.
        itself_error: Why the original could not be run there, or None.
        notes: What is different about the engine on this machine.
    """

    providers: tuple[str, ...]
    outputs: tuple[OutputComparison, ...]
    error: str | None = None
    original: tuple[OutputComparison, ...] = ()
    asked: bool = False
    itself: tuple[OutputComparison, ...] = ()
    itself_error: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def failures(self) -> tuple[str, ...]:
        """What does not hold on a device that was asked for, one line each."""
        if not self.asked:
            return ()
        names = ", ".join(self.providers)
        if self.error is not None:
            return (f"{names} could not run the model: {self.error}", *self.excuses)
        failed = (o for o in self.original if not o.ok)
        return (*(f"on {names}: {failure_of(output)}" for output in failed), *self.excuses)

    @property
    def lines(self) -> tuple[str, ...]:
        """How far off a device is that was asked for and ran the model, and notes on it."""
        if not self.asked or self.error is not None:
            return ()
        names, worst = ", ".join(self.providers), _worst(self.original)
        said = f"run on {names}: off the original by {worst:.2g} of an output's size at most"
        return (said, *self.notes)

    @property
    def excuses(self) -> tuple[str, ...]:
        """What the provider does to the original as well: that is not the rewrite's fault."""
        if self.itself_error is not None:
            return (f"the original fails there as well: {self.itself_error}",)
        return tuple(
            f"the original departs there as well: output {output.name} is {_far(output)} from what "
            "the CPU computes"
            for output in self.itself
            if not output.ok
        )


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The result of `verify`.

    Attributes:
        precision: The lowest precision that the rewritten model uses.
        feeds: How many feeds were run.
        data: Where they came from.
        tolerances: What the outputs may differ by.
        outputs: One comparison per output.
        infinities: Values inside that became infinite or NaN, in topological order. They count as
            failures even if a later node absorbs them and the outputs are finite: the numbers that
            they replace are lost, and another input may let them through.
        misfits: The first node that computes something else of the same inputs than the original's:
            the file is broken there, which counts as a failure if the outputs do not show it, too.
        growth: The nodes that magnify the error most, the worst first.
        device: The comparison with real hardware, or None if there is none.
        stress: What was found on stress inputs, or None if none were asked for.
        inside: How far the values inside are from the original, in topological order.
        left_out: Feeds that do not count, because the original is not finite on them.
        target: Whose kernels were emulated.
        shapes: The shapes of the original's values for the first feed, by name; not in `to_dict`.
        control: How far the outputs are off that the model's rounded weights bring alone, computed
            in float32; empty if no weight is low, or the model does not run so.
        moves: How far the original's outputs move in float32 where its inputs move by one part in a
            million; empty if no input can be moved.
        refused: Why ONNX Runtime does not load the rewritten model; None if it does, or if it is an
            object of 2 GiB or more.
        selections: What nodes such as TopK select in both models.
        untold: Why the rewritten model could not be told what the original selects inside If, Loop
            and Scan, where outputs fail: one swapped near tie may be all that differs.
        unfinished: What a time limit kept from being compared; None if nothing was.
    """

    precision: str
    feeds: int
    data: str
    tolerances: Tolerances
    outputs: tuple[OutputComparison, ...]
    infinities: tuple[Infinity, ...] = ()
    misfits: tuple[Misfit, ...] = ()
    growth: tuple[NodeGrowth, ...] = ()
    device: DeviceComparison | None = None
    stress: StressReport | None = None
    inside: tuple[ValueDistance, ...] = ()
    left_out: tuple[str, ...] = ()
    control: tuple[OutputComparison, ...] = ()
    moves: tuple[OutputComparison, ...] = ()
    selections: tuple[SelectionComparison, ...] = ()
    untold: tuple[str, ...] = ()
    target: str = targets.DEFAULT
    refused: str | None = None
    unfinished: str | None = None
    shapes: Mapping[str, Shape] = field(default_factory=dict[str, Shape], repr=False, compare=False)

    def __repr__(self) -> str:
        """Return one line, for much is in it."""
        fails = self.failures
        verdict = f"does not hold: {fails[0]}" if fails else self.verdict
        return one_line(self, f"{self.precision} {verdict}; {self.feeds} feeds ({self.data})")

    @property
    def ok(self) -> bool:
        """Whether every output is within tolerance and nothing became infinite or NaN.

        Feeds on which the original is not finite do not count; with no other one nothing is ok, nor
        is what nobody had the time to compare.
        """
        return not self.failures and self.unfinished is None

    @property
    def holds(self) -> bool | None:
        """Whether it holds; None where nothing was compared, so that nobody knows."""
        if self.unfinished is not None and not self.failures:
            return None
        return self.ok if self.compared else None

    @property
    def verdict(self) -> str:
        """Whether it holds, in a few words, or why that is not known."""
        if self.failures:
            return "does not hold" if self.refused is None else f"{self.refused}; does not hold"
        if self.unfinished is not None:
            return f"in doubt: {self.unfinished}"
        if self.compared and not self.has_outputs:
            return "holds on stress inputs; on the others nothing was compared"
        return self.uncompared or f"holds{self._on_what}{self._against_itself}"

    @property
    def is_made_up(self) -> bool:
        """Whether no data were given."""
        return self.data.startswith(MADE_UP)

    @property
    def _on_what(self) -> str:
        """Say of made-up inputs that they are."""
        if not self.is_made_up:
            return ""
        stress = self.stress is not None and any(r.outcome == "held" for r in self.stress.results)
        return " on 1 made-up batch" + (" and on stress inputs" if stress else "")

    @property
    def _against_itself(self) -> str:
        """Say where the original's own steadiness was the yardstick."""
        names = [o.name for o in self.outputs if o.as_original]
        kind = "output" if len(names) == 1 else "outputs"
        return f", {kind} {', '.join(names)} no better than the original itself" if names else ""

    @property
    def compared(self) -> bool:
        """Whether anything could have differed: an output that is no constant, on any input."""
        stress = () if self.stress is None else self.stress.results
        tried = (o for r in stress if r.outcome != "left out" for o in r.outputs)
        return any(output.compared for output in (*self.outputs, *tried))

    @property
    def has_outputs(self) -> bool:
        """Whether anything was compared on the feeds themselves, stress inputs aside."""
        return any(output.compared for output in self.outputs)

    @property
    def uncompared(self) -> str | None:
        """Why nothing was compared, in one line; None if something was."""
        if self.compared:
            return None
        if self.left_out:
            return f"nothing was compared: {self.left_out[0]}"
        constant = [f"{o.name} is {o.constant:g}" for o in self.outputs if o.constant is not None]
        why = f"output {constant[0]} everywhere, in both models" if constant else "no elements"
        return f"nothing was compared: {why}"

    @property
    def doubt(self) -> str | None:
        """Why a model that does not hold may be as good as it can be, or None.

        That is where all outputs that do not hold are about as far off if the weights alone are
        rounded, or depend on choices that could not be compared, and everything else holds; or
        where the time was over.
        """
        if self.unfinished is not None and not self.failures:
            return self.unfinished
        failed = [output for output in self.outputs if not output.ok]
        control = {output.name: output for output in self.control}
        if not failed or self.refused is not None or self._failures_elsewhere():
            return None
        if not all(
            o.name in control and is_as_far(o, control[o.name], self.tolerances) for o in failed
        ):
            return self._untold_doubt(failed)
        return (
            f"the weights alone, rounded to {self.precision} and computed in float32, are as far "
            f"off: {failure_of(control[failed[0].name])}"
        )

    def _untold_doubt(self, failed: Sequence[OutputComparison]) -> str | None:
        """Return why outputs may be right although they differ, or None."""
        if not self.untold or any(output.nan or output.inf for output in failed):
            return None
        return (
            "nodes inside If, Loop or Scan select by numbers, and outputs could not be compared "
            f"for the original's choices: {self.untold[0]}. A swapped near tie may be all that "
            "differs"
        )

    @property
    def failures(self) -> tuple[str, ...]:
        """What does not hold, one line each."""
        refused = () if self.refused is None else (self.refused,)
        lines = [failure_of(output) for output in self.outputs if not output.ok]
        return (*refused, *lines, *self._failures_elsewhere())

    def _failures_elsewhere(self) -> tuple[str, ...]:
        """Return what does not hold besides the outputs: values inside, stress, a device."""
        is_empty = self.unfinished is None and not self.feeds
        lines = [self.uncompared] if is_empty and self.uncompared is not None else []
        if self.infinities:
            first = self.infinities[0]
            kind = "infinite" if first.inf else "NaN"
            place = f" ({first.op} {first.node})" if first.op else ""
            finite = all(not o.inf and not o.nan for o in self.outputs)
            lines.append(
                f"{len(self.infinities)} values inside overflow, first {first.value}{place}: "
                f"{first.inf or first.nan} elements are {kind} where the original is finite"
                + ("; the outputs absorb it" if finite else "")
            )
        lines += map(str, self.misfits)
        lines += () if self.stress is None else self.stress.failures
        return (*lines, *(() if self.device is None else self.device.failures))

    @property
    def header(self) -> str:
        """What was compared, and on what."""
        return (
            f"{self.precision}, emulated for {self.target}, against the original: "
            f"{counted(self.feeds, 'feed')} ({self.data})"
        )

    @property
    def test(self) -> str:
        """What decides: the test that each output has to pass."""
        limits = self.tolerances
        if limits.strict:
            bounds = (
                *((f"{limits.rtol:.3g} of the output's largest magnitude",) if limits.rtol else ()),
                *((f"{limits.atol:.3g}",) if limits.atol or not limits.rtol else ()),
            )
            return (
                f"an output passes if every element is within {' + '.join(bounds)}, a slice of "
                "another scale within that of its own"
            )
        return (
            f"an output passes if its distance is at most {percent(DISTANCE)} of its size, that of "
            f"each slice of another scale at most {percent(SLICE_DISTANCE)} of the slice's, and "
            f"{share(AGREEMENT, 0)} of its rows have the same top-1 class; the first and the last "
            f"are not asked if 100 % are within {limits.rtol:.2g} of the largest magnitude plus "
            f"{limits.rtol:.2g} of their own"
        )

    def notes(self) -> tuple[str, ...]:
        """Return what to know of the verdict besides failures, one line each.

        That is what was tried as stress, what was left out, and what the weights alone bring.
        """
        return (
            *(() if self.stress is None else self.stress.lines()),
            *(f"left out: {line}" for line in self.left_out),
            *(_constant_line(o) for o in self.outputs if o.constant is not None),
            *(_apart_line(o) for o in self.outputs if o.apart),
            *((self.control_line,) if self.control else ()),
            *((self.moves_line,) if self.moves else ()),
            *(str(each) for each in self.selections),
            *(self._unsteady_line(o) for o in self.outputs if o.as_original),
        )

    @property
    def worst(self) -> float:
        """How far the outputs are off at most, relative to their largest magnitude."""
        return _worst(self.outputs)

    @property
    def control_worst(self) -> float:
        """The same for what the rounded weights alone bring."""
        return _worst(self.control)

    @property
    def control_line(self) -> str:
        """What the rounded weights alone bring, which no choice of operators mends."""
        return (
            f"the weights alone, rounded to {self.precision} and computed in float32: off by at "
            f"most {self.control_worst:.2g} of an output's largest magnitude, the model by "
            f"{self.worst:.2g}"
        )

    @property
    def moves_line(self) -> str:
        """How far the original moves by itself, which no arithmetic mends."""
        return (
            "the original itself in float32, its inputs moved by one part in 1,000,000: off by at "
            f"most {_worst(self.moves):.2g} of an output's largest magnitude"
        )

    def _unsteady_line(self, output: OutputComparison) -> str:
        moves = next(other for other in self.moves if other.name == output.name)
        return (
            f"output {output.name} is beyond the tolerance, and so is the original itself where "
            f"its inputs move by one part in 1,000,000 ({failure_of(moves)}): no arithmetic can be "
            f"right to the tolerance, and up to {AS_FAR:g} times as far counts as right"
        )

    @property
    def control_beyond(self) -> str:
        """That the rounded weights alone exceed the tolerance, for who is about to search."""
        limits = self.tolerances
        most = f"; at most {max(limits.rtol, limits.atol):.3g} is allowed" if limits.strict else ""
        return (
            f"the weights alone, rounded to {self.precision} and computed in float32, exceed the "
            f"tolerance: off by {self.control_worst:.2g} of an output's largest magnitude{most}. "
            "Only weights that stay float32 mend that"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data; NaN and infinities are None."""
        content = {
            "version": VERSION,
            "ok": self.ok,
            "verdict": self.verdict,
            "failures": list(self.failures),
            "doubt": self.doubt,
            "notes": list(self.notes()),
            "test": self.test,
        }
        fields = asdict(replace(self, shapes={}))
        del fields["shapes"]
        return content | _plain(fields)

    def to_json(self) -> str:
        """Return the report as JSON, version 1: keys may be added, never renamed."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n"

    def to_text(self, width: int = 120) -> str:
        """Return the report as tables, `width` columns wide.

        Raises:
            OptionError: `width` is not an integer from 1 to 10,000.
        """
        columns = arguments.integer("width", width, low=1, high=10_000)
        return printed(lambda console: print_verify(self, console), columns)

    def _repr_html_(self) -> str:
        """Return what notebooks show: the verdict, and the outputs and nodes that it is about."""
        lines = [
            self.header,
            self.test,
            *self.notes(),
            *(f"failed: {failure}" for failure in self.failures),
            *(() if self.doubt is None else (f"in doubt: {self.doubt}",)),
        ]
        outputs = HtmlTable(*_output_table(self.outputs))
        growth = HtmlTable(_GROWTH_COLUMNS, [_growth_row(node) for node in self.growth])
        return to_html(self.verdict, lines, (outputs, growth))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def failure_of(output: OutputComparison) -> str:
    """Return why an output does not hold, in one line: by the test that it fails."""
    name = f"output {output.name}"
    if output.fault == "shape":
        return f"{name} has another shape"
    if output.fault == "lost":
        lost = output.inf + output.nan
        return f"{name}: {lost} elements are infinite or NaN, finite in the original"
    if output.fault == "distance" and output.distance is not None:
        return f"{name} is {output.distance:.2g} of its size away from the original"
    if output.fault == "slice":
        return f"{name}: {output.slice}"
    if output.fault == "classes" and output.top1 is not None:
        return f"{name}: only {share(output.top1, 1)} of the rows have the same top-1 class"
    outside = output.elements - round(output.within * output.elements)
    return (
        f"{name}: {outside} of {output.elements} elements are out of tolerance, "
        f"the worst is off by {output.max_abs:.3g}"
    )


def _constant_line(output: OutputComparison) -> str:
    return (
        f"output {output.name} is {output.constant:g} everywhere, in both models: nothing was "
        "compared in it"
    )


def _apart_line(output: OutputComparison) -> str:
    return (
        f"output {output.name}: {output.apart} elements in rows that are masked whole are apart, "
        f"off by at most {output.apart_error:.2g} of its largest magnitude"
    )


def _worst(outputs: tuple[OutputComparison, ...]) -> float:
    return max((output.scaled_error for output in outputs), default=0.0)


def _far(output: OutputComparison) -> str:
    return "far" if output.distance is None else f"{output.distance:.2g} of its size away"


def print_verify(report: VerifyReport, console: Console) -> None:
    """Print a report on a console."""
    if report.refused is not None:
        console.print(report.refused)
    console.print(report.header)
    console.print(report.test)
    _print_outputs(report.outputs, console)
    if report.growth:
        _print_table(_GROWTH_COLUMNS, [_growth_row(node) for node in report.growth], console)
    if report.device is not None:
        _print_device(report.device, console)
    for line in report.notes():
        console.print(line)
    for failure in report.failures:
        console.print(f"failed: {failure}")
    if report.failures and report.doubt is not None:
        console.print(f"in doubt: {report.doubt}")
    if report.ok or (report.unfinished is not None and not report.failures):
        style = "green" if report.ok and report.compared else "yellow"
        console.print(report.verdict, style=style)


def _print_device(device: DeviceComparison, console: Console) -> None:
    names = ", ".join(device.providers)
    if device.error is not None:
        console.print(f"{names} could not run the model: {device.error}")
        _print_excuses(device, console)
        return
    console.print(f"{names} against the emulation:")
    _print_outputs(device.outputs, console)
    console.print(f"{names} against the original:")
    _print_outputs(device.original, console)
    _print_excuses(device, console)
    for line in device.notes:
        console.print(line)


def _print_excuses(device: DeviceComparison, console: Console) -> None:
    """Print what is not among the failures."""
    for line in () if device.asked else device.excuses:
        console.print(line)


def _print_outputs(outputs: tuple[OutputComparison, ...], console: Console) -> None:
    _print_table(*_output_table(outputs), console)


def _output_table(
    outputs: tuple[OutputComparison, ...],
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return columns and rows; there is a column for slices if an output has some."""
    shown = [
        index
        for index, column in enumerate(_OUTPUT_COLUMNS)
        if column != _SLICE or any(output.slice is not None for output in outputs)
    ]
    rows = [_output_row(output) for output in outputs]
    columns = tuple(_OUTPUT_COLUMNS[index] for index in shown)
    return columns, [tuple(row[index] for index in shown) for row in rows]


def _output_row(o: OutputComparison) -> tuple[str, ...]:
    return (
        o.name,
        f"{o.max_abs:.3g}",
        f"{o.max_rel:.3g}",
        "-" if o.cosine is None else f"{o.cosine:.6f}",
        "-" if o.distance is None else f"{o.distance:.2g}",
        "-" if o.slice is None else f"{o.slice.distance:.2g}",
        share(o.within),
        str(o.nan),
        str(o.inf),
        "-" if o.top1 is None else share(o.top1, 1),
        ("ok" if o.compared else "-") if o.ok else "failed",
    )


def _growth_row(g: NodeGrowth) -> tuple[str, ...]:
    return g.node, g.op, f"{g.error_in:.2g}", f"{g.error_out:.2g}", f"{g.growth:.1f}"


def _print_table(columns: Sequence[str], rows: Sequence[tuple[str, ...]], console: Console) -> None:
    """Print a table, or each row line by line where it is too wide for the console."""
    cells = [tuple(map(printable, row)) for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    if min(widths[0], _NAME) + sum(_GAP + width for width in widths[1:]) > console.width:
        for first, *others in cells:
            console.print(first)
            for name, cell in zip(columns[1:], others, strict=True):
                console.print(f"  {name}: {cell}" if name else f"  {cell}")
        return
    table = Table(box=None, pad_edge=False)
    table.add_column(columns[0], overflow="fold")
    for name in columns[1:]:
        table.add_column(name, justify="right")
    for row in cells:
        table.add_row(*row)
    console.print(table)
