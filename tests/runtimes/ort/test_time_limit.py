"""A time limit ends what ONNX Runtime does, between two nodes."""

from __future__ import annotations

import time

import numpy as np
import onnx_ir as ir
import pytest

from amp_rewrite.errors import OutOfTimeError
from amp_rewrite.runtimes.ort.sessions import Session
from amp_rewrite.runtimes.ort.time_limit import time_limit

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
