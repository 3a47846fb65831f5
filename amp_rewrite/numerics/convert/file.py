"""A model's file becomes a rewritten file, with the verdict that was asked for.

What verifies, tunes and upgrades models is loaded when it is needed: most conversions only rewrite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from amp_rewrite.base import arguments
from amp_rewrite.errors import RuntimeMissingError, StrictError
from amp_rewrite.graph.flat import FlatGraph
from amp_rewrite.graph.io.model_files import Path as PathLike
from amp_rewrite.graph.io.model_files import Progress as Writing
from amp_rewrite.graph.step_metadata import step_description
from amp_rewrite.numerics.convert.opset import upgraded
from amp_rewrite.rewriting.api import RewriteResult, rewrite
from amp_rewrite.rewriting.plan.options import AUTO, KEEP, RewriteOptions
from amp_rewrite.rewriting.read_source import read_source

if TYPE_CHECKING:
    from amp_rewrite.numerics.convert.conversion import Conversion
    from amp_rewrite.numerics.convert.upgrade import RaisedModel
    from amp_rewrite.rewriting.report.rewrite_report import Report

Progress = Callable[..., None]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The checks that are requested besides the rewrite: options of `amp-rewrite convert`.

    `seconds` is the time for all of them; None for ten minutes.
    """

    data: Sequence[Path] = ()
    verify: bool = False
    stress: bool | None = None
    rtol: float | None = None
    seconds: float | None = None
    write_failed: bool = False
    opset: str = AUTO
    provider: str | None = None

    @property
    def converts(self) -> bool:
        """Whether there is more to do than to rewrite and look."""
        return bool(self.data or self.verify or self.stress or self.provider)

    @property
    def budget(self) -> float:
        """The time for all checks, in seconds."""
        return self.seconds or 600.0

    def check(self, *, verifies: bool) -> None:
        """Refuse options about a verdict if there is none."""
        given = {
            "--rtol": self.rtol,
            "--budget": self.seconds,
            "--write-failed": self.write_failed,
        }
        if not verifies:
            remedy = "add --data, --verify, --stress or --strict"
            arguments.refuse(given, "has no effect without verification", remedy)


@dataclass(frozen=True)
class FileConversion:
    """The outcome for a file.

    Attributes:
        made: The rewrite with its verdict, if there is one.
        missing: The shortcomings that `strict` refuses, if any.
        given: The model as it was read.
        raised: The model at a newer opset, if it was upgraded.
    """

    model: Path
    asked: Asked
    result: RewriteResult
    made: Conversion | None
    missing: StrictError | None
    given: FlatGraph
    raised: RaisedModel | None

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against the result."""
        if self.missing is not None:
            return False
        return self.made is None or self.made.ok

    @property
    def nothing_left(self) -> bool:
        """Whether nothing is left in 16 bits by what was measured."""
        return self.made is not None and self.made.nothing_left is not None

    @property
    def is_written(self) -> bool:
        """Whether the result is to be written, if anything is."""
        return self.missing is None and (self.holds or self.asked.write_failed)

    def report(self, lengths: Mapping[str, int]) -> Report:
        """Return the report, with the sizes of `lengths`, else of the verified run, if any."""
        if lengths:
            report = self.result.report_of_sizes(lengths)
        else:
            report = self.result.report if self.made is None else self.made.report
        if self.raised is None:
            return report
        from amp_rewrite.numerics.convert.upgrade import with_gain

        return with_gain(self.raised, report, self.given, self.result.options)

    def save(
        self, path: PathLike, progress: Writing | None = None, *, annotate: bool = False
    ) -> None:
        """Write the result, as `Conversion.save` does if there is a verdict."""
        if annotate:
            self.result.annotate()
        if self.made is None:
            self.result.save(path, progress=progress)
        else:
            self.made.save(path, write_failed=self.asked.write_failed, progress=progress)

    def to_json(self, report: Report) -> str:
        """Return a report as JSON text, with the verdict if there is one."""
        return report.to_json() if self.made is None else self.made.to_json(report)


def convert_file(
    model: Path, options: RewriteOptions, asked: Asked, progress: Progress
) -> FileConversion:
    """Rewrite a model's file, and verify the result if that is asked for, also by `strict`."""
    strictly = options.strict and asked.stress is None
    asked.check(verifies=asked.converts or strictly)
    given = read_source(model, inline_functions=options.inline_functions)
    flat, raised = upgraded(given, asked.opset, options)
    if step_description(flat):  # its outputs are new states
        strictly = False
        asked.check(verifies=asked.converts)
    conversion = None
    try:
        if asked.converts or strictly:
            from amp_rewrite.numerics.convert.convert import convert

            conversion = convert(
                flat,
                asked.data or None,
                options,
                rtol=asked.rtol,
                budget=asked.budget,
                stress=asked.stress,
                progress=progress,
                providers=None if asked.provider is None else [asked.provider],
                opset=KEEP,
            )
        result = rewrite(flat, options) if conversion is None else conversion.result
    except StrictError as error:
        return FileConversion(model, asked, error.result, None, error, given, raised)
    except RuntimeMissingError as error:
        if asked.converts:
            raise
        raise RuntimeMissingError(
            "--strict verifies the result, for which ONNX Runtime is not installed",
            remedy="pip install onnxruntime, or leave the verification out: --no-stress",
        ) from error
    return FileConversion(model, asked, result, conversion, None, given, raised)
