"""ONNX Runtime as a module: missing, and its errors."""

import sys
import time

import numpy as np
import onnx_ir as ir
import pytest

from amp_rewrite.errors import OutOfTimeError, RunError, RuntimeMissingError
from amp_rewrite.runtimes.ort.runtime import import_runtime, import_state, one_line, time_limit
from amp_rewrite.runtimes.ort.sessions import Session


def test_a_missing_runtime_names_the_remedy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    for load in (import_runtime, import_state):
        with pytest.raises(RuntimeMissingError, match=r"pip install 'amp-rewrite\[cpu\]'"):
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


LONG = """<ir_version: 8, opset_import: ["" : 17]>
g (int64 count, float[64,64] x) => (float[64,64] y) {
  go = Constant<value = bool {1}>()
  y = Loop(count, go, x) <body = b (int64 i, bool c, float[64,64] h) => (bool d, float[64,64] n) {
    d = Identity(c) s = MatMul(h, h) n = Tanh(s) }> }"""


def feeds(count: int) -> dict[str, object]:
    return {"count": np.array(count), "x": np.eye(64, dtype=np.float32)}


def session() -> Session:
    return Session(ir.from_onnx_text(LONG))


def test_a_run_ends_at_the_limit() -> None:
    model, start = session(), time.monotonic()
    with pytest.raises(OutOfTimeError, match="the time is over"), time_limit(start + 0.2):
        model.run(feeds(1 << 40))
    assert time.monotonic() - start < 10  # an endless one, on whatever is slow


def test_a_limit_that_is_over_begins_neither_a_run_nor_a_load() -> None:
    model = session()
    with time_limit(time.monotonic()):
        with pytest.raises(OutOfTimeError):
            model.run(feeds(1))
        with pytest.raises(OutOfTimeError):
            session()
    assert model.run(feeds(1))
