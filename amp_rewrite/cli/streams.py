"""`-` in place of a file: a model or data from standard input, a result to standard output.

Commands know files alone, so that what is checked and written whole is so here, too: a stream is a
file in a folder of its own, which is read before the command and written out behind it.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from typer.core import TyperArgument, TyperOption

from amp_rewrite.cli.standard_output import write_to_standard_output
from amp_rewrite.errors import OptionError, SaveError

STREAM = "-"
_DATA = ("data", "held_out")
_MODELS = ("model", "models", "original", "rewritten", "forward", "graph", "step")
_RESULTS = ("output", "report")
_OPEN: ContextVar[Mapping[str, str]] = ContextVar("streams", default={})  # noqa: B039 never changed
"""The folders of streams -> the options that write there; nothing for what is read."""

_SUFFIXES = {
    **dict.fromkeys(("calibrate", "tune"), ".yaml"),
    "doctor": ".json",
    **dict.fromkeys(("run", "inputs"), ".npz"),
}
"""Command -> how the name of what it writes ends; others write models."""


_KINDS = {
    b"PK": ".npz",
    b"PAR1": ".parquet",
    b"ARROW1": ".arrow",
    b"\xff\xff\xff\xff": ".arrow",
    b"": ".csv",
}
"""How data begin -> how the name of their file ends; what begins otherwise is text."""


def with_streams(command: Any) -> Any:
    """Let the models and results of a command be streams; return the command."""
    for parameter in command.params:
        if parameter.name in _MODELS and isinstance(parameter, TyperArgument):
            parameter.callback = _model_from_stdin
        elif parameter.name in _DATA and isinstance(parameter, TyperOption):
            parameter.callback = _data_from_stdin
        elif parameter.name in _RESULTS and isinstance(parameter, TyperOption):
            parameter.callback = _to_stdout
    return command


def shown(path: Path) -> str:
    """Return how a path is shown to the user: a stream as it was given."""
    return STREAM if str(path.parent) in _OPEN.get() else str(path)


def delivered(path: Path) -> str:
    """Write a result to standard output if it is for that; return how its path is shown.

    Nothing says before that it is written.

    Raises:
        SaveError: It cannot be written there.
    """
    if str(path.parent) in _OPEN.get():
        _write(path)
        path.unlink(missing_ok=True)
    return shown(path)


def writes_data() -> bool:
    """Return whether standard output is for data, so that messages go elsewhere."""
    return any(_OPEN.get().values())


def _folder(context: Any, option: str) -> Path:
    folder = tempfile.mkdtemp(prefix="amp-rewrite-")
    before = _OPEN.set({**_OPEN.get(), folder: option})

    def close() -> None:
        _OPEN.reset(before)
        shutil.rmtree(folder, ignore_errors=True)

    context.call_on_close(close)
    return Path(folder)


def _model_from_stdin(context: Any, parameter: Any, value: Any) -> Any:
    if isinstance(value, list | tuple):
        items: Iterable[Any] = value
        return [_model_from_stdin(context, parameter, item) for item in items]
    is_stream = value is not None and str(value) == STREAM
    return _from_stdin(context, {b"": ".onnx"}) if is_stream else value


def _data_from_stdin(context: Any, parameter: Any, value: Any) -> Any:
    if isinstance(value, list | tuple):
        items: Iterable[Any] = value
        return [_data_from_stdin(context, parameter, item) for item in items]
    is_stream = value is not None and str(value) == STREAM
    return _from_stdin(context, _KINDS) if is_stream else value


def _from_stdin(context: Any, kinds: Mapping[bytes, str]) -> Path:
    """Return a file with what standard input holds, whose name ends as such files' do."""
    if "" in _OPEN.get().values():
        raise OptionError("two arguments read standard input", found=STREAM)
    content = sys.stdin.buffer.read()
    suffix = next(suffix for begins, suffix in kinds.items() if content.startswith(begins))
    path = _folder(context, "") / f"stdin{suffix}"
    path.write_bytes(content)
    return path


def _to_stdout(context: Any, parameter: Any, value: Any) -> Any:
    if value is None or str(value) != STREAM:
        return value
    if writes_data():
        raise OptionError(
            "two results for standard output",
            found=", ".join([*filter(None, _OPEN.get().values()), parameter.opts[0]]),
            remedy="name a file for one of them",
        )
    folder = _folder(context, parameter.opts[0])
    suffix = _SUFFIXES.get(context.command.name, ".onnx")
    path = folder / f"stdout{suffix if parameter.name == 'output' else '.json'}"
    context.call_on_close(lambda: _write(path))  # called before the folder goes
    return path


def _write(path: Path) -> None:
    """Write a result to standard output, if there is one.

    Raises:
        SaveError: It is a model that does not fit in one file, or nothing can be written there.
    """
    if not path.is_file():
        return
    content = path.read_bytes() if len(list(path.parent.iterdir())) == 1 else _in_one(path)
    write_to_standard_output(content)


def _in_one(path: Path) -> bytes:
    """Return a model with the data that lie in a file beside it."""
    import onnx

    from amp_rewrite.graph.io.model_files import INLINE_LIMIT

    size = sum(file.stat().st_size for file in path.parent.iterdir())
    if size > INLINE_LIMIT:
        raise SaveError(
            "the model is too large for standard output",
            found=f"{size} bytes",
            expected=f"at most {INLINE_LIMIT}, which one protobuf message holds",
            remedy="name a file; weights get one of their own beside it",
        )
    return onnx.load(path).SerializeToString()
