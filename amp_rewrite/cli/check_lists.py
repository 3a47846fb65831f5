"""`amp-rewrite check-lists`: the CI check of op lists and of models against them."""

from __future__ import annotations

from pathlib import Path

from click.exceptions import Exit

from amp_rewrite.base.progress import progress_bar
from amp_rewrite.cli import common
from amp_rewrite.cli.parameters import argument, option
from amp_rewrite.oplists import list_check


def check_lists(
    files: list[str] | None = argument(
        "Op list files, built-in names or models. Default: all built-in lists.", None
    ),
    model: list[Path] | None = option(None, "A model whose operators must be on the lists."),
    format_: common.Format = option(
        common.Format.TEXT, "text, json, or github (annotations).", "--format"
    ),
) -> None:
    """Check op lists against ONNX schemas and kernel tables, and models against op lists."""
    with progress_bar("checking"):
        report = list_check.check_lists(files or None, models=model or ())
    common.print_findings(report, format_)
    raise Exit(report.exit_status)
