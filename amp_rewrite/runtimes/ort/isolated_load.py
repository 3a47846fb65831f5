"""A model file loaded by ONNX Runtime in a process of its own, which may end with it.

Some files crash the process that loads them: ONNX Runtime 1.32.0 has a segmentation fault where it
optimises a float16 MatMul of a transposed tensor beside a depthwise ConvTranspose. The runtime's
default optimisations are on, as for users.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import onnx_ir as ir

from amp_rewrite.base.printable import printable
from amp_rewrite.base.processor import fault_of
from amp_rewrite.errors import UnloadableError
from amp_rewrite.graph.io.load import Source, unwrapped
from amp_rewrite.graph.io.model_files import INLINE_LIMIT
from amp_rewrite.graph.tensors import all_tensors
from amp_rewrite.runtimes.model_source import model_source
from amp_rewrite.targets import CPU, OPENVINO, TENSORRT, Target, find

Outcome = Literal["loaded", "refused", "ended", "no kernel", "unknown"]
"""The outcome for a file: the runtime loaded it, refused it, or ended with its process; its CPU
provider lacks a kernel that other providers may have; or this installation cannot tell."""

SECONDS = 600.0
"""How long a file may take to load. One of 10 GiB takes less than a minute."""

_LONGEST = 400
"""Characters of a message that are told."""

_LOAD = """
import sys
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no memory dump beside the user's files
except (ImportError, ValueError, OSError):
    pass
try:
    import onnxruntime
except ImportError:
    sys.exit(4)
print("onnxruntime", onnxruntime.__version__, flush=True)
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
try:
    onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
except Exception as error:
    print(error)
    sys.exit(3)
"""
_REFUSED, _MISSING = 3, 4
"""The exit statuses of this program: the runtime refused the file; there is no runtime."""

_UNREGISTERED = "is not a registered function/op"

_LACKING = (
    _UNREGISTERED,
    "Unsupported model IR version",
    "is under development and support for this is limited",
    "Failed to allocate memory",
    "bad_alloc",
)
"""Texts of messages where the installation lacks something, such as a library of operators."""

_NO_KERNEL = "NOT_IMPLEMENTED"

_PREAMBLE = re.compile(
    r"\[ONNXRuntimeError\] : \d+ : (?P<code>\w+) : (?:Load model from .*? failed:)?"
    r"(?:\S*\.(?:cc|h):\d+ .*?\) (?=[A-Z[]))?"
)
"""The text before the reason: a code, the file, and a place in the runtime's source."""


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The outcome of loading a model file with ONNX Runtime.

    Attributes:
        outcome: What became of the file.
        said: Why it was not loaded, in one line; "" if it was.
    """

    outcome: Outcome
    said: str = ""

    @property
    def failed(self) -> bool:
        """Whether the file is at fault: no ONNX Runtime of this version loads it."""
        return self.outcome in ("refused", "ended")

    @property
    def lacks_operator(self) -> bool:
        """Whether the file has operators of a library that is not registered here."""
        return self.outcome == "unknown" and _UNREGISTERED in self.said

    def fails(self, target: Target) -> bool:
        """Tell whether it speaks against a file for a target.

        A kernel that the CPU provider lacks does for the CPU alone, and what ends ONNX Runtime does
        not for engines beside it.
        """
        parts = target.parts or (target,)
        if self.outcome == "no kernel":
            return any(part.provider == CPU for part in parts)
        if self.outcome == "ended":
            return any(part.kernels not in (OPENVINO, TENSORRT) for part in parts)
        return self.failed


def isolated_load(model: Source, seconds: float = SECONDS) -> LoadResult:
    """Load a model with ONNX Runtime's CPU provider in a process of its own.

    It takes 0.3 s for a start of Python and of ONNX Runtime, and the time of loading. After
    `seconds` nothing is known of the model. One in memory is written to a temporary file first.

    Raises:
        SaveError: A model in memory cannot be written to a temporary file.
    """
    source: Any = unwrapped(model)
    if isinstance(source, str | os.PathLike):
        path: str | bytes = os.fspath(source)
        return _load_file(os.path.abspath(os.fsdecode(path)), seconds)
    with (folder := tempfile.TemporaryDirectory(prefix="amp_rewrite-")) as name:
        if isinstance(source, ir.Model):
            source = model_source(source, folder)
        path = os.path.join(name, "model.onnx")
        if isinstance(source, str):
            path = source  # of a large model
        else:
            content = source if isinstance(source, bytes) else source.SerializeToString()
            Path(path).write_bytes(content)
        return _load_file(path, seconds)


def load_of_source(model: Source) -> LoadResult | None:
    """Return the outcome for a model that a user gave; None if it would fill the disk (2 GiB)."""
    source: Any = unwrapped(model)
    if isinstance(source, ir.Model):
        weights = sum(tensor.nbytes for tensor in all_tensors(source))
        return isolated_load(source) if weights < INLINE_LIMIT else None
    return isolated_load(source)


def _load_file(path: str, seconds: float) -> LoadResult:
    try:
        status, told = _run_apart(path, seconds)
    except subprocess.TimeoutExpired:
        return LoadResult("unknown", f"ONNX Runtime did not load the file within {seconds:g} s")
    except OSError as error:
        return LoadResult("unknown", f"no process could be started: {error.strerror or error}")
    return _result(status, told, path)


def _run_apart(path: str, seconds: float) -> tuple[int, str]:
    """Return the exit status of a process that loads a file, and what it printed."""
    # -P: run in a checkout, a folder onnxruntime would stand before the installed package.
    command = [sys.executable, "-P", "-c", _LOAD, path]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
        timeout=seconds,
    )
    return done.returncode, done.stdout


def _result(status: int, told: str, path: str) -> LoadResult:
    """Return what the exit status of the other process and what it printed mean."""
    runtime, _, message = told.partition("\n")
    if status == 0:
        return LoadResult("loaded")
    if status == _MISSING:
        return LoadResult("unknown", "ONNX Runtime is not installed")
    if status == _REFUSED:
        return _refused(runtime, message, path)
    ending = fault_of(status)
    if not runtime or ending is None:
        reason = f"it ended with status {status}"
        return LoadResult("unknown", f"loading the file in a process of its own failed: {reason}")
    return LoadResult("ended", f"{runtime} ends with {ending} when it loads the file")


def _refused(runtime: str, message: str, path: str) -> LoadResult:
    preamble = _PREAMBLE.match(message)
    reason = message[preamble.end() if preamble else 0 :].replace(path, "the file")
    while inner := _PREAMBLE.match(reason):
        reason = reason[inner.end() :]
    said = printable(" ".join(reason.split())) or "no reason given"
    line = f"{runtime} refuses the file: {said[:_LONGEST]}{'...' if len(said) > _LONGEST else ''}"
    if any(words in message for words in _LACKING):
        return LoadResult("unknown", line)
    if preamble is not None and preamble["code"] == _NO_KERNEL:
        return LoadResult("no kernel", line)
    return LoadResult("refused", line)


class LoadJudge:
    """Refuses a file that ONNX Runtime does not load, unless somebody insists (`judged_by`)."""

    def __init__(self, result: Any, target: str, *, insists: bool) -> None:
        """Take what was made, and its target."""
        self._made, self._target, self._insists = result, find(target), insists
        self.result = LoadResult("unknown", "the file was not loaded")

    def __call__(self, path: str) -> None:
        """Load a file in a process of its own; UnloadableError if that fails."""
        self.result = isolated_load(path)
        if self.result.fails(self._target) and not self._insists:
            raise UnloadableError(self.result.said, self._made)
