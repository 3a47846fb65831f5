#!/usr/bin/env python3
"""Models on an Arm processor: this machine's own, or one that qemu emulates in a process.

Usage: arm_processor.py > ROWS.json, and then make_kernel_table.py --rows ROWS.json

make_arm64.py makes a folder in which Python and ONNX Runtime for aarch64 run on an x86-64 machine;
its program `run` starts Python there. The environment variable AMP_REWRITE_ARM64 names the folder.
One process serves all sessions: starting it takes some seconds. The numbers are an Arm processor's,
the times mean nothing. As a program this prints the kernels that ONNX Runtime has there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any

import arm_worker
import onnx_ir as ir
from arm_worker import packed, unpacked
from kernel_rows import arm_kernels
from runtime_kernels import kernel_rows, row, runtime_in_words

from amp_rewrite.base.processor import is_arm
from amp_rewrite.errors import AmpError, OptionError, RunError
from amp_rewrite.graph.io.load import Source
from amp_rewrite.numerics.emulate.emulated_feeds import feed_specs
from amp_rewrite.numerics.emulate.evaluator import Evaluator, choose_outputs, widen_boundary
from amp_rewrite.numerics.emulate.typed_model import TypedModel
from amp_rewrite.runtimes.engines import open_session
from amp_rewrite.runtimes.model_source import model_source
from amp_rewrite.runtimes.session import Session

FOLDER = "AMP_REWRITE_ARM64"
"""The environment variable that names the folder."""

_REMEDY = f"run this on an Arm machine, or tools/arm64/make_arm64.py FOLDER and {FOLDER}=FOLDER"


class ArmEvaluator(Evaluator):
    """Runs one model on an Arm processor, as `Evaluator(model, emulate=False)` does on this one."""

    def __init__(self, model: Source) -> None:
        """Load a model.

        Raises:
            AmpError: There is no Arm processor, or ONNX Runtime cannot load the model there.
        """
        typed = TypedModel.own(model)
        self.inputs = MappingProxyType(feed_specs(typed.model, typed.types))
        self._fetches = choose_outputs(typed.model, typed.types, None)
        self.outputs = tuple(fetch.name for fetch in self._fetches)
        widen_boundary(typed.model, typed.types)
        self._narrow = False
        self._session: Any = open_on_arm(typed.model)


def open_on_arm(model: ir.Model) -> Session | EmulatedSession:
    """Load a model on an Arm processor; the model is not needed any more afterwards.

    Raises:
        OptionError: There is no Arm processor, neither a real nor an emulated one.
        RunError: ONNX Runtime cannot load the model.
    """
    return open_session(model) if is_arm() else EmulatedSession(model, machine())


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
            "this machine has no Arm processor, and no emulated one is named", remedy=_REMEDY
        )
    program = Path(named).expanduser().resolve() / "run"
    if not os.access(program, os.X_OK):
        raise OptionError(
            "the folder of the emulated Arm processor has no program called run",
            found=named,
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
        script = Path(arm_worker.__file__).resolve()
        self._process = subprocess.Popen(
            [program, "-P", str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
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
                arm_worker.send(self._process.stdin, (method, arguments))  # pyright: ignore[reportArgumentType]
                done, answer = arm_worker.receive(self._process.stdout)  # pyright: ignore[reportArgumentType]
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


class EmulatedSession:
    """A session in the process of an emulated Arm processor."""

    def __init__(self, model: ir.Model, processor: Machine) -> None:
        """Load a model.

        Raises:
            RunError: ONNX Runtime cannot load it.
        """
        self._machine, self._number = processor, processor.number()
        failure = "ONNX Runtime on Arm cannot load the model"
        source = model_source(model, self)
        self.outputs: list[str] = processor.ask(failure, "load", self._number, source)
        weakref.finalize(self, _close, processor, self._number)

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> list[Any]:
        """Return outputs in order, all of them by default.

        Raises:
            RunError: ONNX Runtime reports an error.
        """
        failure = "ONNX Runtime on Arm cannot run the model on these inputs"
        given = {name: packed(value) for name, value in feeds.items()}
        names = list(outputs or self.outputs)
        return [unpacked(v) for v in self._machine.ask(failure, "run", self._number, names, given)]


def _close(processor: Machine, number: int) -> None:
    """Let the worker forget a model, unless it has ended."""
    if not processor.has_ended:
        with suppress(RunError):
            processor.ask("the model is not forgotten", "close", number)


def runtime_there() -> str:
    """Return the name and version of ONNX Runtime on the Arm processor."""
    return runtime_in_words() if is_arm() else f"onnxruntime {machine().version}"


def main() -> int:
    """Print the kernels as make_kernel_table.py reads them; return the exit status."""
    try:
        if is_arm():
            rows = kernel_rows()
        else:
            failure = "ONNX Runtime on Arm cannot list its kernels"
            rows = [row(*kernel) for kernel in machine().ask(failure, "kernels")]
        print(json.dumps(arm_kernels(rows, runtime_there())))
    except AmpError as error:
        print(f"arm_processor: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
