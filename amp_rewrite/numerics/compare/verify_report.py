"""The findings of `verify`: one frozen report, as text and as JSON.

Evidence: that of verification.py, whose findings these are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from amp_rewrite import targets
from amp_rewrite.base.printable import counted, percent
from amp_rewrite.numerics.compare.distance import OutputComparison, Tolerances
from amp_rewrite.numerics.compare.verdict import Verdict, judged
from amp_rewrite.numerics.compare.verify_records import (
    DeviceComparison,
    FedBack,
    Inside,
    StressReport,
    doubt_of,
    error_of,
    explained,
    failure_of,
    output_line,
    test_of,
    worst_of,
)
from amp_rewrite.rewriting.report.records import VERSION, Shown

MADE_UP = "made-up inputs"
"""How `VerifyReport.data` begins where no data were given."""


@dataclass(frozen=True, slots=True, repr=False)
class VerifyReport(Shown):
    """The result of `verify`.

    Attributes:
        precision: The lowest precision that the rewritten model uses.
        feeds: How many feeds were run.
        data: Where they came from.
        tolerances: What the outputs may differ by.
        outputs: One comparison per output.
        infinities: Values inside that became infinite or NaN, in topological order. They count as
            failures even if a later node absorbs them: another input may let them through.
        misfits: The first node that computes something else of the same inputs than the original's:
            the file is broken there.
        device: The comparison with real hardware, or None if there is none.
        stress: The findings on stress inputs, or None if none were asked for.
        left_out: Feeds that do not count, because the original is not finite on them.
        control: The errors of the model's rounded weights alone, computed in float32, on feeds on
            which an output fails; empty if there is none, or no weight is in 16 bits.
        moves: How far the original's outputs move on these feeds, in float32, where its inputs move
            by one part in a million; empty if no input can be moved.
        selections: Nodes such as TopK that choose otherwise among near ties. Outputs are compared
            for the original's choices.
        target: Whose kernels were emulated.
        refused: Why ONNX Runtime does not load the rewritten model; None if it does, or if it is an
            object of 2 GiB or more.
        unfinished: What a time limit kept from being compared; None if nothing was.
        fed_back: Many calls with states fed back; None if none was found, or an output had failed.
        predicted: Output -> the error that rounding is predicted to make, relative to its spread;
            empty without `verify --budget`. It never fails a model.
    """

    precision: str
    feeds: int
    data: str
    tolerances: Tolerances
    outputs: tuple[OutputComparison, ...]
    infinities: tuple[Inside, ...] = ()
    misfits: tuple[Inside, ...] = ()
    device: DeviceComparison | None = None
    stress: StressReport | None = None
    left_out: tuple[str, ...] = ()
    control: tuple[OutputComparison, ...] = ()
    moves: tuple[OutputComparison, ...] = ()
    selections: tuple[str, ...] = ()
    target: str = targets.DEFAULT
    refused: str | None = None
    unfinished: str | None = None
    fed_back: FedBack | None = None
    predicted: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def ok(self) -> bool:
        """Whether it passed."""
        return self.verdict.ok

    @property
    def failures(self) -> tuple[str, ...]:
        """The failures, one line each."""
        return self.verdict.failures

    @property
    def verdict(self) -> Verdict:
        """The verdict on all that was found."""
        failures = [] if self.refused is None else [self.refused]
        doubts = [] if self.unfinished is None else [self.unfinished]
        moved = {"weights": self.control, "original": self.moves}
        for output in self.outputs:
            if output.ok:
                continue
            if output.excuse:
                doubts.append(doubt_of(output, moved[output.excuse], self.precision))
            else:
                failures.append(failure_of(output))
        if self.infinities:
            first = self.infinities[0]
            verb = "overflows" if len(self.infinities) == 1 else "overflow"
            failures.append(
                f"{counted(len(self.infinities), 'value')} inside {verb}, first {first.place}: "
                f"{first.lost} where the original is finite"
            )
        failures += [misfit.misfit for misfit in self.misfits]
        for found in (self.fed_back, self.stress, self.device):
            failures += () if found is None else found.failures
        doubts += () if self.stress is None else self.stress.doubts
        return judged(
            failures,
            doubts,
            None
            if self.compared
            else next(iter((*self.left_out, *self._constants)), "no elements"),
            inputs=self._inputs,
            worst=self._worst,
        )

    def verdict_beside(self, failures: Sequence[str], doubts: Sequence[str], to: str) -> Verdict:
        """Return the verdict with other findings, on a comparison with `to`."""
        shown, is_compared = self.verdict, self.compared
        return judged(
            (*failures, *shown.failures),
            (*doubts, *(shown.doubts if is_compared else ())),
            None if is_compared else "; ".join(shown.doubts),
            inputs=shown.inputs,
            worst=f"{shown.worst}{to}" if shown.worst else "",
        )

    @property
    def _constants(self) -> list[str]:
        """Name the outputs that are one number in the original."""
        found = [o for o in self.outputs if o.constant is not None]
        return [f"output {o.name} is {o.constant:g} everywhere in the original" for o in found]

    @property
    def _worst(self) -> str:
        worst, strict = worst_of(self.outputs), self.tolerances.strict
        if worst is None:
            return ""
        said = f"worst {error_of(worst, strict=strict)}"
        alone = next((o for o in self.control if o.name == worst.name), None)
        if alone is None or alone.error is None:
            return said
        number = alone.scaled_error if strict else alone.error
        return f"{said} (rounding the weights alone: {percent(number)})"

    @property
    def is_made_up(self) -> bool:
        """Whether no data were given."""
        return self.data.startswith(MADE_UP)

    @property
    def _inputs(self) -> str:
        """Say how many batches there were, whether they were made up, and what was stress."""
        held = self.stress is not None and bool(self.stress.of("held"))
        if held and not any(output.compared for output in self.outputs):
            return "stress inputs (nothing was compared on the others)"
        kind, given = ("made-up batch", "") if self.is_made_up else ("batch", " of your data")
        but = "" if self.stress is None else self.stress.exceptions
        stressed = " and on stress inputs" if held else ""
        return f"{counted(self.feeds, kind)}{given}{stressed}{but}"

    @property
    def compared(self) -> bool:
        """Whether anything could have differed: an output that is no constant, on any input."""
        tried = [] if self.stress is None else self.stress.of("held", "failed", "doubtful")
        return any(output.compared for r in (self, *tried) for output in r.outputs)

    @property
    def worst(self) -> float:
        """The largest error of an output, relative to its spread."""
        return max((output.error or 0.0 for output in self.outputs), default=0.0)

    def notes(self) -> tuple[str, ...]:
        """Return notes on stress inputs, on what was left out, and on yardsticks, one line each."""
        return (
            *(() if self.fed_back is None else (str(self.fed_back),)),
            *(() if self.stress is None else self.stress.lines()),
            *(f"left out: {line}" for line in self.left_out),
            *(f"{line}, so it proves nothing" for line in self._constants),
            *(
                f"output {o.name}: {counted(o.apart, 'element')} in fully masked rows do not count"
                for o in self.outputs
                if o.apart
            ),
            *(f"{s}: outputs are compared for the original's choices" for s in self.selections),
        )

    def lines(self) -> Iterator[str]:
        """Yield the verdict, what was compared, and the details."""
        yield from self.verdict.lines()
        yield f"{self.precision}, emulated for {self.target}, against the original on {self.data}"
        yield from map(output_line, self.outputs)
        for output in self.outputs:
            if output.error is not None and output.name in self.predicted:
                yield explained(output, self.predicted[output.name])
        yield from () if self.device is None else self.device.lines
        yield from self.notes()
        yield test_of(self.tolerances)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data, version 1; NaN and infinities are None."""
        judgement = {"notes": list(self.notes()), "test": test_of(self.tolerances)}
        return {"version": VERSION} | self.verdict.to_dict() | judgement | Shown.to_dict(self)
