"""`amp-rewrite localise`: which roundings spoil a model."""

from __future__ import annotations

import json
from pathlib import Path

from click.exceptions import Exit

from amp_rewrite.cli import common
from amp_rewrite.cli.parameters import argument, option
from amp_rewrite.cli.rewrite_options import with_rewrite_options
from amp_rewrite.numerics.budget.error_budget import error_budget
from amp_rewrite.numerics.compare.distance import ERROR
from amp_rewrite.numerics.compare.made_up_inputs import make_inputs
from amp_rewrite.rewriting.plan.options import RewriteOptions


@with_rewrite_options
def localise(
    original: Path = argument("The float32 ONNX model."),
    data: list[Path] | None = option(None, f"{common.DATA_HELP} Default: made-up inputs."),
    rewritten: Path | None = argument(
        "The converted model; if omitted, ORIGINAL is converted with the given options.", None
    ),
    tolerance: float = option(
        round(ERROR, 3), "Predicted error, relative to an output's spread, that is too large."
    ),
    top: int = option(10, "Contributions to print.", min=0),
    *,
    options: RewriteOptions,
    report: Path | None = common.REPORT,
    quiet: bool = common.QUIET,
) -> None:
    """Print what each rounding adds to the error of the outputs, the most first.

    Exit status 1: the predicted error of an output is too large.
    """
    models = [original] if rewritten is None else [original, rewritten]
    common.check_files(models, data, report=report)
    common.announce_time(models, data, quiet=quiet)
    made_up = () if data else make_inputs(original, ranges=options.ranges).batches
    budget = error_budget(original, [*data] if data else made_up, options, rewritten=rewritten)
    common.write_report(report, lambda: json.dumps(budget.to_dict(), indent=1))
    out = common.console(quiet=quiet)
    common.say_target(options, budget.target, out)
    if not data:
        out.print("These inputs are made up; use --data for real ones.")
    out.print_all(budget.lines(top))
    if not all(error <= tolerance for error in budget.predicted.values()):
        raise Exit(common.FAILED)
