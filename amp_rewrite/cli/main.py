"""The entry point: one typer application, and errors as one line."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Annotated, Any

import typer

from amp_rewrite.cli.command_table import Commands
from amp_rewrite.cli.common import FAILED, INTERRUPTED, NOT_STRICT, error_console
from amp_rewrite.errors import AmpError, StrictError

app = typer.Typer(
    cls=Commands,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Automatic mixed precision for ONNX, as a compiler pass.",
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(version("amp-rewrite"))
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option(help="Show tracebacks of errors.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    del debug, version  # --debug is read from the arguments, for it matters outside of typer too


def _show_warning(message: Warning | str, *place: Any) -> None:
    """Print a warning as one line; where in the package it arose helps no user."""
    del place
    error_console().print(f"amp-rewrite: warning: {' '.join(str(message).split())}", markup=False)


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line and leave with its exit status.

    Args:
        arguments: The arguments; those of the process by default.
    """
    # numpy starts a thread of OpenBLAS for each core when it is imported, which takes 0.07 CPU s on
    # two cores; no command multiplies matrices with it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    given = sys.argv[1:] if arguments is None else arguments
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            app(given, prog_name="amp-rewrite")
    except StrictError as error:
        for line in error.shortcomings:
            error_console().print(f"amp-rewrite: --strict: {line}", markup=False)
        sys.exit(NOT_STRICT)
    except AmpError as error:
        if "--debug" in given:
            raise
        error_console().print(f"amp-rewrite: {error}", markup=False)
        sys.exit(FAILED)
    except Exception as error:  # a defect; no traceback reaches a user all the same
        if "--debug" in given:
            raise
        what = " ".join(f"{type(error).__name__}: {error}".split())
        line = f"amp-rewrite: internal error: {what}; please report it with the model and --debug"
        error_console().print(line, markup=False)
        sys.exit(FAILED)
    except KeyboardInterrupt:
        _say_interrupted()
        sys.exit(INTERRUPTED)
    except SystemExit as leaving:  # typer turns the interruption of a command into this
        if leaving.code == INTERRUPTED:
            _say_interrupted()
        raise


def _say_interrupted() -> None:
    error_console().print(
        "amp-rewrite: interrupted; files that were not finished stay as they were", markup=False
    )
