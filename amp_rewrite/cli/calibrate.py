"""`amp-rewrite calibrate`: measure a model over data, and deny what does not fit the low type."""

from __future__ import annotations

from pathlib import Path

from amp_rewrite.base.progress import progress_bar
from amp_rewrite.cli import common
from amp_rewrite.cli.parameters import argument, option
from amp_rewrite.cli.rewrite_options import with_rewrite_options
from amp_rewrite.numerics.ranges.calibrate import MARGIN
from amp_rewrite.numerics.ranges.calibrate import calibrate as run
from amp_rewrite.rewriting.plan.options import RewriteOptions


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
        out = common.console()
        common.say_cpu(out, options.target)
        out.print_all((*calibration.lines(), f"wrote {output}"))
