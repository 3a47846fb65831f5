"""`amp-rewrite check`: is a model in 16 bits safe as it is?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from amp_rewrite.base.progress import progress_bar
from amp_rewrite.cli import common
from amp_rewrite.cli.rewrite_options import with_rewrite_options
from amp_rewrite.errors import OptionError
from amp_rewrite.numerics.safety_check import check as run_check
from amp_rewrite.numerics.safety_report import print_safety
from amp_rewrite.rewriting.plan.options import RewriteOptions
from amp_rewrite.rewriting.report.write_text import write_text


@with_rewrite_options(*common.NOT_OF_GIVEN)
def check(
    model: Annotated[Path, typer.Argument(help="The ONNX model; - is standard input.")],
    options: RewriteOptions,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            help="Run it on these data: an .npz file (one batch), or a folder of them; repeat. "
            "Without it plausible inputs are made up, and stress inputs tried."
        ),
    ] = None,
    run: Annotated[
        bool, typer.Option("--run/--no-run", help="Run the model; --no-run asks the rules alone.")
    ] = True,
    stress: Annotated[
        bool | None,
        typer.Option(
            "--stress/--no-stress", help="Try stress inputs as well. Default: if there are no data."
        ),
    ] = None,
    report: common.ReportFile = None,
    quiet: Annotated[bool, typer.Option(help="Print errors only.")] = False,
) -> None:
    """Tell whether MODEL, in 16 bits, is safe in the types that it has.

    First what a run shows, emulated in the arithmetic of the target, against the model's own
    float32 form; then what the rules fear. Exit status 3 means that it is not safe. Of a float32
    model it is said what a conversion to --precision would have to keep.
    """
    if report is not None and report.resolve() == model.resolve():
        raise OptionError("the report would overwrite the model", where=report)
    if not run and (data or stress):
        raise OptionError("--no-run runs nothing", remedy="leave --data and --stress away")
    with progress_bar("checking", quiet=quiet) as progress:
        found = run_check(
            model, [*data] if data else None, options, run=run, stress=stress, progress=progress
        )
    if report is not None:
        write_text(report, found.to_json())
    if not quiet:
        print_safety(found, common.console())
    if not found.ok:
        raise typer.Exit(common.NOT_STRICT)
