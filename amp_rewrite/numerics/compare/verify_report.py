"""What `verify` found: frozen records, as text and as JSON.

Evidence: that of verification.py, whose findings these are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rich.console import Console

from amp_rewrite import targets
from amp_rewrite.base import arguments
from amp_rewrite.base.printable import counted, one_line, percent
from amp_rewrite.graph.sizes import Shape
from amp_rewrite.numerics.compare import verify_texts as texts
from amp_rewrite.numerics.compare.distance import OutputComparison, Tolerances
from amp_rewrite.numerics.compare.selection_report import SelectionComparison
from amp_rewrite.numerics.compare.stress_report import StressReport
from amp_rewrite.numerics.compare.verify_records import (
    DeviceComparison,
    Infinity,
    Misfit,
    failure_of,
    plain,
    worst_of,
)
from amp_rewrite.rewriting.report.plain_console import printed

VERSION = 1

MADE_UP = "made-up inputs"
"""How `VerifyReport.data` begins where no data were given."""


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
        device: The comparison with real hardware, or None if there is none.
        stress: What was found on stress inputs, or None if none were asked for.
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
    device: DeviceComparison | None = None
    stress: StressReport | None = None
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
        verdict = f"FAILED: {fails[0]}" if fails else self.verdict
        return one_line(self, f"{self.precision} {verdict}; {self.feeds} feeds ({self.data})")

    @property
    def ok(self) -> bool:
        """Whether every output is within tolerance and nothing became infinite or NaN.

        Feeds on which the original is not finite do not count; with no other one nothing is ok, nor
        is what nobody had the time to compare: `unjudged` says which.
        """
        return not self.failures and self.unjudged is None

    @property
    def unjudged(self) -> str | None:
        """Why nobody can tell: the time was over, or the original is finite on no feed; or None."""
        if self.unfinished is not None or self.feeds or not self.left_out:
            return self.unfinished
        return self.uncompared

    @property
    def holds(self) -> bool | None:
        """Whether it holds; None where nothing failed and nothing was compared: nobody knows."""
        if self.failures:
            return False
        return True if self.unjudged is None and self.compared else None

    @property
    def verdict(self) -> str:
        """Whether it passed, in a few words, or why that is not known."""
        if self.failures:
            return "FAILED" if self.refused is None else f"{self.refused}; FAILED"
        if self.unjudged is not None:
            return f"In doubt: {self.unjudged}"
        if self.compared and not self.has_outputs:
            return "Passed on stress inputs; nothing was compared on the others"
        return self.uncompared or f"Passed{self._on_what}{texts.against_itself(self.outputs)}"

    @property
    def headline(self) -> str:
        """The verdict with what decided it: the first failure, or the worst error."""
        failures = self.failures
        if failures:
            first = failures[0]
            return self.verdict if first == self.refused else f"{self.verdict}: {first}"
        if not self.has_outputs:
            return self.verdict
        so_far = "" if self.unjudged is None else " so far"
        alone = (
            f" (rounding the weights alone: {percent(self.control_worst)})" if self.control else ""
        )
        return (
            f"{self.verdict}: worst error{so_far} {percent(self.worst)} of the output's peak{alone}"
        )

    @property
    def is_made_up(self) -> bool:
        """Whether no data were given."""
        return self.data.startswith(MADE_UP)

    @property
    def _on_what(self) -> str:
        """Say how many batches there were, and whether they were made up."""
        kind = "made-up batch" if self.is_made_up else "batch of your data"
        if self.feeds != 1:
            kind = "made-up batches" if self.is_made_up else "batches of your data"
        stress = self.stress is not None and any(r.outcome == "held" for r in self.stress.results)
        return f" on {self.feeds:,} {kind}{' and on stress inputs' if stress else ''}"

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
        return texts.uncompared_line(self.outputs, self.left_out)

    @property
    def doubt(self) -> str | None:
        """Why a model that does not hold may be as good as it can be, or None.

        That is where all outputs that do not hold are about as far off if the weights alone are
        rounded, or depend on choices that could not be compared, and everything else holds; or
        where nobody can tell.
        """
        if self.unjudged is not None and not self.failures:
            return self.unjudged
        failed = [output for output in self.outputs if not output.ok]
        if not failed or self.refused is not None or self._failures_elsewhere():
            return None
        return texts.doubt_of(failed, self.control, self.tolerances, self.precision, self.untold)

    @property
    def failures(self) -> tuple[str, ...]:
        """What does not hold, one line each."""
        refused = () if self.refused is None else (self.refused,)
        lines = [failure_of(output) for output in self.outputs if not output.ok]
        return (*refused, *lines, *self._failures_elsewhere())

    def _failures_elsewhere(self) -> tuple[str, ...]:
        """Return what does not hold besides the outputs: values inside, stress, a device."""
        is_empty = self.unjudged is None and not self.feeds
        lines = [self.uncompared] if is_empty and self.uncompared is not None else []
        if self.infinities:
            lines.append(texts.overflow_line(self.infinities, self.outputs))
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
        return texts.test_of(self.tolerances)

    @property
    def remarks(self) -> tuple[str, ...]:
        """The notes that the headline does not have in it."""
        said = self.control_line if self.control and not self.failures else None
        return tuple(line for line in self.notes() if line != said)

    def notes(self) -> tuple[str, ...]:
        """Return what to know of the verdict besides failures, one line each.

        That is what was tried as stress, what was left out, and what the weights alone bring.
        """
        return (
            *(() if self.stress is None else self.stress.lines()),
            *(f"left out: {line}" for line in self.left_out),
            *(texts.constant_line(o) for o in self.outputs if o.constant is not None),
            *(texts.apart_line(o) for o in self.outputs if o.apart),
            *((self.control_line,) if self.control else ()),
            *((self.moves_line,) if self.moves else ()),
            *(str(each) for each in self.selections),
            *(texts.unsteady_line(o, self.moves) for o in self.outputs if o.as_original),
        )

    @property
    def worst(self) -> float:
        """How far the outputs are off at most, relative to their largest magnitude."""
        return worst_of(self.outputs)

    @property
    def control_worst(self) -> float:
        """The same for what the rounded weights alone bring."""
        return worst_of(self.control)

    @property
    def control_line(self) -> str:
        """What the rounded weights alone bring, which no choice of operators mends."""
        return (
            f"rounding the weights alone to {self.precision} gives a worst error of "
            f"{percent(self.control_worst)} of the output's peak; the model has "
            f"{percent(self.worst)}"
        )

    @property
    def moves_line(self) -> str:
        """How far the original moves by itself, which no arithmetic mends."""
        return (
            f"the float32 original changes by {percent(worst_of(self.moves))} of the output's peak "
            "when its inputs change by one part in 1,000,000"
        )

    @property
    def control_beyond(self) -> str:
        """That the rounded weights alone exceed the tolerance, for who is about to search."""
        given = texts.asked_for(self.tolerances)
        return (
            f"{given} is below the error of rounding the weights to {self.precision}: "
            f"{percent(self.control_worst)} of the output's peak. Only float32 weights can meet it"
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
        return content | plain(fields)

    def to_json(self) -> str:
        """Return the report as JSON, version 1: keys may be added, never renamed."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n"

    def to_text(self, width: int = 120) -> str:
        """Return the report as lines, `width` columns wide.

        Raises:
            OptionError: `width` is not an integer from 1 to 10,000.
        """
        columns = arguments.integer("width", width, low=1, high=10_000)
        return printed(lambda console: print_verify(self, console), columns)


def print_verify(report: VerifyReport, console: Console) -> None:
    """Print a report on a console: the verdict, what was compared, and the details."""
    failures = report.failures
    style = "red" if failures else "green" if report.ok and report.compared else "yellow"
    console.print(report.headline, style=style)
    if failures and report.doubt is not None:
        console.print(f"In doubt: {report.doubt}")
    for failure in failures[1:]:
        console.print(f"failed: {failure}")
    console.print(report.header)
    device = () if report.device is None else texts.device_lines(report.device)
    for line in (*map(texts.output_line, report.outputs), *device, *report.remarks):
        console.print(line)
    console.print(report.test)
