"""`amp-rewrite report`: a rewrite as a page for a browser."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from amp_rewrite.base.printable import counted
from amp_rewrite.base.progress import progress_bar
from amp_rewrite.cli import common
from amp_rewrite.cli.rewrite_options import with_rewrite_options
from amp_rewrite.cli.streams import delivered
from amp_rewrite.errors import AmpError, OptionError
from amp_rewrite.graph.io.model_files import check_output_path, check_writable
from amp_rewrite.page.comparison import Other, types_in
from amp_rewrite.page.evidence import Evidence, differing, measured
from amp_rewrite.page.model_explorer import overlays, write_overlays
from amp_rewrite.page.render import write_page
from amp_rewrite.rewriting.api import RewriteResult, rewrite
from amp_rewrite.rewriting.plan.options import RewriteOptions
from amp_rewrite.rewriting.report.file_sizes import size_of, sizes_of, sizes_of_files
from amp_rewrite.rewriting.report.gains import headline
from amp_rewrite.rewriting.report.next_steps import Names

if TYPE_CHECKING:
    from amp_rewrite.numerics.compare.verify_report import VerifyReport
    from amp_rewrite.rewriting.report.rewrite_report import Report


@with_rewrite_options("strict")
def report(
    model: Annotated[Path, typer.Argument(help="The ONNX model, before rewriting.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The page to write.")
    ] = None,
    rewritten: Annotated[
        Path | None,
        typer.Argument(help="The output of convert with the same options, if you have it."),
    ] = None,
    *,
    options: RewriteOptions,
    data: Annotated[
        list[Path] | None,
        typer.Option(help="Measure magnitudes and errors on these data: " + common.DATA_KINDS),
    ] = None,
    verify: Annotated[
        bool | None,
        typer.Option(
            "--verify/--no-verify",
            help="Run both models and compare them; without --data, on made-up inputs. Default: "
            "with --data, REWRITTEN or --compare.",
        ),
    ] = None,
    compare: Annotated[
        Path | None,
        typer.Option(help="Another tool's conversion of MODEL, to show side by side."),
    ] = None,
    model_explorer: Annotated[
        Path | None,
        typer.Option(
            help="Write node data for Google's Model Explorer here: types; reasons, errors and "
            "ranges go to files next to it."
        ),
    ] = None,
    quiet: common.Quiet = False,
) -> None:
    """Write a page for a browser that shows what a conversion of MODEL does, and why."""
    _check_outputs([output, model_explorer], [model, rewritten, compare])
    common.refuse_data(data, output, model_explorer)
    if compare is not None and output is None:
        raise OptionError("the page alone compares two files", remedy="-o report.html")
    runs = bool(data or rewritten or compare) if verify is None else verify
    with progress_bar("rewriting", quiet=quiet) as progress:
        result = rewrite(model, options)
        verification = _verify_result(model, rewritten, result, data, progress) if runs else None
        evidence = Evidence(
            names=_names(model, rewritten, options, data),
            sizes=sizes_of(model, result.flat, result.plan, None)
            if rewritten is None
            else sizes_of_files(model, rewritten),
            verification=verification,
            histograms=measured(model, result, data or None) if runs else {},
            remarks=_remarks(result, rewritten),
        )
        rewrite_report = _report(result, verification)
        other = (
            None
            if compare is None
            else _compare_other(model, compare, result, data, progress, runs=runs)
        )
        written = _write(result, rewrite_report, evidence, other, output, model_explorer)
    if not quiet:
        out = common.console()
        common.say_cpu(options.target, out)
        out.print(headline(rewrite_report.precision, rewrite_report.summary, evidence.sizes))
        for remark in evidence.remarks:
            out.print(remark)
        for path in written:
            out.print(f"wrote {delivered(path)}")


def _check_outputs(outputs: list[Path | None], models: list[Path | None]) -> None:
    """Refuse files that cannot be written, that are one, or that would overwrite a model."""
    written = [path for path in outputs if path is not None]
    if not written:
        raise OptionError(
            "there is nothing to write", remedy="-o report.html, or --model-explorer overlay.json"
        )
    for path in written:
        for model in models:
            if model is not None:
                check_output_path(model, path)
        check_writable(path)
    if len({path.resolve() for path in written}) < len(written):
        raise OptionError("two outputs are one file", found=str(written[0]))


def _report(result: RewriteResult, verification: VerifyReport | None) -> Report:
    """Return the report, with the sizes of the lengths given, else of the verified run, if any."""
    if result.options.lengths:
        return result.report_of_sizes()
    return result.report if verification is None else result.report_of_run(verification.shapes)


def _write(
    result: RewriteResult,
    report: Report,
    evidence: Evidence,
    other: Other | None,
    page: Path | None,
    overlay: Path | None,
) -> list[Path]:
    """Write what was asked for; return the files."""
    written: list[Path] = []
    if page is not None:
        write_page(page, result, report, evidence, other)
        written.append(page)
    if overlay is not None:
        written += write_overlays(overlay, overlays(result, report, evidence))
    return written


def _names(
    model: Path, rewritten: Path | None, options: RewriteOptions, data: list[Path] | None
) -> Names:
    after = model.with_suffix(f".{options.precision}.onnx") if rewritten is None else rewritten
    data_names = tuple(path.name for path in data or ())
    return Names(model.name, after.name, data_names, written=rewritten is not None)


def _verify_result(
    model: Path,
    rewritten: Path | None,
    result: RewriteResult,
    data: list[Path] | None,
    progress: Callable[..., None],
) -> VerifyReport:
    from amp_rewrite.numerics.compare.verify import verify

    return verify(
        model,
        result.model if rewritten is None else rewritten,
        data or None,
        stress=False,
        input_ranges=result.options.ranges,
        target=result.options.chosen_target,
        progress=progress,
    )


def _compare_other(
    model: Path,
    path: Path,
    result: RewriteResult,
    data: list[Path] | None,
    progress: Callable[..., None],
    *,
    runs: bool,
) -> Other:
    """Return what another tool made of the model, and how far it is from it, if it runs at all."""
    types = types_in(result, path)
    other = Other(path.name, size_of(path), types)
    if not runs:
        return other
    try:
        return replace(other, verification=_verify_result(model, path, result, data, progress))
    except AmpError as error:
        return replace(other, failure=" ".join(str(error).split()))


def _remarks(result: RewriteResult, rewritten: Path | None) -> tuple[str, ...]:
    """Say where a file is not what the options make of the model."""
    names = () if rewritten is None else differing(result, rewritten)
    if not names or rewritten is None:
        return ()
    return (
        f"{rewritten.name} was made with other options: {counted(len(names), 'node')} of another "
        f"type, first {names[0]}; sizes and accuracy are those of the file, the rest is "
        "what these options make.",
    )
