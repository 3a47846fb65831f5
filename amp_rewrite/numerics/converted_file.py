"""A model's file becomes a rewritten file, with the verdict that was asked for.

What verifies, tunes and moves opsets is loaded when it is needed: most conversions only rewrite.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from amp_rewrite.dtypes import BFLOAT16
from amp_rewrite.errors import AmpError, AmpWarning, OptionError, RuntimeMissingError, StrictError
from amp_rewrite.graph.elements import tensor
from amp_rewrite.graph.io.judged_file import judged_by
from amp_rewrite.graph.io.model_files import Path as PathLike
from amp_rewrite.graph.io.model_files import Progress as Writing
from amp_rewrite.graph.step_metadata import step_description
from amp_rewrite.kernels.kernel_table import table_of
from amp_rewrite.rewriting.api import RewriteResult, rewrite, rewrite_freely
from amp_rewrite.rewriting.plan.options import AUTO, KEEP, RewriteOptions
from amp_rewrite.targets import SCHEMA, Target, find

if TYPE_CHECKING:
    from amp_rewrite.graph.io.load import Source
    from amp_rewrite.numerics.conversion_report import Conversion
    from amp_rewrite.numerics.raise_opset import RaisedModel
    from amp_rewrite.numerics.search.rounding_estimates import Estimate
    from amp_rewrite.rewriting.report.rewrite_report import Report

Progress = Callable[..., None]

_LARGEST = 1 << 31
"""Bytes of the largest weights of a model that is run twice without being asked for."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is asked of a conversion besides the rewrite.

    Attributes:
        data: Files to calibrate on, verify with and, if needed, tune on.
        verify: Whether the result is verified, without data on made-up inputs.
        stress: Whether stress inputs are tried; None is so with `strict`.
        rtol: The largest error; None for what `verify` asks for.
        budget: Seconds for tuning.
        write_failed: Whether the model is written even if it does not hold.
        opset: The opset that the model is moved to first: a number, "auto" or "keep".
        estimate: What ranks nodes for tuning, as for `tune`.
        provider: The execution provider that the result is run on as well, if any.
        warn: Called before a search for what has to stay float32, as for `convert`.
    """

    data: Sequence[Path] = ()
    verify: bool = False
    stress: bool | None = None
    rtol: float | None = None
    budget: float
    write_failed: bool = False
    opset: str = AUTO
    estimate: Estimate | None = None
    provider: str | None = None
    warn: Callable[[str], None] | None = None

    @property
    def converts(self) -> bool:
        """Whether there is more to do than to rewrite and look."""
        return bool(self.data or self.verify or self.stress or self.provider)

    def check(self, *, verifies: bool) -> None:
        """Refuse what is said about a verdict where there is none.

        Raises:
            OptionError: Something is.
        """
        options_given = {"--rtol": self.rtol is not None, "--write-failed": self.write_failed}
        for name, is_given in options_given.items():
            if is_given and not verifies:
                raise OptionError(
                    f"{name} has no effect without verification",
                    remedy="add --data, --verify, --stress or --strict",
                )


@dataclass(frozen=True)
class FileConversion:
    """What became of a file.

    Attributes:
        model: The file.
        asked: What was asked for.
        result: The rewrite.
        made: Its verdict, if there is one.
        missing: What `strict` misses, if anything.
        raised: The model under a newer opset, if it was moved to one.
    """

    model: Path
    asked: Asked
    result: RewriteResult
    made: Conversion | None
    missing: StrictError | None
    raised: RaisedModel | None

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against the result."""
        if self.missing is not None:
            return False
        return self.made is None or self.made.writable

    @property
    def in_doubt(self) -> bool:
        """Whether nothing but what its rounded weights bring alone speaks against the result."""
        return self.missing is None and self.made is not None and self.made.doubt is not None

    @property
    def nothing_left(self) -> bool:
        """Whether what was measured left nothing low."""
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
        from amp_rewrite.numerics.raise_opset import with_gain

        return with_gain(self.raised, report, self.model, self.result.options)

    def save(self, path: PathLike, progress: Writing | None = None) -> None:
        """Write the result; if there is a verdict, ONNX Runtime has to load the file first.

        Raises:
            UnloadableError: It does not load; nothing was written.
            SaveError: It cannot be written; no new file is left behind.
        """
        if self.made is None:
            self.result.save(path, progress=progress)
            return
        from amp_rewrite.numerics.load_judge import LoadJudge  # most conversions only rewrite

        target = self.result.options.chosen_target
        with judged_by(LoadJudge(self.made, target, insists=self.asked.write_failed)):
            self.result.save(path, progress=progress)

    @property
    def source(self) -> Source:
        """The model that was rewritten."""
        return self.model if self.raised is None else self.raised.model

    def to_json(self, report: Report) -> str:
        """Return a report as JSON text, with the verdict if there is one."""
        return report.to_json() if self.made is None else self.made.to_json(report)


def convert_file(
    model: Path, options: RewriteOptions, asked: Asked, progress: Progress
) -> FileConversion:
    """Rewrite a model's file, and verify the result where that is asked for.

    `strict` asks for it as well, but not of a training step, whose outputs are the next states.

    Raises:
        AmpError: The model, the data or an option is wrong, or ONNX Runtime is not installed.
    """
    judged = options.strict and asked.stress is None
    asked.check(verifies=asked.converts or judged)
    raised = raised_model(model, asked.opset, options)
    source = model if raised is None else raised.model
    conversion = None
    try:
        if asked.converts:
            conversion = _convert_source(source, options, asked, progress)
        result = rewrite(source, options) if conversion is None else conversion.result
        if conversion is None and judged:
            conversion = _judge_strictly(source, result, asked, progress)
    except StrictError as error:
        return FileConversion(model, asked, error.result, None, error, raised)
    return FileConversion(
        model, asked, result if conversion is None else conversion.result, conversion, None, raised
    )


def _convert_source(
    model: Source, options: RewriteOptions, asked: Asked, progress: Progress
) -> Conversion:
    from amp_rewrite.numerics.convert_model import convert

    return convert(
        model,
        asked.data or None,
        options,
        rtol=asked.rtol,
        budget=asked.budget,
        stress=asked.stress,
        progress=progress,
        estimate=asked.estimate,
        providers=None if asked.provider is None else [asked.provider],
        warn=asked.warn,
    )


def _judge_strictly(
    model: Source, result: RewriteResult, asked: Asked, progress: Progress
) -> Conversion | None:
    """Return the verdict that `strict` asks for; None for a training step."""
    if step_description(result.flat):
        asked.check(verifies=False)
        return None
    from amp_rewrite.numerics.convert_model import judge

    try:
        return judge(model, result, result.options, rtol=asked.rtol, progress=progress)
    except RuntimeMissingError as error:
        raise RuntimeMissingError(
            "--strict verifies the result, for which ONNX Runtime is not installed",
            remedy="pip install 'amp-rewrite[cpu]', or leave the verification out: --no-stress",
        ) from error


def raised_model(model: Path, opset: str, options: RewriteOptions) -> RaisedModel | None:
    """Return a model at the opset that was asked for, or None for the one that it has.

    `auto` moves a model that becomes bfloat16 where a newer opset lets more of it be low, the
    target has the kernels, and the moved model gives the same outputs in float32: Conv, Resize and
    most of vision and audio take bfloat16 since opset 22 only. What the target would cut off is
    computed into weights then. So it does where a target's float16 kernels begin at an opset.

    Raises:
        AmpError: A number was asked for, and the model cannot be moved there.
    """
    if opset == KEEP:
        return None
    if opset != AUTO:
        return _move_opset(model, _number(opset), options)
    advised = _advised_opset(model, options)
    if advised is None:
        return None
    try:
        raised = _move_opset(model, advised, options)
    except AmpError:
        return None
    return raised if raised.unverified is None and raised.opset != raised.before else None


def _number(opset: str) -> int:
    try:
        return int(opset)
    except ValueError as error:
        raise OptionError(
            "--opset is no opset", found=opset, expected=f"a number, {AUTO} or {KEEP}"
        ) from error


def _may_move(options: RewriteOptions) -> bool:
    """Tell whether any model is moved to another opset without being asked for."""
    return options.precision == BFLOAT16.name or find(options.chosen_target).opset is not None


def _advised_opset(model: Path, options: RewriteOptions) -> int | None:
    """Return the opset to which a model is worth being moved without being asked for."""
    if not _may_move(options) or options.chosen_target == SCHEMA:
        return None
    with warnings.catch_warnings(action="ignore", category=AmpWarning):  # the rewrite says it all
        result = rewrite_freely(model, replace(options, strict=False))
    flat = result.flat
    if flat.files.total > _LARGEST:
        return None
    if step_description(flat):
        return None
    target = find(options.chosen_target)
    if target.opset is not None:
        return target.opset if _has_more_kernels(result, options, target) else None
    advice = result.report.opset_advice
    if advice is not None and not advice.lost:
        return advice.opset
    return None


def _has_more_kernels(result: RewriteResult, options: RewriteOptions, target: Target) -> bool:
    """Tell whether a target has a kernel for a model's operator at its own opset only."""
    kernels, flat, before = table_of(target), result.flat, result.report.opset
    if kernels is None or target.opset is None or before >= target.opset:
        return False
    types = {"T": tensor(options.low.number)}
    called = {flat.called(node)[:2] for node in range(flat.n_nodes)}
    return any(
        not domain
        and kernels.has_kernel("", op, target.opset, types)
        and not kernels.has_kernel("", op, before, types)
        for domain, op in called
    )


def _move_opset(model: Path, opset: int, options: RewriteOptions) -> RaisedModel:
    from amp_rewrite.numerics.raise_opset import raise_opset

    return raise_opset(model, opset, inline_functions=options.inline_functions)
