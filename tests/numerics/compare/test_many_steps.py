"""Errors that a loop gathers show in a verification without data: made-up sequences are long."""

from __future__ import annotations

import onnx
import pytest

from amp_rewrite.numerics.compare.verify import verify

NAMES = {1: "float", 10: "float16", 16: "bfloat16"}

FILTER = """<ir_version: 10, opset_import: ["" : 20]>
g (float[steps,1] x) => (float[steps,1] y) <int64[1] one = {{1}}> {{
  poles = Constant <value = float[4,4] {{3.9179078654, -5.7570763791, 3.7603495077, -0.9211819292,
    1, 0, 0, 0,  0, 1, 0, 0,  0, 0, 1, 0}}> ()
  enters = Constant <value = float[4,1] {{1, 0, 0, 0}}> ()
  reads = Constant <value = float[1,4] {{4.6281299e-7, 1.4199232e-8, 4.5360348e-7, 4.60702e-9}}> ()
  rest = Constant <value = float[4,1] {{0, 0, 0, 0}}> ()
  a = Cast <to = {low}> (poles) b = Cast <to = {low}> (enters) c = Cast <to = {reading}> (reads)
  start = Cast <to = {low}> (rest) u = Cast <to = {low}> (x)
  last, z = Scan <num_scan_inputs = 1, body = step ({held}[4,1] s, {held}[1] e) =>
    ({held}[4,1] next, {read}[1] out) {{
      moved = MatMul(a, s) entering = Mul(b, e) next = Add(moved, entering)
      state = Cast <to = {reading}> (next) product = MatMul(c, state) out = Reshape(product, one)
    }}> (start, u)
  y = Cast <to = 1> (z) }}"""
"""A Butterworth filter of order 4 that passes a hundredth of the frequencies."""

COUNTER = """<ir_version: 10, opset_import: ["" : 20]>
g (int64 n, float[2] x) => (float[2] y) <bool go = {{1}}> {{
  part = Constant <value = float {{0.0001}}> () d = Cast <to = {low}> (part)
  s = Cast <to = {low}> (x)
  z = Loop <body = step (int64 i, bool on, {held}[2] s0) => (bool more, {held}[2] s1) {{
      more = Identity(on) s1 = Add(s0, d) }}> (n, go, s)
  y = Cast <to = 1> (z) }}"""


def parsed(text: str, low: int, reading: int = 1) -> onnx.ModelProto:
    filled = text.format(low=low, held=NAMES[low], reading=reading, read=NAMES[reading])
    return onnx.parser.parse_model(filled)


@pytest.mark.parametrize("low", [10, 16])
def test_a_filter_whose_state_leaves_float16_after_a_few_steps_fails(low: int) -> None:
    report = verify(parsed(FILTER, 1), parsed(FILTER, low))
    assert not report.ok
    assert report.stress is not None
    tried = {result.name: result.inputs for result in report.stress.results}
    assert tried["repeated values"] == ("x [1000, 1] 1..1",)


def test_a_filter_in_float32_passes() -> None:
    assert verify(parsed(FILTER, 1), parsed(FILTER, 1)).ok


def test_small_steps_that_are_lost_fail_where_an_input_says_how_many_there_are() -> None:
    report = verify(parsed(COUNTER, 1), parsed(COUNTER, 10))
    assert report.stress is not None
    failed = [result.name for result in report.stress.results if result.outcome == "failed"]
    assert "zeros" in failed
    assert not any(
        "zeros" in line for line in verify(parsed(COUNTER, 1), parsed(COUNTER, 1)).failures
    )
