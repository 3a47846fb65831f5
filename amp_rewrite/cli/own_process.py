"""A command in a process of its own, so that a crash of an engine becomes one line.

Some models crash ONNX Runtime, when it loads them or later. The process that the user started waits
for another one, which does the work with the same streams, and names the model.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType

from amp_rewrite.base.processor import fault_of
from amp_rewrite.errors import RunError

_COMPUTING = frozenset({"calibrate", "inputs", "localise", "run", "tune", "verify"})

_AT_TIMES = frozenset({"check", "convert", "repair"})
_IF = ("--data", "--verify", "--stress")
"""Commands that run models if they are given one of these options; others read files only."""

_IN_CI = ("--format", "--summary")
"""With these, or with several files, `check` runs models that nobody has looked at."""

_MARK = "AMP_REWRITE_OWN_PROCESS"
"""Set in the environment of the process that does the work."""

_FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP")
"""Signals that end the process that waits, and is for the one that works."""

_DIES_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of Linux's prctl."""


def run_apart(arguments: Sequence[str]) -> int | None:
    """Run a command in another process if it runs models; return its exit status, else None.

    Raises:
        RunError: The process was ended by a fault.
    """
    command = next((word for word in arguments if not word.startswith("-")), "")
    if os.environ.pop(_MARK, None) is not None:
        _prepare()
        return None
    if "--help" in arguments or not _computes(command, arguments):
        return None
    try:
        status = _wait_for(arguments)
    except OSError:  # no process can be started; the work is done here
        return None
    ending = fault_of(status)
    if status == -getattr(signal, "SIGKILL", 0) != 0:
        ending = "SIGKILL: the system does that when memory runs out"
    if ending is not None:
        raise RunError(
            "the process that ran the model was ended",
            where=" or ".join(_models(arguments)),
            found=ending,
            remedy="run the model with optimisations of the engine off, or with another version",
        )
    return status if status >= 0 else 128 - status


def _computes(command: str, arguments: Sequence[str]) -> bool:
    flags = {word.partition("=")[0] for word in arguments}
    if command in _COMPUTING or (command in _AT_TIMES and not flags.isdisjoint(_IF)):
        return True
    return command == "check" and (len(_models(arguments)) > 1 or not flags.isdisjoint(_IN_CI))


def _wait_for(arguments: Sequence[str]) -> int:
    # -P: run in a checkout, a folder onnx would stand before the installed package.
    words = [sys.executable, "-P", "-m", "amp_rewrite", *arguments]
    child = subprocess.Popen(
        words, env={**os.environ, _MARK: "1"}, start_new_session=os.name == "posix"
    )

    def forward(number: int, _: FrameType | None) -> None:
        if os.name == "posix":  # elsewhere the console has told both
            with suppress(ProcessLookupError):
                child.send_signal(number)

    for name in _FORWARDED:
        if (number := getattr(signal, name, None)) is not None:
            signal.signal(number, forward)
    return child.wait()


def _prepare() -> None:
    """Let the process that works end with the one that waits, and leave no memory dump."""
    with suppress(ImportError, ValueError, OSError, AttributeError):
        import ctypes  # where it is needed only: most commands do without
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGKILL)


def _models(arguments: Sequence[str]) -> list[str]:
    """Return the models among the arguments; all arguments that are files if none is one."""
    files = [word for word in arguments[1:] if os.path.isfile(word)]
    return [word for word in files if word.endswith(".onnx")] or files
