"""The Arm processor: this machine's own, or one that qemu emulates in a process.

tools/arm64/make_arm64.py makes a folder in which Python and ONNX Runtime for aarch64 run on an
x86-64 machine; its program `run` starts Python there. One process serves all sessions: starting it
takes some seconds.
"""

from __future__ import annotations

import os
import platform
import subprocess
import threading
import weakref
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from amp_rewrite.errors import OptionError, RunError
from amp_rewrite.runtimes.ort.arm64 import worker
from amp_rewrite.targets import ARM64

FOLDER = "AMP_REWRITE_ARM64"
"""The environment variable that names the folder."""

NO_TIMES = (
    "an emulated Arm processor ran this: its numbers are an Arm processor's, its times mean nothing"
)

_NAMES = ("arm64", "aarch64")

_REMEDY = (
    f"run this on an Arm machine, or `python tools/arm64/make_arm64.py FOLDER` in a checkout of "
    f"amp-rewrite and name the folder: --arm64-folder FOLDER, or {FOLDER}=FOLDER in the environment"
)


def is_arm() -> bool:
    """Return whether this machine has such a processor itself."""
    return platform.machine().lower() in _NAMES


@contextmanager
def emulated_in(folder: Path) -> Generator[None]:
    """Take the emulated processor of a folder in the block.

    Raises:
        OptionError: This machine has an Arm processor itself, or the folder has no program.
    """
    if is_arm():
        raise OptionError(
            "this machine has an Arm processor itself and emulates none",
            found=str(folder),
            remedy="omit the folder",
        )
    before = os.environ.get(FOLDER)
    os.environ[FOLDER] = str(folder)
    try:
        _program()
        yield
    finally:
        if before is None:
            del os.environ[FOLDER]
        else:
            os.environ[FOLDER] = before


def check_machine() -> None:
    """Refuse where there is no Arm processor, neither a real nor an emulated one.

    Raises:
        OptionError: There is none.
    """
    if not is_arm():
        _program()


def _program() -> Path:
    """Return the program that starts Python on the emulated processor.

    Raises:
        OptionError: No folder is named, or it has no such program.
    """
    named = os.environ.get(FOLDER, "")
    if not named:
        raise OptionError(
            "this machine has no Arm processor, and no emulated one is named",
            where=ARM64,
            found=platform.machine(),
            expected=" or ".join(_NAMES),
            remedy=_REMEDY,
        )
    program = Path(named).expanduser().resolve() / "run"
    if not os.access(program, os.X_OK):
        raise OptionError(
            "the folder of the emulated Arm processor has no program called run",
            where=ARM64,
            found=named,
            expected="a folder that tools/arm64/make_arm64.py made",
            remedy=_REMEDY,
        )
    return program


def machine() -> Machine:
    """Return the emulated processor of this process, which is started when it is first needed.

    Raises:
        OptionError: There is none.
        RunError: It does not start.
    """
    program = _program()
    processor = _started(program)
    if processor.has_ended:
        _started.cache_clear()
        processor = _started(program)
    return processor


@cache
def _started(program: Path) -> Machine:
    return Machine(program)


class Machine:
    """A process on the emulated processor; it ends with this object, or with this process.

    Attributes:
        version: That of its ONNX Runtime.
    """

    def __init__(self, program: Path) -> None:
        """Start it.

        Raises:
            RunError: It does not start.
        """
        script = Path(worker.__file__).resolve()
        try:
            self._process = subprocess.Popen(
                [program, "-P", str(script)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            raise RunError(
                "the emulated Arm processor does not start",
                where=program,
                found=error.strerror or str(error),
                remedy="make its folder again with tools/arm64/make_arm64.py",
            ) from error
        self._numbers, self._lock = count(), threading.Lock()
        self._end = weakref.finalize(self, _end, self._process)
        self.version: str = self.ask("ONNX Runtime does not start on the emulated Arm", "about")

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended, as a fault in a kernel ends it."""
        return self._process.poll() is not None

    def number(self) -> int:
        """Return a number that no session has yet."""
        return next(self._numbers)

    def ask(self, failure: str, method: str, *arguments: Any) -> Any:
        """Return the answer of a method of the worker; `failure` is what an error says.

        Raises:
            RunError: It reports an error, or its process has ended.
        """
        if self._process.stdin is None or self._process.stdout is None:  # they are pipes
            raise RunError(failure)
        with self._lock:
            try:
                worker.send(self._process.stdin, (method, arguments))  # pyright: ignore[reportArgumentType]
                done, answer = worker.receive(self._process.stdout)  # pyright: ignore[reportArgumentType]
            except (EOFError, OSError) as error:
                status = self._process.wait()
                raise RunError(failure, found=f"its process ended with status {status}") from error
        if not done:
            lines = str(answer).strip().splitlines() or ["no message"]
            raise RunError(failure, found=lines[0][:500])
        return answer


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):  # what was not sent has nobody to read it
                stream.close()
