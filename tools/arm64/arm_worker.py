"""What runs on the Arm processor: a loop that loads models, runs them and answers.

A script of its own: it needs ONNX Runtime and numpy and nothing of this package. Requests come on
standard input, answers leave on standard output, each as its length (8 bytes) and a pickle of
built-in types; arrays are (type, shape, bytes), see `packed`.
"""

from __future__ import annotations

import importlib
import os
import pickle
import struct
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np

_LENGTH = struct.Struct("<Q")

LIST, ARRAY, TEXTS = "list", "array", "texts"

_PROVIDER = "CPUExecutionProvider"


def packed(value: Any) -> Any:
    """Return an array, a list of them or None as built-in types."""
    if value is None:
        return None
    if isinstance(value, list | tuple):
        return (LIST, [packed(item) for item in value])
    array = np.ascontiguousarray(value).reshape(np.shape(value))
    if array.dtype.kind in "OUS":
        return (TEXTS, array.shape, [str(item) for item in array.ravel().tolist()])
    return (ARRAY, array.dtype.str, array.shape, array.tobytes())


def unpacked(value: Any) -> Any:
    """Return what `packed` was given."""
    if value is None:
        return None
    if value[0] == LIST:
        return [unpacked(item) for item in value[1]]
    if value[0] == TEXTS:
        return np.array(value[2], object).reshape(value[1])
    return np.frombuffer(bytearray(value[3]), np.dtype(value[1])).reshape(value[2])


def send(stream: BinaryIO, message: Any) -> None:
    """Write a message of built-in types."""
    data = pickle.dumps(message, protocol=4)
    stream.write(_LENGTH.pack(len(data)))
    stream.write(data)
    stream.flush()


def receive(stream: BinaryIO) -> Any:
    """Return the next message.

    Raises:
        EOFError: The other side has ended.
    """
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(head)
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    return pickle.loads(data)


class Worker:
    """The models that are loaded, and what is done with them."""

    def __init__(self, runtime: Any) -> None:
        """Take the onnxruntime module."""
        self._runtime, self._sessions = runtime, dict[int, Any]()

    def about(self) -> str:
        """Return the version of ONNX Runtime."""
        return self._runtime.__version__

    def kernels(self) -> list[Any]:
        """Return the registered kernels: domain, operator, first and last version, types."""
        state: Any = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
        defs: list[Any] = state.get_all_opkernel_def()
        return [
            (
                d.provider,
                d.domain,
                d.op_name,
                *d.version_range,
                {k: list(t) for k, t in d.type_constraints.items()},
            )
            for d in defs
        ]

    def load(self, number: int, source: bytes | str) -> list[str]:
        """Load a model; return the names of its outputs."""
        options = self._runtime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        session = self._runtime.InferenceSession(source, options, providers=[_PROVIDER])
        self._sessions[number] = session
        return [value.name for value in session.get_outputs()]

    def run(self, number: int, names: list[str], feeds: dict[str, Any]) -> list[Any]:
        """Run a model; return its outputs."""
        arrays = {name: unpacked(value) for name, value in feeds.items()}
        return [packed(value) for value in self._sessions[number].run(names, arrays)]

    def close(self, number: int) -> None:
        """Forget a model."""
        self._sessions.pop(number, None)


def serve(worker: Worker, requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests (method, arguments) with (True, result) or (False, message)."""
    while True:
        try:
            method, arguments = receive(requests)
        except EOFError:
            return
        called: Callable[..., Any] = getattr(worker, method)
        try:
            answer = (True, called(*arguments))
        except Exception as error:  # noqa: BLE001 whatever it is, the other side tells the user
            answer = (False, str(error) or type(error).__name__)
        send(answers, answer)


def main() -> None:
    """Serve; what libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    import onnxruntime

    serve(Worker(onnxruntime), sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
