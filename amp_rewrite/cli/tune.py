"""`amp-rewrite tune`: the smallest set of nodes to keep float32 so that a tolerance holds."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path
from typing import Annotated

from click.exceptions import Exit

from amp_rewrite.base.printable import counted
from amp_rewrite.base.progress import progress_bar
from amp_rewrite.cli import common
from amp_rewrite.cli.parameters import Argument, Option
from amp_rewrite.cli.rewrite_options import with_rewrite_options
from amp_rewrite.numerics.search.tolerance import METRICS, Tolerance
from amp_rewrite.numerics.search.tune import tune as run
from amp_rewrite.numerics.search.tuning import Tuning
from amp_rewrite.rewriting.plan.option_words import option_words
from amp_rewrite.rewriting.plan.options import RewriteOptions
from amp_rewrite.rewriting.report.next_steps import MORE

_SHOWN = 10
"""How many nodes are printed; the op list has all of them."""


@with_rewrite_options
def tune(
    model: Annotated[Path, Argument(help="The float32 ONNX model.")],
    data: common.Data,
    output: common.ListFile,
    metric: Annotated[
        str,
        Option(
            help=f"What to measure: {' or '.join(METRICS)}.",
            choices=METRICS,
        ),
    ] = METRICS[0],
    rtol: Annotated[
        float | None,
        Option(help="The largest loss to accept. Default: that of the metric."),
    ] = None,
    budget: Annotated[str, Option(help="Time for the search: 90s, 10m, 1h.")] = "10m",
    *,
    options: RewriteOptions,
    quiet: common.Quiet = False,
) -> None:
    """Find the smallest set of nodes to keep float32, so that MODEL passes.

    OUTPUT always holds the best set so far. Exit status 1: the budget ended first.
    """
    limit = common.seconds(budget)
    common.check_files([model], data, output=output)
    default = Tolerance.default(metric, options.low.rtol)
    tolerance = default if rtol is None else Tolerance(metric, rtol)
    with progress_bar("tuning", quiet=quiet) as progress:
        tuning = run(
            model,
            [*data],
            tolerance,
            options,
            budget=limit,
            output=output,
            progress=lambda step: progress(int(limit - step.seconds_left), int(limit), step),
            warn=common.console(quiet=quiet).print,
            estimate=common.rounding_errors,
        )
    tuning.save(output)
    if not quiet:
        _print_unmet(tuning, _longer_command(model, data, tuning, output))
        common.say_target(options, tuning.options.chosen_target, common.console())
        _print(tuning, output)
    if not tuning.minimal:
        raise Exit(common.FAILED)


def _longer_command(model: Path, data: list[Path], tuning: Tuning, output: Path) -> str:
    """Return the command that searches again with more time."""
    words = [*("amp-rewrite", "tune", str(model), "-o", str(output))]
    words += [word for each in data for word in ("--data", str(each))]
    words += ["--metric", tuning.tolerance.metric, "--rtol", f"{tuning.tolerance.limit:g}"]
    words += [word for option in option_words(tuning.options) for word in option]
    return shlex.join([*words, "--budget", f"{MORE * tuning.seconds:g}s"])


def _print_unmet(tuning: Tuning, again: str) -> None:
    """Print first that the search ended early, if it did, and the command for a longer one."""
    if tuning.unmet is not None:
        for line in (tuning.unmet, "next: Search again with more time.", f"  {again}"):
            common.console().print(line)


def _print(tuning: Tuning, output: Path) -> None:
    out = common.console()
    passes = tuning.loss <= tuning.tolerance.limit
    out.print(
        f"{'Passed' if passes else 'FAILED'}: {tuning.tolerance.metric} {tuning.loss:.3g}, at most "
        f"{tuning.tolerance.limit:.3g}; without tuning {tuning.without}",
        style="green" if passes else "red",
    )
    out.print(
        f"{counted(len(tuning.keep), 'node')} kept float32 ({tuning.kind} set, {tuning.trials} "
        f"trials){_operators(tuning)}"
    )
    by_name = {rule.node: rule for rule in tuning.rules}
    for name in tuning.keep[:_SHOWN]:
        out.print(f"  {name}: {by_name[name].why}" if name in by_name else f"  {name}")
    if len(tuning.keep) > _SHOWN:
        out.print(f"  and {len(tuning.keep) - _SHOWN} more; {output} has all of them")
    out.print(f"wrote {output}")


def _operators(tuning: Tuning) -> str:
    """Return how many nodes of each operator are kept, most first; "" if there are none."""
    counts = Counter(tuning.operators.values()).most_common()
    return f": {', '.join(f'{op} x{count}' for op, count in counts)}" if counts else ""
