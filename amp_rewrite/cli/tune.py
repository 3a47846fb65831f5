"""`amp-rewrite tune`: the smallest set of nodes to keep float32 so that a tolerance holds."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from amp_rewrite.base.printable import counted
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

_SHOWN = 10
"""How many nodes are printed; the op list has all of them."""


@with_rewrite_options("overflow", "only")
def tune(
    model: Annotated[Path, typer.Argument(help="The float32 ONNX model.")],
    data: common.Data,
    output: common.ListFile,
    metric: Annotated[
        str,
        typer.Option(
            help=f"What to measure: {' or '.join(METRICS)}.",
            autocompletion=common.completing(METRICS),
        ),
    ] = METRICS[0],
    rtol: Annotated[
        float | None,
        typer.Option(help="The largest loss to accept. Default: that of the metric."),
    ] = None,
    budget: Annotated[str, typer.Option(help="Time for the search: 90s, 10m, 1h.")] = "10m",
    resume: Annotated[bool, typer.Option(help="Continue from OUTPUT.state.")] = False,
    *,
    options: RewriteOptions,
    quiet: common.Quiet = False,
) -> None:
    """Find the smallest set of nodes to keep float32, so that MODEL passes.

    OUTPUT always holds the best set so far. On a target with measured costs, picks the fastest
    candidate that passes, from a speed/accuracy front. Exit status 1: the budget ended first.
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
    """Print first that the search ended early, if it did, and the command that continues it."""
    if found.unmet is not None:
        for line in (found.unmet, "next: Continue the search with more time.", f"  {again}"):
            common.console().print(line)


def _print(found: Tuning, output: Path) -> None:
    out = common.console()
    passes = found.loss <= found.tolerance.limit
    out.print(
        f"{'Passed' if passes else 'FAILED'}: {found.tolerance.metric} {found.loss:.3g}, at most "
        f"{found.tolerance.limit:.3g}; without tuning {found.without}",
        style="green" if passes else "red",
    )
    out.print(
        f"{counted(len(found.keep), 'node')} kept float32 ({found.kind} set, {found.trials} "
        f"trials){_operators(found)}"
    )
    by_name = {rule.node: rule for rule in found.rules}
    for name in found.keep[:_SHOWN]:
        out.print(f"  {name}: {by_name[name].why}" if name in by_name else f"  {name}")
    if len(found.keep) > _SHOWN:
        out.print(f"  and {len(found.keep) - _SHOWN} more; {delivered(output)} has all of them")
    for point in found.front:
        out.print(f"candidate: {point}")
    out.print(f"wrote {delivered(output)}")


def _operators(found: Tuning) -> str:
    """Return how many nodes of each operator are kept, most first; "" if there are none."""
    counts = Counter(found.operators.values()).most_common()
    return f": {', '.join(f'{op} x{count}' for op, count in counts)}" if counts else ""
