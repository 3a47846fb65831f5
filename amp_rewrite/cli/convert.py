"""`amp-rewrite convert`: rewrite a model file."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from amp_rewrite.base.progress import progress_bar
from amp_rewrite.cli import common
from amp_rewrite.cli.convert_output import print_next, print_outcome, print_rewrite
from amp_rewrite.cli.convert_wide import widen_file
from amp_rewrite.cli.rewrite_options import with_rewrite_options
from amp_rewrite.errors import AmpError, OptionError
from amp_rewrite.graph.io.atomic import check_target
from amp_rewrite.graph.io.model_files import check_output_path
from amp_rewrite.numerics.file_conversion import Asked, FileConversion, convert_file
from amp_rewrite.rewriting.api import RewriteResult
from amp_rewrite.rewriting.plan.options import KEEP, RewriteOptions
from amp_rewrite.rewriting.report.file_sizes import sizes_of
from amp_rewrite.rewriting.report.write_text import write_text

if TYPE_CHECKING:
    from amp_rewrite.rewriting.report.rewrite_report import Report


@with_rewrite_options()
def convert(
    model: Annotated[Path, typer.Argument(help="The ONNX model; - is standard input.")],
    options: RewriteOptions,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where to write the result; - is standard output."),
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            help="Calibrate on these data, verify and, if needed, tune: an .npz file (one batch), "
            "or a folder of them; repeat."
        ),
    ] = None,
    rtol: Annotated[
        float | None,
        typer.Option(
            help="The largest error of an output relative to its largest magnitude; what verify "
            "asks for if unset."
        ),
    ] = None,
    budget: Annotated[str, typer.Option(help="For tuning: 90s, 10m, 1h.")] = "10m",
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Verify the result, without --data on made-up and stress inputs, and write it "
            "only if it holds.",
        ),
    ] = False,
    stress: Annotated[
        bool | None,
        typer.Option(
            "--stress/--no-stress",
            help="Verify with stress inputs as well. Default: with --strict.",
        ),
    ] = None,
    write_failed: Annotated[
        bool, typer.Option("--write-failed", help="Write the model even if it does not hold.")
    ] = False,
    report: common.ReportFile = None,
    html: common.Page = None,
    annotate: Annotated[
        bool,
        typer.Option(
            "--annotate",
            help="Note in every node of the result what it computes in, and why, for viewers such "
            "as Netron.",
        ),
    ] = False,
    opset: common.Opset = common.AUTO,
    explain_casts: common.ExplainCasts = False,
    dim: common.Dims = None,
    dry_run: Annotated[bool, typer.Option(help="Say what would change; write no model.")] = False,
    quiet: Annotated[bool, typer.Option(help="Print errors only.")] = False,
) -> None:
    """Rewrite MODEL to mixed precision.

    A MODEL in other float types is read as the float32 model that it stands for.
    With --data, --verify, --stress or --strict the result is verified, and written only if it
    holds; a training step only with one of the first three.
    """
    output = _output(model, output, options, dry_run=dry_run)
    _check_paths(model, output, report, html)
    if not options.makes_low:
        beside = {
            "--data": data,
            "--rtol": rtol,
            "--verify": verify,
            "--stress": stress,
            "--write-failed": write_failed,
            "--report": report,
            "--html": html,
            "--annotate": annotate,
            "--explain-casts": explain_casts,
            "--dim": dim,
            "--opset": opset not in (common.AUTO, KEEP),
        }
        widen_file(model, options, output, beside, dry_run=dry_run, quiet=quiet)
        return
    lengths = common.lengths(dim, explain_casts=explain_casts)
    asked = Asked(
        data=data or (),
        verify=verify,
        stress=stress,
        rtol=rtol,
        budget=common.seconds(budget),
        write_failed=write_failed,
        opset=opset,
    )
    with progress_bar("rewriting", quiet=quiet) as progress:
        done = convert_file(model, options, asked, progress)
        is_read = bool(lengths) or html is not None or report is not None or not quiet
        found = done.report(lengths, explain_casts=explain_casts) if is_read else None
        written = not dry_run and done.is_written
        if written:
            _save(done.result, output, progress, annotate=annotate)
        if html is not None and found is not None:
            progress("writing the page")
            with _telling(output, written=written):
                _write_page(html, done, found, output, written=written)
    if report is not None and found is not None:
        write_text(report, done.to_json(found))
    if found is not None and not quiet:
        sizes = sizes_of(model, done.result.flat, done.result.plan, output if written else None)
        print_rewrite(found, sizes, explain_casts=explain_casts)
        print_outcome(done.made, output, written=written)
        print_next(found, done.made, model, output, written=written)
    if done.missing is not None:
        raise done.missing
    if not done.holds:
        raise typer.Exit(common.NOT_STRICT if options.strict else common.FAILED)


def _output(model: Path, given: Path | None, options: RewriteOptions, *, dry_run: bool) -> Path:
    """Return where the result goes, or would go.

    Raises:
        OptionError: Nothing is said of it, and it is to be written.
    """
    if given is None and not dry_run:
        raise OptionError(
            "it is not said where to write the result",
            remedy="-o MODEL.onnx; or --dry-run, which writes none",
        )
    return model.with_suffix(f".{options.precision}.onnx") if given is None else given


@contextmanager
def _telling(output: Path, *, written: bool) -> Generator[None]:
    """Say that the model is there if what comes behind it fails."""
    try:
        yield
    except AmpError:
        if written:
            common.error_console().print(f"wrote {output}")
        raise


def _save(
    result: RewriteResult, output: Path, progress: Callable[..., None], *, annotate: bool
) -> None:
    if annotate:
        result.annotate()
    result.save(output, progress=progress)


def _write_page(
    page: Path, done: FileConversion, report: Report, output: Path, *, written: bool
) -> None:
    """Write the page of a conversion; what makes it is loaded for it alone."""
    from amp_rewrite.page.evidence import evidence_of
    from amp_rewrite.page.render import write_page

    write_page(page, done.result, report, evidence_of(done, output, written=written))


def _check_paths(model: Path, output: Path, report: Path | None, html: Path | None) -> None:
    """Refuse files that cannot be written or would overwrite a model or each other.

    Raises:
        AmpError: One of them is so.
    """
    check_output_path(model, output)
    taken = [model.resolve(), output.resolve()]
    for path, what in ((report, "report"), (html, "page")):
        if path is None:
            continue
        check_target(str(path.parent), path.name)
        if path.resolve() in taken:
            raise OptionError(f"the {what} would overwrite a model or the report", where=path)
        taken.append(path.resolve())
