"""ONNX Runtime as a module: missing, and its errors."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from amp_rewrite.errors import RunError, RuntimeMissingError
from amp_rewrite.runtimes.ort.runtime import import_runtime, import_state, one_line


def test_a_missing_runtime_names_the_remedy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    for load in (import_runtime, import_state):
        with pytest.raises(RuntimeMissingError, match=r"pip install 'amp-rewrite\[cpu\]'"):
            load()


def test_a_thread_waits_while_another_imports_the_runtime(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / "onnxruntime.py").write_text("import time; time.sleep(0.2); ready = True")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)  # put back as it was, or absent
    del sys.modules["onnxruntime"]
    monkeypatch.syspath_prepend(tmp_path)
    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(lambda: import_runtime().ready) for _ in range(2)]
        assert [future.result() for future in found] == [True, True]


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


def test_an_error_without_a_text_is_its_name():
    with pytest.raises(RunError, match="it does not work; found ValueError"):
        raise_it(ValueError, "")


def test_other_errors_pass():
    with pytest.raises(KeyError):
        raise_it(KeyError, "x")
