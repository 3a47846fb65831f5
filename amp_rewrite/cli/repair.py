"""`amp-rewrite repair`: raise to float32 what is dangerous in a model in 16 bits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast, get_args

import typer

from amp_rewrite.base.progress import progress_bar
from amp_rewrite.cli import common
from amp_rewrite.cli.folder import finish_folder, refuse_for_folder
from amp_rewrite.cli.rewrite_options import with_rewrite_options
from amp_rewrite.cli.streams import shown
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.io.model_files import check_output_path
from amp_rewrite.numerics.folders import repair_folder
from amp_rewrite.numerics.repair import KeepIO, Repair
from amp_rewrite.numerics.repair import repair as run_repair
from amp_rewrite.rewriting.plan.options import RewriteOptions, Weights
from amp_rewrite.rewriting.report.write_text import write_text


@with_rewrite_options(*common.NOT_OF_GIVEN, "precision")
def repair(
    model: common.FileOrFolder,
    options: RewriteOptions,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Where to write the result; - is standard output."),
    ],
    data: Annotated[
        list[Path] | None,
        typer.Option(
            help="Raise what overflows on these data, verify, and raise more until it holds: an "
            ".npz file (one batch), or a folder of them; repeat."
        ),
    ] = None,
    keep_io: Annotated[
        str,
        typer.Option(
            help="given: inputs and outputs keep their types; float32: 16-bit ones become float32.",
            autocompletion=common.completing(get_args(KeepIO)),
        ),
    ] = "given",
    weights: Annotated[
        str,
        typer.Option(
            help="cast: weights of what is raised stay stored as they are, behind a Cast; convert: "
            "they are stored as float32.",
            autocompletion=common.completing(get_args(Weights)),
        ),
    ] = "cast",
    rtol: common.Rtol = None,
    budget: Annotated[str, typer.Option(help="For tuning: 90s, 10m, 1h.")] = "10m",
    verify: common.Verify = False,
    write_failed: common.WriteFailed = False,
    report: common.ReportFile = None,
    html: common.Page = None,
    quiet: Annotated[bool, typer.Option(help="Print errors only.")] = False,
) -> None:
    """Raise to float32 what is dangerous in MODEL, which is in 16 bits, and no more.

    All else stays byte for byte. With --data or --verify the result, emulated, is compared with the
    model's own float32 form, and written only if it holds. Of a folder every model in 16 bits is
    repaired, all else copied, and OUTPUT is a new folder.
    """
    _check_verdict(data, rtol, verify=verify, write_failed=write_failed)
    if model.is_dir():
        refuse_for_folder(model, output, report, {"--data": data, "--html": html})
        with progress_bar("repairing", quiet=quiet) as progress:
            of_folder = repair_folder(
                model,
                output,
                options,
                keep_io=cast("KeepIO", keep_io),
                weights=cast("Weights", weights),
                verify=verify,
                rtol=rtol,
                write_failed=write_failed,
                progress=progress,
            )
        finish_folder(of_folder, report, quiet=quiet)
        return
    check_output_path(model, output)
    common.check_reports((model, output), report, html)
    with progress_bar("repairing", quiet=quiet) as progress:
        made = run_repair(
            model,
            [*data] if data else None,
            options,
            keep_io=cast("KeepIO", keep_io),
            weights=cast("Weights", weights),
            verify=verify,
            rtol=rtol,
            budget=common.seconds(budget),
            progress=progress,
        )
        written = made.ok or write_failed
        if written:
            made.save(output, write_failed=write_failed, progress=progress)
        if html is not None:
            from amp_rewrite.page.low_model import write_repair_page  # loaded for the page alone

            progress("writing the page")
            write_repair_page(html, made, model, output if written else None, data)
    if report is not None:
        write_text(report, made.to_json())
    if not quiet:
        common.say_target(options, made.target, common.console())
        _print(made, output, written=written)
    if not made.ok:
        raise typer.Exit(common.FAILED)


def _check_verdict(
    data: list[Path] | None, rtol: float | None, *, verify: bool, write_failed: bool
) -> None:
    """Refuse what is said about a verdict where there is none."""
    if (rtol is not None or write_failed) and not (data or verify):
        raise OptionError(
            f"{'--rtol' if rtol is not None else '--write-failed'} is about a verdict, and nothing "
            "is verified",
            remedy="give --data or --verify as well",
        )


def _print(made: Repair, output: Path, *, written: bool) -> None:
    out = common.console()
    for line in made.to_text().splitlines():
        out.print(line)
    if written:
        note = "" if made.changed or made.raised.flat.mended.words() else ", a copy"
        out.print(f"wrote {shown(output)}{note}")
    else:
        out.print("nothing was written; --write-failed writes it all the same")
