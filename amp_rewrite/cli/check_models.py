"""`amp-rewrite check-models`: the CI check of the model files that a change touches."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from amp_rewrite.base.progress import progress_bar
from amp_rewrite.cli import common
from amp_rewrite.errors import SaveError
from amp_rewrite.numerics.model_checks import check_models as run_checks
from amp_rewrite.rewriting.plan.options import RewriteOptions


def check_models(
    files: Annotated[list[Path], typer.Argument(help="ONNX models.")],
    target: Annotated[
        str | None,
        typer.Option(help="Target of the models. Default: the one recorded in a file, else cuda."),
    ] = None,
    run: Annotated[
        bool, typer.Option("--run/--no-run", help="Run the models; --no-run applies rules only.")
    ] = True,
    format_: common.Formatted = common.Format.TEXT,
    summary: Annotated[
        Path | None,
        typer.Option(help="Append a Markdown table here, for example $GITHUB_STEP_SUMMARY."),
    ] = None,
) -> None:
    """Check ONNX files in CI: 16-bit files for safety, and against their float32 files.

    model.fp16.onnx (or model_fp16.onnx, model.bf16.onnx) is compared with model.onnx in the same
    folder, if that exists. Exit status 1: a model failed; 4: none failed, one is in doubt.
    """
    with progress_bar("checking"):
        checks = run_checks(files, RewriteOptions(target=target), run=run)
    common.print_findings(checks, format_)
    if summary is not None:
        _append(summary, checks.to_markdown())
    if not checks.ok:
        raise typer.Exit(common.FAILED if checks.failed else common.IN_DOUBT)


def _append(path: Path, text: str) -> None:
    """Add a text to the end of a file.

    Raises:
        SaveError: It cannot be written.
    """
    try:
        with path.open("a", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise SaveError(
            "the summary cannot be written", where=path, found=error.strerror
        ) from error
