"""`convert`: from a float32 model and data to a low-precision model with a verdict, in one step."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Unpack, cast

from amp_rewrite import targets
from amp_rewrite.base import arguments
from amp_rewrite.base.progress import silent
from amp_rewrite.errors import OutOfTimeError, SaveError
from amp_rewrite.graph.io.load import Source
from amp_rewrite.graph.io.paths import path_text
from amp_rewrite.graph.io.read import read_model
from amp_rewrite.numerics.compare.distance import OutputComparison, Tolerances
from amp_rewrite.numerics.compare.verification import Verification
from amp_rewrite.numerics.compare.verify import (
    device_providers,
    origin_of,
    unfinished_after,
    verified,
)
from amp_rewrite.numerics.compare.verify_report import VerifyReport
from amp_rewrite.numerics.conversion_report import Conversion
from amp_rewrite.numerics.emulate.typed_model import TypedModel
from amp_rewrite.numerics.inputs.batches import Data
from amp_rewrite.numerics.made_up_inputs import make_inputs
from amp_rewrite.numerics.ranges.calibrate import Calibration, calibrate
from amp_rewrite.numerics.ranges.calibrated_options import with_calibration
from amp_rewrite.numerics.repaint.repaint import Repainter, read_lists
from amp_rewrite.numerics.scaled_conversion import (
    has_outliers,
    proved_rewrite,
    scaled_conversion,
)
from amp_rewrite.numerics.search.harmful_constants import harmful_constants, rules_for
from amp_rewrite.numerics.search.rounding_estimates import Estimate
from amp_rewrite.numerics.search.tolerance import Tolerance
from amp_rewrite.numerics.search.tune import tune
from amp_rewrite.numerics.search.tuning import Tuning
from amp_rewrite.oplists import NodeRule
from amp_rewrite.rewriting.api import (
    RewriteResult,
    rewrite,
    untold_estimates,
    warn_of_estimate,
)
from amp_rewrite.rewriting.plan.options import (
    KEEP,
    Changes,
    RewriteOptions,
    changed,
    with_option_names,
)
from amp_rewrite.rewriting.scaling.scaling import Scaling, Unscaled
from amp_rewrite.runtimes.ort.time_limit import time_limit

BUDGET = 600.0
"""Seconds for tuning."""

_CONSTANTS_SHARE = 0.3
"""The share of the budget that the search for harmful constants may take."""

_CALIBRATION_SHARE = 0.5
"""The share of the budget that calibrating may take."""

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
    warn: Progress | None = None,
    **changes: Unpack[Changes],
) -> Conversion:
    """Rewrite a model so that it holds on data: calibrate, rewrite, verify and, if needed, tune.

    Values that overflow on the data stay float32. If the outputs are not within the tolerance
    then, and the rounded weights alone, computed in float32, are not either, what reads a constant
    whose rounding alone does harm stays float32. If that is not enough, or a value inside
    overflows, the smallest set of nodes is looked for that has to stay float32 as well. Without
    data the model is rewritten and verified with made-up inputs, which take their place only where
    the rounded weights are to blame or a value inside overflows on them.

    Args:
        model: A path, an onnx_ir model or a ModelProto; never modified.
        data: Batches (input name -> array), .npz or .csv files, folders of .npz files;
            they are read several times, and kept in memory if the model has to be tuned.
        options: How to rewrite; None for the default options.
        rtol: The largest error of an output, relative to its largest magnitude; None for what
            `verify` asks for, a cosine of 0.999 and the same classes.
        budget: Seconds for all of it; the searches for harmful constants and for nodes get what
            calibrating and verifying leave, and verifying takes once more. Calibrating takes at
            most half of it. A model that was not verified on everything by then is in doubt.
        stress: Verify with stress inputs as well; None does so without data, and if `strict` is
            set.
        output: Where to write the rewritten model if it holds; a file of data that ends in .onnx is
            taken for it.
        progress: Called at the beginning of each step and of its parts.
        estimate: Ranks nodes for tuning in one pass over the data, as for `tune`.
        providers: Run the rewritten model itself on these execution providers as well, as for
            `verify`: what they compute must hold. None runs it on none.
        warn: Called before a search, if at all: the rounded weights alone exceed the tolerance.
        **changes: Single options by name, as for `rewrite`.

    Returns:
        The rewritten model and its verdict. `save` writes nothing that does not hold, that is in
        doubt, since the rounded weights alone are as far off, or in which nothing is low any more.

    Raises:
        VerdictError: It is to be written, and does not hold, is in doubt, or has nothing low left.
        StrictError: The option `strict` is set, and the rewrite is not complete.
        AmpError: The model, the data or an option is wrong, or ONNX Runtime is not installed.

    Examples:
        >>> data = [{"x": np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8)}]
        >>> conversion = amp.convert("model.onnx", data)
        >>> print(conversion.verdict)
        Passed on 1 batch of your data: ...
        >>> conversion.save("low.onnx")
    """
    chosen = changed(options, **changes)
    if isinstance(data, str | os.PathLike) and os.fspath(data).endswith(".onnx"):
        data, output = None, data if output is None else output
    rtol = _tolerance(rtol)
    seconds = "a positive number of seconds"
    budget = arguments.number("budget", budget, low=0, above=True, expected=seconds)
    progress = arguments.function("progress", progress)
    estimate = arguments.function("estimate", estimate)
    warn = arguments.function("warn", warn)
    stress = None if stress is None else arguments.switch("stress", stress)
    kept = cast("Data", [*data]) if isinstance(data, Iterator) else data
    stressed = data is None or chosen.strict if stress is None else stress
    devices = () if providers is None else device_providers(arguments.texts("providers", providers))
    job = _Job(model, kept, chosen, rtol, budget, stressed, progress or silent, estimate, devices)
    job.warn = warn or silent
    conversion = job.run()
    if output is not None:
        conversion.save(path_text(output, SaveError))
    return conversion


def judge(
    model: Source,
    result: RewriteResult,
    options: RewriteOptions,
    *,
    rtol: float | None = None,
    progress: Progress | None = None,
) -> Conversion:
    """Return a rewrite with its verdict on made-up and stress inputs.

    It is another rewrite than the one given if constants do harm, as for `convert`.

    Raises:
        AmpError: `rtol` is wrong, or ONNX Runtime is not installed.
    """
    rtol = _tolerance(rtol)
    return _Job(model, None, options, rtol, BUDGET, True, progress or silent).run(result)


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
    warn: Progress = silent
    last: Verification | None = None
    scaling: Scaling | None = None
    given: Source | None = None
    refused: tuple[Unscaled, ...] = ()
    started: float = field(default_factory=time.monotonic)
    takes: float = 0.0
    """Seconds that verifying took last, which comes behind a search once more."""

    def run(self, result: RewriteResult | None = None) -> Conversion:
        """Take the steps that are needed, the first of which may have been taken."""
        with untold_estimates():
            conversion = self._run(result)
        warn_of_estimate(conversion.result, stacklevel=5)
        return conversion

    def _run(self, result: RewriteResult | None) -> Conversion:
        if self.data is None:
            rewritten = rewrite(self.model, self.options) if result is None else result
            rewritten = proved_rewrite(self.model, rewritten, self.options)
            self._adopt(rewritten)
            first = self.judged(rewritten)
            return self._fit_to_made_up(first) or self._mend_failing(self.options, first)
        self.progress("calibrating")
        calibration = self._calibrated(self.data)
        options = self.options if calibration is None else self._add_rules(calibration)
        return self._mend_failing(options, self._rewrite_and_verify(options, calibration))

    def _calibrated(self, data: Data) -> Calibration | None:
        """Return what the data forbid, and go on with the scaled model if there is to be one.

        None if the time for that was over before one batch was seen.
        """
        lenient = replace(self.options, strict=False)
        try:
            with time_limit(self.started + self.budget * _CALIBRATION_SHARE):
                calibration = calibrate(self.model, data, lenient)
                self.options = replace(self.options, target=calibration.options.target)
                ruled = self._add_rules
                scaled = scaled_conversion(self.model, data, lenient, calibration, ruled)
        except OutOfTimeError:
            return None
        if isinstance(scaled, tuple):
            self.refused = scaled
        else:
            self.model, self.scaling, calibration = scaled.model, scaled.scaling, scaled.calibration
        return calibration

    def _fit_to_made_up(self, first: Conversion) -> Conversion | None:
        """Return what is made of a model that overflows on made-up inputs by what these reach.

        A model whose weights have outliers that leave the range is one, too, if it can be scaled.
        None if nothing overflows on them, or the result does not pass either.
        """
        verification, is_infinite = first.verification, bool(first.verification.infinities)
        if verification.unfinished is not None or self.options.only is not None:
            return None
        is_scalable = has_outliers(first.result, self.options)
        if not is_infinite and not is_scalable:
            return None
        self.progress("calibrating on made-up inputs")
        kept, last = (self.model, self.scaling, self.refused), self.last
        self.model, self.scaling = self.given or self.model, None  # bounds may scale too little
        calibration = self._calibrated(make_inputs(self.model, ranges=self.options.ranges).batches)
        if calibration is not None:
            conversion = self._rewrite_and_verify(self._add_rules(calibration), calibration)
            if conversion.ok and conversion.is_low and (is_infinite or self.scaling is not None):
                return conversion
        (self.model, self.scaling, self.refused), self.last = kept, last
        return None

    def _add_rules(self, calibration: Calibration) -> RewriteOptions:
        """Return the options with what a calibration forbids."""
        options = with_calibration(self.options, calibration)
        return replace(options, keep_io_types=_kept_ends(self.options, calibration.ends))

    def _adopt(self, result: RewriteResult) -> None:
        """Go on with the scaled model, if one was rewritten, in the place of the one given."""
        self.refused = result.refused
        if result.scaling is not None:
            self.given, self.scaling = self.model, result.scaling
            self.model = read_model(result.scaling.flat)

    def _mend_failing(self, options: RewriteOptions, first: Conversion) -> Conversion:
        """Keep float32 what a model that fails on the data needs: first by constants, then by runs.

        Without data that is done on the made-up inputs, where the rounded weights are to blame.
        """
        verification = first.verification
        if verification.unfinished is not None:
            return first  # nor is there time for a search
        is_beyond = any(not output.ok for output in verification.control)
        blames_weights = is_beyond or any(
            output.fault == "slice" for output in verification.outputs
        )
        is_fixed = options.only is not None  # nothing may become float32
        if (
            is_fixed
            or not _fails_on_data(verification)
            or not (blames_weights or self.data is not None)
        ):
            return first
        if is_beyond:
            self.warn(verification.control_beyond)
        conversion = self._without_harm(options, first) if blames_weights else first
        if not _fails_on_data(conversion.verification):
            is_vain = not conversion.is_low and first.doubt is not None
            return replace(first, vain=True) if is_vain else conversion
        options = _with_rules(options, conversion.constants)
        tuned = self._search_and_verify(options, conversion)
        doubtful = conversion if conversion.is_low and conversion.doubt is not None else first
        is_better = tuned.is_low and (tuned.ok or tuned.doubt is not None)
        if is_better or doubtful.doubt is None:
            return tuned
        return replace(doubtful, vain=True, vain_search=tuned.tuning)

    def _without_harm(self, options: RewriteOptions, first: Conversion) -> Conversion:
        """Keep float32 what reads constants whose rounding alone does harm, and verify again."""
        assert self.last is not None, "it was verified"
        feeds = self.last.worst_feeds
        if feeds is None:
            return first
        self.progress("looking for constants that rounding spoils")
        seconds = min(self.budget * _CONSTANTS_SHARE, self._seconds_left())
        constants = harmful_constants(self.last, feeds, seconds) if seconds > 0 else ()
        if not constants:
            return first
        painter = Repainter.of(self.model, replace(options, strict=False))
        rules = rules_for(painter, constants)
        return self._rewrite_and_verify(_with_rules(options, rules), first.calibration, None, rules)

    def _seconds_left(self) -> float:
        """Return the seconds of a search behind which there is time to verify within the budget."""
        return max(0.0, self.started + self.budget - self.takes - time.monotonic())

    def _search_and_verify(self, options: RewriteOptions, before: Conversion) -> Conversion:
        """Tune and verify; a trial rounds value by value, the written file by fused groups.

        A device rounds in its own way. What the file is further off than its trial is asked of the
        next search.
        """
        tolerance = self._search_tolerance()
        limit = tolerance.limit
        conversion = self._tuned_and_verified(options, before, tolerance)
        for _ in range(_MORE_SEARCHES):
            loss = 0.0 if conversion.tuning is None else conversion.tuning.loss
            outputs = _compared(conversion.verification)
            if self.rtol is None:
                error = 1 - min((o.cosine for o in outputs if o.cosine is not None), default=1.0)
            else:
                error = max((output.scaled_error for output in outputs), default=0.0)
            if not 0 < loss <= limit < error < math.inf or self._seconds_left() <= 0:
                break
            tolerance = replace(tolerance, limit=limit * loss / error)
            conversion = self._tuned_and_verified(options, before, tolerance)
        return conversion

    def _tuned_and_verified(
        self,
        options: RewriteOptions,
        before: Conversion,
        tolerance: Tolerance,
    ) -> Conversion:
        assert self.last is not None, "it was verified"
        data = [self.last.worst_feeds or {}] if self.data is None else self.data
        tuning = self._tune_model(
            replace(options, strict=False), data, tolerance, self._seconds_left()
        )
        options = _with_rules(options, tuning.rules)
        return self._rewrite_and_verify(options, before.calibration, tuning, before.constants)

    def _rewrite_and_verify(
        self,
        options: RewriteOptions,
        calibration: Calibration | None = None,
        tuning: Tuning | None = None,
        constants: tuple[NodeRule, ...] = (),
    ) -> Conversion:
        """Rewrite and verify; what is to be scaled was scaled before."""
        self.progress("rewriting")
        rewritten = rewrite(self.model, options, overflow=KEEP)
        result = replace(rewritten, options=options, scaling=self.scaling, refused=self.refused)
        return self.judged(result, calibration, tuning, constants)

    def judged(
        self,
        result: RewriteResult,
        calibration: Calibration | None = None,
        tuning: Tuning | None = None,
        constants: tuple[NodeRule, ...] = (),
    ) -> Conversion:
        """Verify what was rewritten."""
        self.progress("verifying")
        begins = time.monotonic()
        try:
            with time_limit(self.started + self.budget):
                run = self._verification(result)
                run.device(self.providers, asked=True)
                report = verified(
                    run,
                    self.data,
                    stress=self.stress,
                    input_ranges=self.options.ranges,
                    progress=self.progress,
                )
        except OutOfTimeError:  # no model was loaded
            return Conversion(result, self._unverified_report(), calibration, tuning, {}, constants)
        self.last, self.takes = run, time.monotonic() - begins
        return Conversion(result, report, calibration, tuning, run.shapes, constants)

    def _unverified_report(self) -> VerifyReport:
        """Return what is known of a model for whose verification no time was left."""
        low, target = self.options.low, self.options.chosen_target
        tolerances, unfinished = Tolerances.of(low, self.rtol), unfinished_after(0, self.data)
        origin = origin_of(self.data, 0)
        return VerifyReport(
            low.name, 0, origin, tolerances, (), target=target, unfinished=unfinished
        )

    def _verification(self, result: RewriteResult) -> Verification:
        tolerances = Tolerances.of(self.options.low, self.rtol)
        target = targets.find(result.options.chosen_target)
        before, after = TypedModel.of(self.model), TypedModel.of(result.model)
        return Verification(before, after, tolerances, target, threads=0, inside=True)

    def _search_tolerance(self) -> Tolerance:
        if self.rtol is None:
            return Tolerance.default("cosine", self.options.low.rtol)
        return Tolerance("max-relative", self.rtol)

    def _tune_model(
        self, options: RewriteOptions, data: Data, tolerance: Tolerance, budget: float
    ) -> Tuning:
        self.progress("tuning")
        tuning = tune(
            self.model,
            data,
            tolerance,
            options,
            budget=budget,
            progress=lambda step: self.progress(f"tuning: {step.trials} trials"),
            warn=self.progress,
            estimate=self.estimate,
        )
        return replace(tuning, seconds=self.budget)  # of which `budget` is what was left


def _with_rules(options: RewriteOptions, rules: Sequence[NodeRule]) -> RewriteOptions:
    """Return options whose lists have more rules about nodes."""
    lists = read_lists(options)
    return replace(options, lists=replace(lists, node_rules=(*lists.node_rules, *rules)))


def _kept_ends(options: RewriteOptions, ends: Iterable[str]) -> bool | tuple[str, ...]:
    """Return `keep_io_types` with the inputs and outputs that overflow."""
    kept = options.keep_io_types
    if kept is True:
        return True
    names = (*(kept or ()), *ends)
    return names or False


def _fails_on_data(report: VerifyReport) -> bool:
    """Tell whether more in float32 could help: tuning looks at the data, not at stress inputs."""
    return bool(report.infinities) or not all(output.ok for output in _compared(report))


def _compared(report: VerifyReport) -> tuple[OutputComparison, ...]:
    """Return the errors of outputs that more in float32 may make smaller: emulated, and there.

    Those on a device that computes the float32 original wrong as well are none of them.
    """
    device = report.device
    if device is None or not device.asked or any(not output.ok for output in device.itself):
        return report.outputs
    return (*report.outputs, *device.original)


def _tolerance(rtol: float | None) -> float | None:
    if rtol is None:
        return None
    return arguments.number("rtol", rtol, low=0, expected="a number of at least 0")
