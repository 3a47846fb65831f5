"""`amp-rewrite convert`: rewrite a model file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from amp_rewrite.api import RewriteResult, rewrite
from amp_rewrite.cli import common
from amp_rewrite.cli.convert_output import planned, print_next, print_outcome, print_rewrite
from amp_rewrite.cli.late_bar import LateBar, late_bar
from amp_rewrite.cli.rewrite_options import with_rewrite_options
from amp_rewrite.errors import OptionError, RuntimeMissingError, StrictError
from amp_rewrite.graph.io.atomic import check_target
from amp_rewrite.graph.io.model_files import check_output_path
from amp_rewrite.graph.step_metadata import step_description
from amp_rewrite.report.write_text import write_text
from amp_rewrite.rewriting.options import RewriteOptions

if TYPE_CHECKING:
    from amp_rewrite.api import RewriteResult
    from amp_rewrite.graph.io.load import Source
    from amp_rewrite.numerics.conversion import Conversion
    from amp_rewrite.numerics.raise_opset import RaisedModel
    from amp_rewrite.report.rewrite_report import Report


@with_rewrite_options()
def convert(
    model: Annotated[Path, typer.Argument(help="The ONNX model.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the result.")],
    options: RewriteOptions,
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
    opset: Annotated[
        int | None,
        typer.Option(
            help="Move the model to this opset of ai.onnx first, with onnx's converter; the result "
            "is checked and compared with the model before."
        ),
    ] = None,
    explain_casts: common.ExplainCasts = False,
    dim: common.Dims = None,
    dry_run: Annotated[bool, typer.Option(help="Say what would change; write no model.")] = False,
    quiet: Annotated[bool, typer.Option(help="Print errors only.")] = False,
) -> None:
    """Rewrite MODEL to mixed precision.

    With --data, --stress or --strict the result is verified, and written only if it holds; a
    training step only with --data or --stress.
    """
    _check_paths(model, output, report, html)
    lengths = common.lengths(dim, explain_casts=explain_casts)
    by_default = options.strict and stress is None
    verifies = bool(data or stress or by_default)
    _check_verdict_options(rtol, verifies=verifies, write_failed=write_failed)
    made, missing = None, None
    with late_bar("rewriting", quiet=quiet, saves=True) as bar:
        raised = None if opset is None else _raised(model, opset, options)
        source = model if raised is None else raised.model
        try:
            if data or stress:
                made = _converted(source, data, options, rtol, budget, stress, bar.step)
            result = rewrite(source, options) if made is None else made.result
            if made is None and by_default and not step_description(result.flat):
                made = _judged(source, result, options, rtol, bar.step)
        except StrictError as error:
            result, missing = error.result, error
        verifies = made is not None or missing is not None
        _check_verdict_options(rtol, verifies=verifies, write_failed=write_failed)
        is_read = bool(lengths) or html is not None or report is not None or not quiet
        found = _report(result, made, lengths, explain_casts=explain_casts) if is_read else None
        found = None if found is None else _with_gain(raised, found, model, options)
        holds = missing is None and (made is None or made.ok)
        written = not dry_run and missing is None and (holds or write_failed)
        if written:
            _save(result, output, bar, annotate=annotate)
        if html is not None and found is not None:
            bar.step("writing the page")
            saved = output if written else None
            _write_page(html, (model, source, output, saved), result, found, made, data)
    if report is not None and found is not None:
        write_text(report, found.to_json() if made is None else made.to_json(found))
    if found is not None and not quiet:
        print_rewrite(found, planned(model, result), explain_casts=explain_casts)
        print_outcome(made, output, written=written)
        print_next(found, made, model, output)
    if missing is not None:
        raise missing
    if not holds:
        raise typer.Exit(common.NOT_STRICT if options.strict else common.FAILED)


def _report(
    result: RewriteResult,
    made: Conversion | None,
    lengths: Mapping[str, int],
    *,
    explain_casts: bool,
) -> Report:
    """Return the report, with the sizes of the lengths given, else of the verified run, if any."""
    if lengths or (explain_casts and made is None):
        return result.report_of_sizes(lengths)
    return result.report if made is None else made.report


def _save(result: RewriteResult, output: Path, bar: LateBar, *, annotate: bool) -> None:
    if annotate:
        result.annotate()
    result.save(output, progress=bar.saving)


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


def _check_verdict_options(rtol: float | None, *, verifies: bool, write_failed: bool) -> None:
    """Refuse options about a verdict where there is none.

    Raises:
        OptionError: One is given.
    """
    given = {"--rtol": rtol is not None, "--write-failed": write_failed}
    for name, is_given in given.items():
        if is_given and not verifies:
            raise OptionError(
                f"{name} is about a verdict, and nothing is verified",
                remedy="give --data, --stress or --strict as well",
            )


def _raised(model: Path, opset: int, options: RewriteOptions) -> RaisedModel:
    """Move the model to a newer opset; what runs models is loaded for that alone."""
    from amp_rewrite.numerics.raise_opset import raise_opset

    return raise_opset(model, opset, inline_functions=options.inline_functions)


def _with_gain(
    raised: RaisedModel | None, report: Report, model: Path, options: RewriteOptions
) -> Report:
    """Return the report, with what a newer opset gained, if the model was moved to one."""
    if raised is None:
        return report
    from amp_rewrite.numerics.raise_opset import with_gain

    return with_gain(raised, report, model, options)


def _converted(
    model: Source,
    data: list[Path] | None,
    options: RewriteOptions,
    rtol: float | None,
    budget: str,
    stress: bool | None,
    step: Callable[[str], None],
) -> Conversion:
    """Convert with a verdict; the rooms that this takes are loaded for it alone."""
    from amp_rewrite.cli.progress import seconds
    from amp_rewrite.numerics.convert import convert as run

    return run(
        model,
        data or None,
        options,
        rtol=rtol,
        budget=seconds(budget),
        stress=stress,
        progress=step,
    )


def _judged(
    model: Source,
    result: RewriteResult,
    options: RewriteOptions,
    rtol: float | None,
    step: Callable[[str], None],
) -> Conversion:
    """Return the verdict that --strict asks for."""
    from amp_rewrite.numerics.convert import judge

    try:
        return judge(model, result, options, rtol=rtol, progress=step)
    except RuntimeMissingError as error:
        raise RuntimeMissingError(
            "--strict verifies the result, for which ONNX Runtime is not installed",
            remedy="pip install 'amp-rewrite[cpu]', or leave the verification out: --no-stress",
        ) from error


def _write_page(
    page: Path,
    files: tuple[Path, Source, Path, Path | None],
    result: RewriteResult,
    report: Report,
    made: Conversion | None,
    data: list[Path] | None,
) -> None:
    """Write the page of a conversion; what makes it is loaded for it alone.

    Args:
        page: Where to write it.
        files: The model's file, the model that was rewritten, where the result goes, and the same
            if it was written.
        result: The rewrite.
        report: Its report.
        made: Its verdict, if there is one.
        data: What it was converted with.
    """
    from amp_rewrite.page.evidence import Evidence, measured, sizes_of
    from amp_rewrite.page.render import write_page
    from amp_rewrite.report.next_steps import Names

    model, source, output, written = files
    evidence = Evidence(
        names=Names(model.name, output.name),
        sizes=sizes_of(model, result, written),
        verification=None if made is None else made.verification,
        histograms=measured(source, result, data) if data else {},
        tuning=None if made is None else made.tuning,
    )
    write_page(page, result, report, evidence)
