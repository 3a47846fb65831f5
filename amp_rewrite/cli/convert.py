"""`amp-rewrite convert`: rewrite a model file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from amp_rewrite import targets
from amp_rewrite.api import RewriteResult, rewrite
from amp_rewrite.cli import common
from amp_rewrite.errors import InvariantError, OptionError
from amp_rewrite.graph.functions import inline_all
from amp_rewrite.graph.invariants.check_model import verify_invariants
from amp_rewrite.graph.io.atomic import check_target
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.io.save import check_output_path, save
from amp_rewrite.report.records import print_report
from amp_rewrite.report.strict import shortcomings
from amp_rewrite.report.write_text import write_text


def convert(
    model: Annotated[Path, typer.Argument(help="The ONNX model.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the result.")],
    precision: common.Precision = "float16",
    target: common.Target = targets.DEFAULT,
    lists: common.ListFiles = None,
    level: common.Level = "default",
    keep_io_types: common.KeepIoTypes = True,
    keep_io: common.KeepIo = None,
    preserve: common.Preserve = None,
    deny_node: common.DenyNode = None,
    allow_node: common.AllowNode = None,
    weights: common.Weights = "convert",
    infer_after_allow: common.InferAfterAllow = True,
    inline_functions: common.InlineFunctions = False,
    report: common.ReportFile = None,
    dry_run: Annotated[bool, typer.Option(help="Say what would change; write no model.")] = False,
    strict: Annotated[
        bool,
        typer.Option(
            help="Check every invariant; exit 3 if nothing useful was converted, an operator is on "
            "no list, or a kernel is missing."
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option(help="Print errors only.")] = False,
) -> None:
    """Rewrite MODEL to mixed precision."""
    arguments = common.rewrite_arguments(locals())
    check_output_path(model, output)
    if report is not None:
        check_target(str(report.parent), report.name)
        if report.resolve() in (model.resolve(), output.resolve()):
            raise OptionError("the report would overwrite a model", where=report)
    result = rewrite(model, **arguments)
    missing = shortcomings(result.report) if strict else ()
    if strict:
        _check_invariants(model, result, arguments["keep_io_types"])
    if not dry_run and not missing:
        save(result.model, output)
    if report is not None:
        write_text(report, result.report.to_json())
    _print(result, output, dry_run=dry_run or bool(missing), quiet=quiet)
    for line in missing:
        common.error_console().print(f"amp-rewrite: --strict: {line}", markup=False)
    if missing:
        raise typer.Exit(common.NOT_STRICT)


def _check_invariants(model: Path, result: RewriteResult, keep_io_types: bool | list[str]) -> None:
    original = load(model)
    if result.options.inline_functions:
        inline_all(original)
    violations = verify_invariants(original, result.model, keep_io_types=keep_io_types)
    if violations:
        first = violations[0]
        raise InvariantError(
            f"{first.invariant} does not hold: {first.message}",
            where=first.where,
            remedy="please report this with the model; nothing was written",
        )


def _print(result: RewriteResult, output: Path, *, dry_run: bool, quiet: bool) -> None:
    out = common.console(quiet=quiet)
    if quiet:
        return
    print_report(result.report, out)
    if dry_run:
        out.print("nothing was written")
    else:
        out.print(f"wrote {output}", markup=False)
