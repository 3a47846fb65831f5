"""The entry point: one application of click, and errors as one line."""

from __future__ import annotations

import _thread
import atexit
import errno
import gc
import io
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
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

_IMPORTS = "<frozen importlib._bootstrap>"
"""The file that frames of an import say they are of."""

_AGAIN = 0.02
"""After how many seconds it is looked again whether the import is done."""

_REMEDY = "write to a file, or to a pipe that something reads"


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
    """Return what prints a warning as one line, once: a command may read a model twice.

    Where in the package it arose helps no user.
    """
    shown = set[str]()

    def show(message: Warning | str, *_: Any) -> None:
        line = f"amp-rewrite: warning: {' '.join(str(message).split())}"
        if line not in shown:
            error_console().print(line)
        shown.add(line)

    return show


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line and leave with its exit status.

    Without `arguments` it is the command of this process; one that runs models then does so in
    another one.
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
        sys.exit(_status(error))


def _status(error: Exception) -> int:
    """Return the exit status of an error."""
    if isinstance(error, UnloadableError):
        return NOT_STRICT
    return WRONG_USAGE if isinstance(error, OptionError) else FAILED


def _run(arguments: list[str]) -> None:
    """Run a command; what it printed is out when it has ended.

    Raises:
        SaveError: Standard output cannot be written.
    """
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
    wait_for_imports()
    # Libraries log what they then raise, or get over; Python prints it if nobody else does.
    logging.getLogger().addHandler(logging.NullHandler())
    if logging.lastResort is not None:  # which then prints what we log ourselves, as shards do
        logging.getLogger("amp_rewrite").addHandler(logging.lastResort)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name need not be of the locale's letters
            stream.reconfigure(errors="backslashreplace")
    # The rest spares what takes a third of converting a small model.
    # numpy starts a thread of OpenBLAS for each core when it is imported, which takes 0.07 CPU s on
    # two cores; no command multiplies matrices with it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # What a command imports stays until the process ends: the garbage collector would look through
    # all of it a few times on the way, and once more before leaving, which takes 0.1 CPU s. A model
    # of 100,000 nodes stays as well: looking through its million objects takes as long.
    gc.set_threshold(2_000_000)
    atexit.register(gc.freeze)


def _say_interrupted() -> None:
    _print_error("amp-rewrite: interrupted; files that were not finished stay as they were")


def wait_for_imports() -> None:
    """Let SIGINT raise KeyboardInterrupt as it does, but no earlier than imports are done."""
    signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if not _is_importing(frame):
        signal.default_int_handler(number, frame)
    later = threading.Timer(_AGAIN, _interrupt_again)
    later.daemon = True
    later.start()


def _interrupt_again() -> None:
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        signal.pthread_kill(main, signal.SIGINT)  # which ends what it may be waiting for, too
    else:
        _thread.interrupt_main()


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTS:
            return True
        frame = frame.f_back
    return False


def _check_standard_output(error: OSError | None = None) -> None:
    """Write out what waits for standard output; an `error` that names no file may be of it.

    Raises:
        SaveError: It cannot be written; what waits is given up, so that the process ends quietly.
    """
    if sys.stdout is None or sys.stdout.closed:  # pyright: ignore[reportUnnecessaryComparison] it is None if the process began without one
        return
    try:
        if error is not None and error.filename is None and error.errno in _REASONS:
            raise error
        sys.stdout.flush()
    except OSError as problem:
        _give_up()
        raise SaveError(
            "standard output cannot be written", found=problem.strerror or problem, remedy=_REMEDY
        ) from problem


def _give_up() -> None:
    """Let what still waits go nowhere: Python writes it once more when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
