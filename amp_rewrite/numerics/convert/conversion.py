"""The result of `convert`: the rewritten model, and whether it passes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from amp_rewrite.base import arguments
from amp_rewrite.base.printable import counted
from amp_rewrite.errors import OptionError, VerdictError
from amp_rewrite.graph.flat import FlatGraph
from amp_rewrite.graph.io.model_files import Path, Progress, judged_by
from amp_rewrite.graph.sizes import Shape
from amp_rewrite.numerics.compare.verdict import Verdict
from amp_rewrite.numerics.compare.verify_report import VerifyReport
from amp_rewrite.numerics.convert.upgrade import RaisedModel, with_gain
from amp_rewrite.numerics.ranges.calibrate import Calibration
from amp_rewrite.rewriting.api import RewriteResult
from amp_rewrite.rewriting.report.records import Shown
from amp_rewrite.rewriting.report.rewrite_report import Report
from amp_rewrite.runtimes.ort.isolated_load import LoadJudge

if TYPE_CHECKING:
    from amp_rewrite.numerics.budget.tuning import Tuning

_NOTHING_LEFT = 3
"""The exit status of a conversion after which nothing is in 16 bits."""


@dataclass(frozen=True, repr=False)
class Conversion(Shown):
    """A rewritten model with its verdict.

    Attributes:
        result: The rewrite, under the rules that were found.
        verification: The comparison with the original.
        calibration: The values that do not fit on the data; None without data.
        kept: What the error budget keeps float32; None if it was not needed or measured.
        shapes: The shapes of the first verified batch, by the names of values.
        vain: Whether it is in doubt, and a mix that passes has nothing in 16 bits.
        raised: The model at a newer opset, if it was upgraded.
        given: The model as it was read, if it was upgraded.
        wide_inputs: The inputs that stay float32 because nothing passes with 16-bit ones.
    """

    result: RewriteResult
    verification: VerifyReport
    calibration: Calibration | None
    kept: Tuning | None
    shapes: Mapping[str, Shape]
    vain: bool = False
    raised: RaisedModel | None = None
    given: FlatGraph | None = None
    wide_inputs: tuple[str, ...] = ()

    @property
    def model(self) -> ir.Model:
        """The rewritten model."""
        return self.result.model

    @cached_property
    def report(self) -> Report:
        """The report of the rewrite, with the bytes that casts moved on that batch."""
        report = self.result.report_of_run(self.shapes)
        if self.raised is None or self.given is None:
            return report
        return with_gain(self.raised, report, self.given, self.result.options)

    @property
    def ok(self) -> bool:
        """Whether the rewritten model passes, and something of it is in 16 bits."""
        return self.verdict.ok

    @property
    def is_low(self) -> bool:
        """Whether anything of it computes in 16 bits."""
        return self.result.plan.computes_low

    @property
    def nothing_left(self) -> str | None:
        """Why there is nothing to write: no part is in 16 bits, nor was one; None if one is."""
        measured = self.kept or (self.calibration is not None and self.calibration.rules)
        unchanged = not self.result.changed and not self.result.report.summary.nodes_low_before
        if self.is_low or not (measured or unchanged):
            return None
        precision = self.result.options.precision
        if not measured:
            return f"nothing becomes {precision}: `explain` says why, node by node"
        limits = self.verification.tolerances
        within = f" rtol {max(limits.rtol, limits.atol):g}" if limits.strict else ""
        return f"nothing left in {precision}: found no mix that passes{within}"

    @property
    def verdict(self) -> Verdict:
        """The verdict of `verify`, and what the conversion took."""
        found, left = self.verification.verdict, self.nothing_left
        notes = [] if left is None or found.ok else [left]
        if left is not None and found.ok:
            found = replace(found, status="failed", failures=(left,))
        left_out = self.verification.left_out
        notes += [f"{counted(len(left_out), 'feed')} left out"] if left_out else []
        return replace(found, notes=(*notes, *self._steps()))

    def lines(self) -> Iterator[str]:
        """Yield the verdict, what was gained, and what stays float32."""
        yield from self.verdict.lines()
        yield from self.report.lines(headed=self.nothing_left is None)

    def to_dict(self, report: Report | None = None) -> dict[str, Any]:
        """Return the report of the rewrite, or a form of it, with the verdict as another key."""
        if not isinstance(report, Report | None):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
            raise OptionError(
                "not a report of a rewrite", found=f"an object of type {type(report).__name__}"
            )
        verdict = {
            **self.verdict.to_dict(),
            "text": str(self.verdict),
            "nothing_left": self.nothing_left,
            **({} if self.nothing_left is None else {"exit_status": _NOTHING_LEFT}),
            "calibrated": None if self.calibration is None else list(self.calibration.nodes),
            "kept": None if self.kept is None else [rule.node for rule in self.kept.rules],
            "verification": self.verification.to_dict(),
        }
        return {**(report or self.report).to_dict(), "verdict": verdict}

    def to_json(self, report: Report | None = None) -> str:
        """Return the same as JSON text."""
        return json.dumps(self.to_dict(report), indent=1, ensure_ascii=False)

    def save(
        self, path: Path, *, write_failed: bool = False, progress: Progress | None = None
    ) -> None:
        """Write the rewritten model if it passed, and ONNX Runtime loads the file.

        Args:
            path: The model file; external data go to a file next to it.
            write_failed: Write it even if it failed, or is in doubt.
            progress: Called every few MiB.

        Raises:
            VerdictError: It failed, is in doubt, or has nothing in 16 bits.
            UnloadableError: ONNX Runtime does not load the file; nothing was written.
            SaveError: It cannot be written; no new file is left behind.
        """
        if not (arguments.switch("write_failed", write_failed) or self.ok):
            verdict, left = self.verdict, self.nothing_left
            doubts = (f"{verdict.status}: {line}" for line in verdict.doubts)
            objections = (*(() if left is None else (left,)), *verdict.failures, *doubts)
            raise VerdictError(tuple(dict.fromkeys(objections)), self)
        target = self.result.options.chosen_target
        with judged_by(LoadJudge(self, target, insists=write_failed)):
            self.result.save(path, progress=progress)

    def _steps(self) -> list[str]:
        steps: list[str] = []
        if self.wide_inputs:
            named = ", ".join(self.wide_inputs)
            steps.append(f"{named}: float32, for nothing passes with 16-bit inputs")
        if self.calibration is not None:
            batches = self.calibration.batches
            total = self.calibration.total or batches
            part = "" if batches == total else f" on {batches} of {total} batches"
            if part or self.calibration.nodes:
                kept = counted(len(self.calibration.nodes), "node")
                steps.append(f"calibration{part} keeps {kept} float32")
        if self.kept is not None:
            steps.append(
                f"the error budget keeps {counted(len(self.kept.rules), 'more node')} float32"
            )
        if self.vain:
            steps.append(f"the mix that passes has nothing in {self.result.options.precision}")
        return steps
