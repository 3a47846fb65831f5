"""`amp-rewrite tune`: the least float32 with which a tolerance holds on data."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from click.exceptions import Exit

from amp_rewrite.base.printable import counted
from amp_rewrite.base.progress import progress_bar
from amp_rewrite.cli import common
from amp_rewrite.cli.parameters import argument, option
from amp_rewrite.cli.rewrite_options import with_rewrite_options
from amp_rewrite.numerics.budget.tolerance import METRICS, Tolerance
from amp_rewrite.numerics.budget.tune import tune as run
from amp_rewrite.numerics.budget.tuning import Tuning
from amp_rewrite.rewriting.plan.options import RewriteOptions

_SHOWN = 10
"""How many nodes are printed; the op list has all of them."""


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
    default = Tolerance.default(metric, options.low.rtol)
    tolerance = default if rtol is None else Tolerance(metric, rtol)
    with progress_bar("tuning", quiet=quiet) as progress:
        tuning = run(
            model, [*data], tolerance, options, budget=limit, output=output, progress=progress
        )
    if not quiet:
        common.say_target(options, tuning.options.chosen_target, common.console())
        _print(tuning, output)
    if not tuning.holds:
        raise Exit(common.FAILED)
    if not tuning.is_low:
        raise Exit(common.NOT_STRICT)


def _print(tuning: Tuning, output: Path) -> None:
    out, passes = common.console(), tuning.holds and tuning.is_low
    if not tuning.is_low:
        out.print("FAILED: nothing is left in 16 bits", style="red")
    out.print(
        f"{'Passed' if passes else 'FAILED'}: {tuning.tolerance.metric} {tuning.loss:.3g}, "
        f"at most {tuning.tolerance.limit:.3g}; without tuning {tuning.before:.3g}",
        style="green" if passes else "red",
    )
    kept = f"{counted(len(tuning.keep), 'node')} kept float32{_operators(tuning)}"
    out.print(f"{kept}; {len(tuning.allow)} allowed against the lists ({tuning.runs} runs)")
    why = {rule.node: rule.why for rule in tuning.rules}
    for name in tuning.keep[:_SHOWN]:
        out.print(f"  {name}: {why[name]}")
    if len(tuning.keep) > _SHOWN:
        out.print(f"  and {len(tuning.keep) - _SHOWN} more; {output} has all of them")
    if tuning.budget is not None:
        for line in tuning.budget.lines():
            out.print(line)
    out.print(f"wrote {output}")


def _operators(tuning: Tuning) -> str:
    """Return how many nodes of each operator are kept, most first; "" if there are none."""
    counts = Counter(tuning.operators.values()).most_common()
    return f": {', '.join(f'{op} x{count}' for op, count in counts)}" if counts else ""
