"""`amp-rewrite convert`: rewrite a model file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from amp_rewrite.api import rewrite
from amp_rewrite.cli import common
from amp_rewrite.cli.late_bar import late_bar
from amp_rewrite.cli.rewrite_options import with_rewrite_options
from amp_rewrite.errors import OptionError, StrictError
from amp_rewrite.graph.io.atomic import check_target
from amp_rewrite.graph.io.model_files import check_output_path
from amp_rewrite.report.write_text import write_text
from amp_rewrite.rewriting.options import RewriteOptions

if TYPE_CHECKING:
    from amp_rewrite.report.records import Report


@with_rewrite_options()
def convert(
    model: Annotated[Path, typer.Argument(help="The ONNX model.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the result.")],
    options: RewriteOptions,
    report: common.ReportFile = None,
    explain_casts: common.ExplainCasts = False,
    dim: common.Dims = None,
    dry_run: Annotated[bool, typer.Option(help="Say what would change; write no model.")] = False,
    quiet: Annotated[bool, typer.Option(help="Print errors only.")] = False,
) -> None:
    """Rewrite MODEL to mixed precision."""
    check_output_path(model, output)
    if report is not None:
        check_target(str(report.parent), report.name)
        if report.resolve() in (model.resolve(), output.resolve()):
            raise OptionError("the report would overwrite a model", where=report)
    lengths = common.lengths(dim, explain_casts=explain_casts)
    missing: StrictError | None = None
    with late_bar(quiet=quiet) as progress:
        try:
            result = rewrite(model, options)
        except StrictError as error:
            result, missing = error.result, error
        found = result.report_of_sizes(lengths) if explain_casts else result.report
        written = not dry_run and missing is None
        if written:
            result.save(output, progress=progress)
    if report is not None:
        write_text(report, found.to_json())
    if not quiet:
        _print(found, explain_casts=explain_casts)
        wrote = f"wrote {output}" if written else "nothing was written"
        common.console().print(wrote, markup=False)
    if missing is not None:
        raise missing


def _print(report: Report, *, explain_casts: bool) -> None:
    from amp_rewrite.report.cast_table import explain_casts as cast_table
    from amp_rewrite.report.records import print_report

    out = common.console()
    print_report(report, out)
    if explain_casts:
        out.print(cast_table(report))
