"""`amp-rewrite tune`: the least float32 with which a tolerance holds on data."""

from __future__ import annotations

from pathlib import Path

from click.exceptions import Exit

from amp_rewrite.base.progress import progress_bar
from amp_rewrite.cli import common
from amp_rewrite.cli.parameters import argument, option
from amp_rewrite.cli.rewrite_options import with_rewrite_options
from amp_rewrite.numerics.budget.tolerance import METRICS
from amp_rewrite.numerics.budget.tune import tune as run
from amp_rewrite.rewriting.plan.options import RewriteOptions


@with_rewrite_options
def tune(
    model: Path = argument("The float32 ONNX model."),
    data: list[Path] = common.DATA,
    output: Path = common.LIST_FILE,
    metric: str = option(METRICS[0], f"What to measure: {' or '.join(METRICS)}.", choices=METRICS),
    rtol: float | None = option(
        None, "The largest error to accept; for cosine, 1 - cosine. Default: that of the metric."
    ),
    budget: str = option("10m", "Time for all of it: 90s, 10m, 1h."),
    *,
    options: RewriteOptions,
    quiet: bool = common.QUIET,
) -> None:
    """Keep as little as possible in float32, so that MODEL meets a tolerance on your data.

    OUTPUT is an op list for `convert --lists`. Exit status 1: no choice meets the tolerance; 3:
    only float32 does.
    """
    limit = common.seconds(budget)
    common.check_files([model], data, op_list=output)
    common.announce_time([model], data, quiet=quiet)
    with progress_bar("tuning", quiet=quiet) as progress:
        tuning = run(
            model,
            [*data],
            rtol,
            options,
            metric=metric,
            budget=limit,
            output=output,
            progress=progress,
        )
    if not quiet:
        out, style = common.console(), "green" if tuning.holds and tuning.is_low else "red"
        common.say_target(options, tuning.options.chosen_target, out)
        first, *more = tuning.lines()
        out.print(first, style=style)
        out.print_all((*more, f"wrote {output}"))
    if not tuning.holds:
        raise Exit(common.FAILED)
    if not tuning.is_low:
        raise Exit(common.NOT_STRICT)
