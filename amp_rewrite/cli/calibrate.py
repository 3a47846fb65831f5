"""`amp-rewrite calibrate`: measure a model over data, and deny what does not fit the low type."""

from __future__ import annotations

from pathlib import Path

from amp_rewrite.base.printable import counted
from amp_rewrite.base.progress import progress_bar
from amp_rewrite.cli import common
from amp_rewrite.cli.parameters import argument, option
from amp_rewrite.cli.rewrite_options import with_rewrite_options
from amp_rewrite.numerics.ranges.calibrate import MARGIN, Calibration
from amp_rewrite.numerics.ranges.calibrate import calibrate as run
from amp_rewrite.rewriting.plan.options import RewriteOptions

_SHOWN = 20


@with_rewrite_options
def calibrate(
    model: Path = argument("The float32 ONNX model."),
    *,
    data: list[Path] = common.DATA,
    output: Path = common.LIST_FILE,
    options: RewriteOptions,
    margin: float = option(MARGIN, "Safety factor: values may be N times larger than measured."),
    quiet: bool = common.QUIET,
) -> None:
    """Run MODEL in float32 on data and list the nodes whose values overflow the 16-bit type."""
    common.check_files([model], data, op_list=output)
    common.announce_time([model], data, quiet=quiet)
    with progress_bar("calibrating", quiet=quiet) as progress:
        calibration = run(
            model,
            [*data],
            options,
            margin=margin,
            progress=progress,
        )
    calibration.save(output)
    if not quiet:
        common.say_cpu(common.console(), options.target)
        _print(calibration, output)


def _print(calibration: Calibration, output: Path) -> None:
    out = common.console()
    out.print(
        f"{counted(len(calibration.nodes), 'node')} must stay float32; "
        f"{counted(len(calibration.ranges), 'value')} measured on "
        f"{counted(calibration.batches, 'batch')}"
    )
    for rule in calibration.rules[:_SHOWN]:
        variable = "" if rule.variable is None else f"/{rule.variable}"
        out.print(f"{rule.node}{variable}: {rule.why}")
    if len(calibration.rules) > _SHOWN:
        out.print(f"and {len(calibration.rules) - _SHOWN} more")
    if calibration.ends:
        out.print(f"inputs and outputs to keep float32: {', '.join(calibration.ends)}")
    if calibration.unmeasured:
        count = counted(len(calibration.unmeasured), "value")
        out.print(f"{count} inside function bodies could not be measured")
    out.print(f"wrote {output}")
