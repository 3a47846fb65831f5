"""`amp-rewrite check`: is a model in 16 bits safe as it is?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from amp_rewrite.base.progress import progress_bar
from amp_rewrite.cli import common
from amp_rewrite.cli.folder import finish_folder, refuse_for_folder
from amp_rewrite.cli.rewrite_options import with_rewrite_options
from amp_rewrite.errors import OptionError
from amp_rewrite.numerics.folder_commands import check_folder
from amp_rewrite.numerics.safety_check import check as run_check
from amp_rewrite.numerics.safety_report import print_safety
from amp_rewrite.numerics.target_table import check_targets, print_targets
from amp_rewrite.rewriting.plan.options import RewriteOptions
from amp_rewrite.rewriting.report.write_text import write_text
from amp_rewrite.targets import provider_named


@with_rewrite_options(*common.NOT_OF_GIVEN, "overflow", "only")
def check(
    model: common.FileOrFolder,
    options: RewriteOptions,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            help=f"Run the model on these data: {common.DATA_KINDS} Default: made-up inputs and "
            "stress inputs."
        ),
    ] = None,
    run: Annotated[
        bool, typer.Option("--run/--no-run", help="Run the model; --no-run applies rules only.")
    ] = True,
    stress: Annotated[
        bool | None,
        typer.Option(
            "--stress/--no-stress", help="Also run stress inputs. Default: without --data."
        ),
    ] = None,
    provider: common.RunOn = None,
    report: common.ReportFile = None,
    html: common.Page = None,
    quiet: common.Quiet = False,
    *,
    every_target: bool,
) -> None:
    """Check whether a 16-bit model is numerically safe.

    Emulates the target's 16-bit arithmetic and compares the outputs with the same model in float32,
    then reports what static rules flag. Exit status 3: unsafe, or not known.
    For a float32 model, lists what a conversion to --precision would keep in float32.
    --target all prints one row for each target: whether the file loads, its 16-bit share, whether
    it is right. If MODEL is a folder, every 16-bit model in it is checked, and whether connected
    inputs and outputs have the same type.
    """
    common.check_reports([model], report, html)
    common.refuse_data(data, report, html)
    if not run and (data or stress or provider):
        remedy = "omit --data, --stress and --provider"
        raise OptionError("--no-run runs nothing", remedy=remedy)
    if every_target:
        _check_targets(
            model,
            options,
            data,
            report,
            run=run,
            stress=stress,
            quiet=quiet,
            beside={"--html": html, "--provider": provider},
        )
        return
    if model.is_dir():
        refuse_for_folder(
            model, None, report, {"--data": data, "--html": html, "--provider": provider}
        )
        with progress_bar("checking", quiet=quiet) as progress:
            of_folder = check_folder(model, options, run=run, stress=stress, progress=progress)
        common.say_cpu(options.target, common.console(quiet=quiet))
        finish_folder(of_folder, report, quiet=quiet, refused=common.NOT_STRICT)
        return
    with progress_bar("checking", quiet=quiet) as progress:
        safety = run_check(
            model,
            [*data] if data else None,
            options,
            run=run,
            stress=stress,
            providers=() if provider is None else [provider_named(provider)],
            progress=progress,
        )
        if html is not None:
            from amp_rewrite.page.low_model import write_check_page  # loaded for the page alone

            progress("writing the page")
            write_check_page(html, safety, model, data)
    if report is not None:
        write_text(report, safety.to_json())
    if not quiet:
        common.say_target(options, safety.target, common.console())
        common.say_cpu_provider(provider, common.console(), target=options.target)
        print_safety(safety, common.console())
    if not safety.ok:
        raise typer.Exit(common.NOT_STRICT)


def _check_targets(
    model: Path,
    options: RewriteOptions,
    data: list[Path] | None,
    report: Path | None,
    *,
    run: bool,
    stress: bool | None,
    quiet: bool,
    beside: Mapping[str, object],
) -> None:
    """Print a row for each target.

    Raises:
        OptionError: It is a folder, or something was given that is about one target.
    """
    extra = [flag for flag, value in beside.items() if value is not None]
    if extra or model.is_dir():
        what = "a folder" if model.is_dir() else extra[0]
        raise OptionError("--target all is for one model", found=what, remedy="name one target")
    with progress_bar("checking", quiet=quiet) as progress:
        table = check_targets(
            model, [*data] if data else None, options, run=run, stress=stress, progress=progress
        )
    if report is not None:
        write_text(report, table.to_json())
    if not quiet:
        print_targets(table, common.console())
    if not table.ok:
        raise typer.Exit(common.NOT_STRICT)
