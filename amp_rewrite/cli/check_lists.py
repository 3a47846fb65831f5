"""`amp-rewrite check-lists`: the CI check of op lists and of models against them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from amp_rewrite.base.progress import progress_bar
from amp_rewrite.oplists import list_check


class Format(StrEnum):
    """How the findings are printed."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"


def check_lists(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="Op list files, built-in names or models. Default: all built-in lists."
        ),
    ] = None,
    model: Annotated[
        list[Path] | None,
        typer.Option("--model", help="A model whose operators must be on the lists."),
    ] = None,
    format_: Annotated[
        Format, typer.Option("--format", help="text, json, or github (annotations).")
    ] = Format.TEXT,
) -> None:
    """Check op lists against ONNX schemas and kernel tables, and models against op lists."""
    with progress_bar("checking"):
        report = list_check.check_lists(files or None, models=model or ())
    forms = {
        Format.TEXT: report.to_text,
        Format.JSON: report.to_json,
        Format.GITHUB: report.to_github,
    }
    text = forms[format_]()
    if text:
        typer.echo(text)
    raise typer.Exit(report.exit_status)
