"""The entry point: one application of click, and errors as one line."""

from __future__ import annotations

import atexit
import errno
import gc
import io
import logging
import os
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import click

from amp_rewrite.base.version import __version__
from amp_rewrite.cli.command_table import FIRST, SETTINGS, Commands, epilog, understood
from amp_rewrite.cli.common import (
    FAILED,
    INTERRUPTED,
    NOT_STRICT,
    WRONG_USAGE,
    error_console,
    in_flags,
)
from amp_rewrite.cli.own_process import run_apart
from amp_rewrite.cli.parameters import command_of, option
from amp_rewrite.errors import AmpError, OptionError, SaveError, StrictError, UnloadableError

_REASONS = frozenset({errno.ENOSPC, errno.EIO, errno.EBADF, errno.EFBIG, errno.EPIPE})


def _version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(__version__)
        context.exit()


def _options(
    debug: bool = option(False, "Show tracebacks of errors."),
    version: bool = option(False, "Show the version.", callback=_version, is_eager=True),
) -> None:
    """Automatic mixed precision for ONNX, as a compiler pass."""
    del debug, version  # --debug is read from the arguments, for it matters outside of click too


app = command_of(_options, Commands, SETTINGS, no_args_is_help=True, epilog=epilog(FIRST))


def _warnings_once() -> Callable[..., None]:
    """Return a function that prints each warning as one line, once."""
    shown = set[str]()

    def show(message: Warning | str, *_: Any) -> None:
        line = f"amp-rewrite: warning: {' '.join(str(message).split())}"
        if line not in shown:
            error_console().print(line)
        shown.add(line)

    return show


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line and leave with its exit status.

    Without `arguments` it reads those of this process, and runs models in another process.
    """
    is_own = arguments is None
    if arguments is None:
        _set_up_process()
        arguments = sys.argv[1:]
    status: int | None = None
    try:
        arguments = understood(arguments)
        with warnings.catch_warnings():
            warnings.showwarning = _warnings_once()
            if is_own and (status := run_apart(arguments)) is not None:
                sys.exit(status)
            _run(arguments)
    except StrictError as error:
        for line in error.shortcomings:
            _print_error(f"amp-rewrite: --{error.option}: {line}")
        sys.exit(NOT_STRICT)
    except (KeyboardInterrupt, click.Abort):
        _say_interrupted()
        sys.exit(INTERRUPTED)
    except Exception as error:
        if "--debug" in arguments:
            raise
        _print_error(_one_line(error))
        if isinstance(error, UnloadableError):
            sys.exit(NOT_STRICT)
        sys.exit(WRONG_USAGE if isinstance(error, OptionError) else FAILED)


def _run(arguments: list[str]) -> None:
    """Run a command and flush what it printed."""
    try:
        status = app.main(arguments, prog_name="amp-rewrite", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except OSError as error:
        _check_standard_output(error)
        raise
    _check_standard_output()
    if status == INTERRUPTED:
        _say_interrupted()
    sys.exit(status or 0)


def _print_error(text: str) -> None:
    """Print a line to standard error, if anything can be printed there."""
    with suppress(OSError):
        error_console().print(text)


def _one_line(error: Exception) -> str:
    """Return what a user sees of an error; no traceback even of a defect."""
    if isinstance(error, AmpError):
        text = in_flags(str(error)) if isinstance(error, OptionError) else str(error)
        return f"amp-rewrite: {text}"
    said = " ".join(str(error).split())
    what = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return f"amp-rewrite: internal error: {what}; please report it with the model and --debug"


def _set_up_process() -> None:
    """Set up a process that runs one command."""
    # Libraries log what they then raise, or get over; Python prints it if nobody else does.
    logging.getLogger().addHandler(logging.NullHandler())
    if logging.lastResort is not None:  # which then prints what we log ourselves, as shards do
        logging.getLogger("amp_rewrite").addHandler(logging.lastResort)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name need not be of the locale's letters
            stream.reconfigure(errors="backslashreplace")
    # numpy starts a thread of OpenBLAS for each core when it is imported: 0.07 CPU s on two cores.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # The garbage collector would look through all imported modules, and the objects of a model,
    # which stay until the process ends: 0.1 CPU s.
    gc.set_threshold(2_000_000)
    atexit.register(gc.freeze)


def _say_interrupted() -> None:
    _print_error("amp-rewrite: interrupted; files that were not finished stay as they were")


def _check_standard_output(error: OSError | None = None) -> None:
    """Flush standard output; an `error` that names no file may be about it, too.

    Raises:
        SaveError: It cannot be written; what waits is dropped, so that the process ends quietly.
    """
    if sys.stdout is None or sys.stdout.closed:  # pyright: ignore[reportUnnecessaryComparison] it is None if the process began without one
        return
    try:
        if error is not None and error.filename is None and error.errno in _REASONS:
            raise error
        sys.stdout.flush()
    except OSError as problem:
        # Python writes what still waits once more when it ends: it goes nowhere.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        raise SaveError(
            "standard output cannot be written",
            found=problem.strerror or problem,
            remedy="write to a file, or to a pipe that something reads",
        ) from problem
