"""ONNX Runtime as a module: missing, and its errors."""

import sys

import pytest

from amp_rewrite.errors import RunError, RuntimeMissingError
from amp_rewrite.runtimes.ort.runtime import import_runtime, import_state, one_line


def test_a_missing_runtime_names_the_remedy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    for load in (import_runtime, import_state):
        with pytest.raises(RuntimeMissingError, match=r"pip install onnxruntime"):
            load()


def raise_it(error: type[Exception], text: str) -> None:
    with one_line("it does not work"):
        raise error(text)


def test_an_error_of_the_runtime_is_its_first_line():
    text = "\n[ONNXRuntimeError] : 1 : FAIL : no such thing " + "x" * 600 + "\nStacktrace:\n..."
    for error in (import_state().Fail, RuntimeError, ValueError):
        with pytest.raises(RunError, match=r"it does not work; found \[ONNX.* : no such") as caught:
            raise_it(error, text)
        assert len(str(caught.value.found)) == 500
        assert isinstance(caught.value.__cause__, error)
