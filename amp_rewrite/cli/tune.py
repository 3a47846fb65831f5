"""`amp-rewrite tune`: the smallest set of nodes to keep float32 so that a tolerance holds."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from amp_rewrite.base.progress import progress_bar
from amp_rewrite.cli import common
from amp_rewrite.cli.rewrite_options import with_rewrite_options
from amp_rewrite.cli.streams import delivered
from amp_rewrite.graph.io.model_files import check_output_path
from amp_rewrite.numerics.search.tolerance import METRICS, Tolerance
from amp_rewrite.numerics.search.tune import tune as run
from amp_rewrite.numerics.search.tuning import Tuning
from amp_rewrite.rewriting.plan.option_words import option_words
from amp_rewrite.rewriting.plan.options import RewriteOptions
from amp_rewrite.rewriting.report.next_steps import MORE


@with_rewrite_options("overflow", "only")
def tune(
    model: Annotated[Path, typer.Argument(help="The float32 ONNX model.")],
    data: common.Data,
    output: common.ListFile,
    metric: Annotated[
        str,
        typer.Option(help=" or ".join(METRICS) + ".", autocompletion=common.completing(METRICS)),
    ] = METRICS[0],
    rtol: Annotated[
        float | None,
        typer.Option(help="The largest loss to accept; the metric's usual one if unset."),
    ] = None,
    budget: Annotated[str, typer.Option(help="90s, 10m, 1h.")] = "10m",
    resume: Annotated[bool, typer.Option(help="Continue from OUTPUT.state.")] = False,
    *,
    options: RewriteOptions,
    quiet: Annotated[bool, typer.Option(help="Print errors only.")] = False,
) -> None:
    """Find the smallest set of nodes of MODEL to keep float32; OUTPUT always holds the best so far.

    On a target whose costs were measured it is the set of the fastest painting that holds, of a
    front from fast to exact. Exit status 1 means that the budget ended before the set was found.
    """
    limit = common.seconds(budget)
    check_output_path(model, output)
    common.refuse_data(data, output)
    default = Tolerance.default(metric, options.low.rtol)
    tolerance = default if rtol is None else Tolerance(metric, rtol)
    with progress_bar("tuning", quiet=quiet) as progress:
        found = run(
            model,
            [*data],
            tolerance,
            options,
            budget=limit,
            output=output,
            resume=resume,
            progress=lambda step: progress(int(limit - step.seconds_left), int(limit), step),
            warn=common.console(quiet=quiet).print,
            estimate=common.rounding_errors,
        )
    found.save(output)
    if not quiet:
        _print_unmet(found, _again(model, data, found, output))
        common.say_target(options, found.options.chosen_target, common.console())
        _print(found, output)
    if not found.is_settled:
        raise typer.Exit(common.FAILED)


def _again(model: Path, data: list[Path], found: Tuning, output: Path) -> str:
    """Return the command that goes on with a search that ended early."""
    words = [*("amp-rewrite", "tune", str(model), "-o", str(output))]
    words += [word for each in data for word in ("--data", str(each))]
    words += ["--metric", found.tolerance.metric, "--rtol", f"{found.tolerance.limit:g}"]
    words += [word for option in option_words(found.options) for word in option]
    return shlex.join([*words, "--budget", f"{MORE * found.seconds:g}s", "--resume"])


def _print_unmet(found: Tuning, again: str) -> None:
    """Print first that the search ended early, if it did, and what goes on with it."""
    if found.unmet is not None:
        for line in (found.unmet, "next: Give the search more time; it goes on.", f"  {again}"):
            common.console().print(line)


def _print(found: Tuning, output: Path) -> None:
    out = common.console()
    for rule in found.rules:
        out.print(f"{rule.node}: {rule.why}")
    for point in found.front:
        out.print(f"front: {point}")
    out.print(
        f"{len(found.keep)} nodes stay float32 ({found.kind}): {found.tolerance.metric} "
        f"{found.loss:.3g} of at most {found.tolerance.limit:.3g}, {found.without} before; "
        f"{found.trials} trials; wrote {delivered(output)}",
    )
