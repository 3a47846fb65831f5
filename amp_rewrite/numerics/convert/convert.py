"""`convert`: from a float32 model and data to a 16-bit model with a verdict, in one step."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Unpack, cast

from amp_rewrite.base import arguments
from amp_rewrite.base.progress import silent
from amp_rewrite.errors import SaveError
from amp_rewrite.graph.io.load import Source
from amp_rewrite.graph.io.paths import path_text
from amp_rewrite.numerics.compare.verify import device_providers
from amp_rewrite.numerics.convert.conversion import Conversion
from amp_rewrite.numerics.convert.judge import fails_on_data, judged, tried
from amp_rewrite.numerics.convert.opset import upgraded
from amp_rewrite.numerics.convert.scale import measured, proved_rewrite
from amp_rewrite.numerics.convert.work import BUDGET, Progress, Terms, Trial, Work
from amp_rewrite.numerics.inputs.batches import Data
from amp_rewrite.rewriting.api import (
    rewrite_as_found,
    untold_estimates,
    warn_of_estimate,
)
from amp_rewrite.rewriting.plan.options import (
    AUTO,
    Changes,
    RewriteOptions,
    changed,
    with_option_names,
)
from amp_rewrite.rewriting.read_source import read_source


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
    providers: Sequence[str] | None = None,
    opset: int | str = AUTO,
    **changes: Unpack[Changes],
) -> Conversion:
    """Convert a model so that it passes on data: calibrate, rewrite, verify, keep more if needed.

    Values that overflow on the data stay float32. If the outputs are not within the tolerance
    then, or a value inside overflows, the error budget chooses what else stays float32
    (docs/error_budget.md). Without data, made-up inputs verify the model; they choose what stays
    float32 only if the rounded weights are to blame or a value inside overflows on them.

    Args:
        model: A path, an onnx_ir model or a ModelProto; never modified.
        data: Batches (input name -> array; an array alone for a single input), .npz or .csv files,
            folders of .npz files. They are read several times, and kept in memory for tuning.
        options: The options of the rewrite; None for the default ones.
        rtol: The largest error of an output, relative to its largest magnitude. None: the test that
            `verify` makes without a tolerance.
        budget: Seconds for all of it, half of them for calibrating. A model that was not verified
            in time is in doubt.
        stress: Verify with stress inputs as well. Default: without data, and with `strict`.
        output: The file to write if the model passes. `data` that ends in .onnx is taken for it.
        progress: Called at the beginning of each step and of its parts.
        providers: Run the result on these execution providers as well; their outputs must pass.
        opset: The opset of ai.onnx that the model is upgraded to first, or "keep". "auto" upgrades
            it if more of it becomes 16-bit, and its outputs stay the same.
        **changes: Single options by name, as for `rewrite`.

    Returns:
        The rewritten model and its verdict. `save` refuses a model that failed, is in doubt, or has
        nothing in 16 bits.

    Raises:
        VerdictError: It is to be written, but failed, is in doubt, or has nothing in 16 bits.
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
    kept = cast("Data", [*data]) if isinstance(data, Iterator) else data
    stress = None if stress is None else arguments.switch("stress", stress)
    terms = Terms(
        kept,
        rtol
        if rtol is None
        else arguments.number("rtol", rtol, low=0, expected="a number of at least 0"),
        arguments.number(
            "budget", budget, low=0, above=True, expected="a positive number of seconds"
        ),
        data is None or chosen.strict if stress is None else stress,
        arguments.function("progress", progress) or silent,
        () if providers is None else device_providers(arguments.texts("providers", providers)),
    )
    given = read_source(model, inline_functions=chosen.inline_functions)
    flat, raised = upgraded(given, opset, chosen)
    made = converted(Work(flat, chosen), terms).made
    if raised is not None:
        made = replace(made, raised=raised, given=given)
    if output is not None:
        made.save(path_text(output, SaveError))
    return made


def converted(work: Work, terms: Terms) -> Trial:
    """Take the steps of a conversion."""
    with untold_estimates():
        trial = _converted(work, terms)
        if not trial.made.ok:
            trial = _with_wide_inputs(work, terms, trial)
    warn_of_estimate(trial.made.result)
    return trial


def _with_wide_inputs(work: Work, terms: Terms, before: Trial) -> Trial:
    """Return the conversion with float32 inputs, where some were 16-bit and that lets it pass."""
    context, options = before.made.result.context, work.options
    names, main = context.type_graph.flat.value_names, context.type_graph.flat.main
    inputs = tuple(names[v] for v in main.inputs if v in context.low_ends)
    if not (inputs and terms.ends() > time.monotonic()):
        return before
    terms.progress("trying float32 inputs")
    kept = () if isinstance(options.keep_io_types, bool) else options.keep_io_types
    wide = replace(work, options=replace(options, keep_io_types=(*kept, *inputs)))
    after = _converted(wide, terms)
    if not after.made.ok:
        return before
    return after._replace(made=replace(after.made, wide_inputs=inputs))


def _converted(work: Work, terms: Terms) -> Trial:
    if terms.data is not None:
        terms.progress("calibrating")
        first = tried(measured(work, terms.data, terms), terms)
        return _mended(first, terms) if fails_on_data(first.made.verification) else first
    rewritten = rewrite_as_found(work.flat, work.options)
    rewritten = proved_rewrite(work.flat, rewritten, work.options)
    work = replace(work, refused=rewritten.refused)
    if rewritten.scaling is not None:
        scaling = rewritten.scaling
        work = replace(work, flat=scaling.flat, given=work.flat, scaling=scaling)
    first = judged(work, rewritten, terms)
    return _mended(first, terms)


def _mended(first: Trial, terms: Terms) -> Trial:
    # imported here: most models pass
    from amp_rewrite.numerics.convert.keep_float32 import fit_to_made_up, mend

    fitted = fit_to_made_up(first, terms) if terms.data is None else None
    return fitted or mend(first, terms)
