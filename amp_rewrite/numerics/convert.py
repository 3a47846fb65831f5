"""`convert`: from a float32 model and data to a low-precision model with a verdict, in one step."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Unpack, cast

from amp_rewrite import targets
from amp_rewrite.base import arguments
from amp_rewrite.errors import SaveError
from amp_rewrite.graph.io.load import Source
from amp_rewrite.graph.io.paths import path_text
from amp_rewrite.numerics.compare.distance import Tolerances
from amp_rewrite.numerics.compare.verification import Verification
from amp_rewrite.numerics.compare.verify import device_providers, verified
from amp_rewrite.numerics.compare.verify_report import VerifyReport
from amp_rewrite.numerics.conversion import Conversion
from amp_rewrite.numerics.emulate.typed_model import TypedModel
from amp_rewrite.numerics.inputs.batches import Data
from amp_rewrite.numerics.ranges.calibrate import Calibration, calibrate
from amp_rewrite.numerics.repaint.repaint import read_lists
from amp_rewrite.numerics.search.front import Estimate
from amp_rewrite.numerics.search.tolerance import Tolerance
from amp_rewrite.numerics.search.tune import tune
from amp_rewrite.numerics.search.tuning import Tuning
from amp_rewrite.oplists import NodeRule
from amp_rewrite.rewriting.api import RewriteResult, rewrite
from amp_rewrite.rewriting.plan.options import Changes, RewriteOptions, changed, with_option_names

BUDGET = 600.0
"""Seconds for tuning."""

_MORE_SEARCHES = 2
"""How often `tune` runs again at most, told by how much its trial was more exact than the file."""

Progress = Callable[[str], None]
"""Called with what is being done, in a few words."""


@with_option_names
def convert(
    model: Source,
    data: Data | None = None,
    options: RewriteOptions | None = None,
    *,
    rtol: float | None = None,
    budget: float = BUDGET,
    stress: bool | None = None,
    output: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    estimate: Estimate | None = None,
    providers: Sequence[str] | None = None,
    **changes: Unpack[Changes],
) -> Conversion:
    """Rewrite a model so that it holds on data: calibrate, rewrite, verify and, if needed, tune.

    Values that overflow on the data stay float32. If the outputs are not within the tolerance
    then, or a value inside overflows, the smallest set of nodes is looked for that has to stay
    float32 as well, or, on a target whose costs were measured, the fastest painting that holds; not
    so if no tolerance was given and the rounded weights alone, computed in float32, are as far off:
    then the verdict says so. Without data the model is rewritten and verified with made-up inputs.

    Args:
        model: A path, an onnx_ir model or a ModelProto; never modified.
        data: Batches (mappings from input names to arrays), or .npz files and folders of them;
            they are read several times, and kept in memory if the model has to be tuned.
        options: How to rewrite; None for the default options.
        rtol: The largest error of an output, relative to its largest magnitude; None for what
            `verify` asks for, a cosine of 0.999 and the same classes.
        budget: Seconds for tuning.
        stress: Verify with stress inputs as well; None does so without data, and if `strict` is
            set.
        output: Where to write the rewritten model if it holds; a file of data that ends in .onnx is
            taken for it.
        progress: Called at the beginning of each step and of its parts.
        estimate: Ranks nodes for tuning in one pass over the data, as for `tune`.
        providers: Run the rewritten model itself on these execution providers as well, as for
            `verify`: what they compute must hold. None runs it on none.
        **changes: Single options by name, as for `rewrite`.

    Returns:
        The rewritten model and its verdict. `save` writes nothing that does not hold, unless the
        rounded weights alone are as far off: the verdict names that doubt.

    Raises:
        VerdictError: It is to be written, and does not hold.
        StrictError: The option `strict` is set, and the rewrite is not complete.
        AmpError: The model, the data or an option is wrong, or ONNX Runtime is not installed.
    """
    chosen = changed(options, **changes)
    if isinstance(data, str | os.PathLike) and os.fspath(data).endswith(".onnx"):
        data, output = None, data if output is None else output
    rtol = _tolerance(rtol)
    seconds = "a positive number of seconds"
    budget = arguments.number("budget", budget, low=0, above=True, expected=seconds)
    progress = arguments.function("progress", progress)
    estimate = arguments.function("estimate", estimate)
    stress = None if stress is None else arguments.switch("stress", stress)
    kept = cast("Data", [*data]) if isinstance(data, Iterator) else data
    stressed = data is None or chosen.strict if stress is None else stress
    devices = () if providers is None else device_providers(arguments.texts("providers", providers))
    job = _Job(model, kept, chosen, rtol, budget, stressed, progress or _silent, estimate, devices)
    made = job.run()
    if output is not None:
        made.save(path_text(output, SaveError))
    return made


def judge(
    model: Source,
    result: RewriteResult,
    options: RewriteOptions,
    *,
    rtol: float | None = None,
    progress: Progress | None = None,
) -> Conversion:
    """Return a rewrite with its verdict on made-up and stress inputs.

    Raises:
        AmpError: `rtol` is wrong, or ONNX Runtime is not installed.
    """
    rtol = _tolerance(rtol)
    return _Job(model, None, options, rtol, BUDGET, True, progress or _silent).judged(result)


@dataclass
class _Job:
    """One call of `convert`."""

    model: Source
    data: Data | None
    options: RewriteOptions
    rtol: float | None
    budget: float
    stress: bool
    progress: Progress
    estimate: Estimate | None = None
    providers: tuple[str, ...] = ()

    def run(self) -> Conversion:
        """Take the steps that are needed."""
        if self.data is None:
            return self._rewritten(self.options, None, None)
        self.progress("calibrating")
        lenient = replace(self.options, strict=False)
        calibration = calibrate(self.model, self.data, lenient)
        self.options = replace(self.options, target=calibration.options.target)
        options = _with_rules(self.options, calibration.rules)
        options = replace(options, keep_io_types=_kept(self.options, calibration.ends))
        first = self._rewritten(options, calibration, None)
        if not _fails_on_data(first.verification) or first.doubt is not None:
            return first
        return self._searched(options, calibration, self.data)

    def _searched(
        self, options: RewriteOptions, calibration: Calibration, data: Data
    ) -> Conversion:
        """Tune and verify; a trial rounds value by value, the written file by fused groups.

        What the file is further off than its trial is asked of the next search, if there is a limit
        that both are held against.
        """
        ends = time.monotonic() + self.budget
        tolerance = self._search_tolerance()
        made = self._tuned_and_verified(options, calibration, data, tolerance, self.budget)
        for _ in range(_MORE_SEARCHES):
            loss = 0.0 if made.tuning is None else made.tuning.loss
            error = max((output.scaled_error for output in made.verification.outputs), default=0.0)
            left = ends - time.monotonic()
            if self.rtol is None or not 0 < loss <= self.rtol < error < math.inf or left <= 0:
                break
            tolerance = replace(tolerance, limit=self.rtol * loss / error)
            made = self._tuned_and_verified(options, calibration, data, tolerance, left)
        return made

    def _tuned_and_verified(
        self,
        options: RewriteOptions,
        calibration: Calibration,
        data: Data,
        tolerance: Tolerance,
        budget: float,
    ) -> Conversion:
        tuning = self._tuned(replace(options, strict=False), data, tolerance, budget)
        return self._rewritten(_with_rules(options, tuning.rules), calibration, tuning)

    def _rewritten(
        self, options: RewriteOptions, calibration: Calibration | None, tuning: Tuning | None
    ) -> Conversion:
        """Rewrite and verify."""
        self.progress("rewriting")
        return self.judged(rewrite(self.model, options), calibration, tuning)

    def judged(
        self,
        result: RewriteResult,
        calibration: Calibration | None = None,
        tuning: Tuning | None = None,
    ) -> Conversion:
        """Verify what was rewritten."""
        self.progress("verifying")
        run = self._verification(result)
        run.device(self.providers, asked=True)
        report = verified(
            run,
            self.data,
            stress=self.stress,
            input_ranges=self.options.ranges,
            progress=self.progress,
        )
        return Conversion(result, report, calibration, tuning, run.shapes)

    def _verification(self, result: RewriteResult) -> Verification:
        tolerances = Tolerances.of(self.options.low, self.rtol)
        target = targets.find(result.options.chosen_target)
        before, after = TypedModel.of(self.model), TypedModel.of(result.model)
        return Verification(before, after, tolerances, target, threads=0, inside=True)

    def _search_tolerance(self) -> Tolerance:
        if self.rtol is None:
            return Tolerance.default("cosine", self.options.low.rtol)
        return Tolerance("max-relative", self.rtol)

    def _tuned(
        self, options: RewriteOptions, data: Data, tolerance: Tolerance, budget: float
    ) -> Tuning:
        self.progress("tuning")
        return tune(
            self.model,
            data,
            tolerance,
            options,
            budget=budget,
            progress=lambda step: self.progress(f"tuning: {step.trials} trials"),
            warn=self.progress,
            estimate=self.estimate,
        )


def _with_rules(options: RewriteOptions, rules: Sequence[NodeRule]) -> RewriteOptions:
    """Return options whose lists have more rules about nodes."""
    lists = read_lists(options)
    return replace(options, lists=replace(lists, node_rules=(*lists.node_rules, *rules)))


def _kept(options: RewriteOptions, ends: Iterable[str]) -> bool | tuple[str, ...]:
    """Return `keep_io_types` with the inputs and outputs that overflow."""
    kept = options.keep_io_types
    if kept is True:
        return True
    names = (*(kept or ()), *ends)
    return names or False


def _fails_on_data(report: VerifyReport) -> bool:
    """Tell whether more in float32 could help: tuning looks at the data, not at stress inputs."""
    return bool(report.infinities) or not all(output.ok for output in report.outputs)


def _tolerance(rtol: float | None) -> float | None:
    if rtol is None:
        return None
    return arguments.number("rtol", rtol, low=0, expected="a number of at least 0")


def _silent(_: str) -> None:
    pass
