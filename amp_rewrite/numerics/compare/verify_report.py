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
from amp_rewrite.numerics.compare.verdict import Verdict, judged
from amp_rewrite.numerics.compare.verify_records import (
    DeviceComparison,
    FedBack,
    Infinity,
    Misfit,
    error_of,
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
        fed_back: The models after many calls, with states fed back; None if none was found.
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
    fed_back: FedBack | None = None
    shapes: Mapping[str, Shape] = field(default_factory=dict[str, Shape], repr=False, compare=False)

    def __repr__(self) -> str:
        """Return one line, for much is in it."""
        return one_line(self, f"{self.precision}: {self.verdict}")

    @property
    def ok(self) -> bool:
        """Whether it passed."""
        return self.verdict.ok

    @property
    def failures(self) -> tuple[str, ...]:
        """What is wrong, one line each."""
        return self.verdict.failures

    @property
    def verdict(self) -> Verdict:
        """What follows from all that was found."""
        failed = [output for output in self.outputs if not output.ok]
        failures = [] if self.refused is None else [self.refused]
        doubts = [] if self.unfinished is None else [self.unfinished]
        for output in failed:
            doubt = texts.doubt_of(output, self._yardsticks_of(output), self.untold, self.precision)
            lines = failures if doubt is None else doubts
            lines.append(failure_of(output) if doubt is None else doubt)
        if self.infinities:
            failures.append(texts.overflow_line(self.infinities, self.outputs))
        failures += map(str, self.misfits)
        for found in (self.fed_back, self.stress):
            failures += () if found is None else found.failures
            doubts += () if found is None else found.doubts
        failures += () if self.device is None else self.device.failures
        worst = worst_of(self.outputs)
        return judged(
            failures,
            doubts,
            None if self.compared else texts.uncompared_line(self.outputs, self.left_out),
            inputs=self._inputs,
            worst="" if worst is None else self._worst_line(worst),
        )

    def _yardsticks_of(self, output: OutputComparison) -> Mapping[str, OutputComparison]:
        """Return how far yardsticks move an output, by the name of the excuse."""
        held = {"weights": self.control, "original": self.moves}
        pairs = ((name, other) for name, others in held.items() for other in others)
        return {name: other for name, other in pairs if other.name == output.name}

    def _worst_line(self, worst: OutputComparison) -> str:
        said = f"worst {error_of(worst, strict=self.tolerances.strict)}"
        alone = self._yardsticks_of(worst).get("weights")
        if alone is None or alone.error is None:
            return said
        number = alone.scaled_error if self.tolerances.strict else alone.error
        return f"{said} (rounding the weights alone: {percent(number)})"

    @property
    def is_made_up(self) -> bool:
        """Whether no data were given."""
        return self.data.startswith(MADE_UP)

    @property
    def _inputs(self) -> str:
        """Say how many batches there were, whether they were made up, and what was stress."""
        kind = "made-up batch" if self.is_made_up else "batch of your data"
        if self.feeds != 1:
            kind = "made-up batches" if self.is_made_up else "batches of your data"
        held = self.stress is not None and any(r.outcome == "held" for r in self.stress.results)
        some = any(output.compared for output in self.outputs)
        if held and not some:
            return "stress inputs (nothing was compared on the others)"
        but = "" if self.stress is None else self.stress.exceptions
        return f"{self.feeds:,} {kind}{' and on stress inputs' if held else ''}{but}"

    @property
    def compared(self) -> bool:
        """Whether anything could have differed: an output that is no constant, on any input."""
        stress = () if self.stress is None else self.stress.results
        tried = (o for r in stress if r.outcome != "left out" for o in r.outputs)
        return any(output.compared for output in (*self.outputs, *tried))

    @property
    def worst(self) -> float:
        """The largest error of an output, relative to its spread."""
        return max((output.error or 0.0 for output in self.outputs), default=0.0)

    def notes(self) -> tuple[str, ...]:
        """Return what to know of the verdict besides its line, one line each.

        That is what was tried as stress, what was left out, and what yardsticks bring.
        """
        moved = max((output.error or 0.0 for output in self.moves), default=0.0)
        return (
            *(() if self.fed_back is None else (str(self.fed_back),)),
            *(() if self.stress is None else self.stress.lines()),
            *(f"left out: {line}" for line in self.left_out),
            *(texts.constant_line(o) for o in self.outputs if o.constant is not None),
            *(texts.apart_line(o) for o in self.outputs if o.apart),
            *((texts.moves_line(moved),) if self.moves else ()),
            *(str(each) for each in self.selections),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data; NaN and infinities are None."""
        judgement = {"notes": list(self.notes()), "test": texts.test_of(self.tolerances)}
        fields = asdict(replace(self, shapes={}))
        del fields["shapes"]
        return {"version": VERSION} | self.verdict.to_dict() | judgement | plain(fields)

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
    print_verdict(report.verdict, console)
    console.print(
        f"{report.precision}, emulated for {report.target}, against the original: "
        f"{counted(report.feeds, 'feed')} ({report.data})"
    )
    device = () if report.device is None else texts.device_lines(report.device)
    for line in (*map(texts.output_line, report.outputs), *device, *report.notes()):
        console.print(line)
    console.print(texts.test_of(report.tolerances))


def print_verdict(verdict: Verdict, console: Console) -> None:
    """Print a verdict: its line, and what else is wrong or in doubt."""
    style = {"passed": "green", "failed": "red"}.get(verdict.status, "yellow")
    console.print(str(verdict), style=style)
    lines = [f"failed: {line}" for line in verdict.failures]
    lines += [f"in doubt: {line}" for line in verdict.doubts]
    for line in lines[1:]:
        console.print(line)
