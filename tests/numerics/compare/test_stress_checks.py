"""Stress inputs in a verification: what breaks, what is named, what is left out.

The rewritten models are written by hand, so that no pass protects them.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from amp_rewrite.numerics.compare.verify import verify
from amp_rewrite.numerics.compare.verify_records import StressReport, StressResult
from amp_rewrite.numerics.compare.verify_report import VerifyReport

HEADER = '<ir_version: 10, opset_import: ["" : 20]>'


def parsed(text: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(HEADER + text)
    for index, node in enumerate(model.graph.node):
        node.name = f"n{index}"
    return model


def pair(text: str, low: int = 10, **fields: object) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """Return a model in float32 and in a low type, whose number stands for {type}."""
    original, rewritten = (parsed(text.format(type=t, **fields)) for t in (1, low))
    return original, rewritten


def numbers(count: int, number: float = 0.5) -> str:
    """Return the elements of a constant."""
    return ",".join([f"{number:g}"] * count)


def result(report: VerifyReport, name: str) -> StressResult:
    assert report.stress is not None
    [found] = [r for r in report.stress.results if r.name == name]
    return found


ROTARY = """g (int64[1,s] position_ids) => (float[1,s] y) {{
  p = Cast <to = {type}> (position_ids) c = Constant <value = float {{0.37}}> ()
  f = Cast <to = {type}> (c) angle = Mul(p, f) wide = Cast <to = 1> (angle) y = Cos(wide) }}"""


@pytest.mark.parametrize("low", [10, 16])
def test_late_positions_break_angles_in_16_bits_and_are_named(low: int) -> None:
    original, rewritten = pair(ROTARY, low)
    assert verify(original, rewritten, stress=False).ok
    report = verify(original, rewritten)
    found = result(report, "late positions")
    assert not report.ok
    assert found.outcome == "failed"
    assert found.inputs == ("position_ids [1, 16] 99984..99999",)
    assert found.first is not None
    assert found.first.op in ("Cast", "Mul", "Cos")
    [line] = [f for f in report.failures if "late positions" in f]
    assert "position_ids [1, 16] 99984..99999" in line
    assert found.first.value in line
    assert line in report.to_text()


MASKED = """g (float[1,s,s] q, int64[1,s] attention_mask) => (float[1,s,s] y) {{
  s = MatMul(q, q) f = Cast <to = 1> (attention_mask) one = Constant <value = float {{1}}> ()
  i = Sub(one, f) c = Constant <value = float {{-131008}}> () low = Cast <to = {type}> (c)
  h = Cast <to = {type}> (i) m = Mul(h, low) w = Cast <to = 1> (m) t = Add(s, w)
  y = Softmax(t) }}"""


def test_a_mask_beyond_the_range_breaks_on_fully_masked_rows() -> None:
    original, rewritten = pair(MASKED)
    found = result(verify(original, rewritten), "fully masked rows")
    assert (found.outcome, found.outputs[0].nan) == ("failed", 256)
    assert found.first is not None
    assert "elements are infinite" in str(found.first)


SUM = """g (uint8[1,3,32,32] photo) => (float[1,1,1,1] y) <float[1,3,32,32] w = {{{ones}}}> {{
  f = Cast <to = {type}> (photo) v = Cast <to = {type}> (w) d = Conv(f, v)
  l = Cast <to = 1> (d) y = Log(l) }}"""


def test_bytes_of_an_image_overflow_a_sum_in_float16() -> None:
    original, rewritten = pair(SUM, ones=numbers(3 * 32 * 32, 0.25))
    found = result(verify(original, rewritten), "image 0..255")
    assert (found.outcome, found.outputs[0].inf) == ("failed", 1)
    assert found.first is not None
    assert (found.first.op, found.first.value) == ("Conv", "d")


HIDDEN = """g (float[1,4] x) => (float[1,4] y) {{
  c = Constant <value = float[4,4] {{{weights}}}> () v = Cast <to = {type}> (c)
  h = Cast <to = {type}> (x) m = MatMul(h, v) w = Cast <to = 1> (m) y = Tanh(w) }}"""


def test_an_infinity_inside_fails_even_if_the_outputs_absorb_it() -> None:
    original, rewritten = pair(HIDDEN, weights=numbers(16, 30000))
    report = verify(original, rewritten)
    found = result(report, "large constants")
    assert verify(original, rewritten, stress=False).verdict.status == "not compared"
    assert found.outcome == "failed"
    assert "though the outputs do not show it" in found.why
    assert found.first is not None
    assert found.first.value == "m"


def test_hundreds_are_doubted_where_nothing_tells_the_scale() -> None:
    original, rewritten = pair(HIDDEN, weights=numbers(16, 300))
    report = verify(original, rewritten)
    assert report.failures == ()
    assert result(report, "large constants").outcome == "held"
    assert result(report, "unnormalised numbers").outcome == "doubtful"
    assert "doubtful: on unnormalised numbers (x [1, 4] 100..100)" in report.to_text()
    data = verify(original, rewritten, {"x": np.full((1, 4), 90, np.float32)}, stress=True)
    assert result(data, "large constants").outcome == "failed"
    assert not any(r.name == "unnormalised numbers" for r in data.stress.results)  # pyright: ignore


FLOW = """g (float[n,2] x) => (float[n,2] y) {{
  w = Constant <value = float[2,2] {{0.5, 0, 0.5, 0}}> () h = MatMul(x, w) r = Relu(h)
  e = Exp(r) c = Cast <to = {type}> (e) d = Cast <to = {type}> (x) m = Mul(c, d)
  y = Cast <to = 1> (m) }}"""

SCORES = """g (float[1,s,8] x) => (float[1,s,8] y) {{
  h = Cast <to = {type}> (x) t = Transpose <perm = [0, 2, 1]> (h) p = MatMul(h, t)
  w = Cast <to = 1> (p) a = Softmax(w) b = Cast <to = {type}> (a) m = MatMul(b, h)
  y = Cast <to = 1> (m) }}"""


@pytest.mark.parametrize(
    "text",
    [
        FLOW,
        SCORES.replace("MatMul(h, t)", "MatMul(f, t)").replace(
            "t = T",
            "k = Constant <value = float {{20}}> () q = Cast <to = {type}> (k) f = Mul(h, q) t = T",
        ),
    ],
)
def test_a_model_of_normalised_inputs_does_not_fail_on_hundreds(text: str) -> None:
    report = verify(*pair(text))
    assert report.ok
    lost = result(report, "unnormalised numbers").outcome == "doubtful"
    assert (", but not on unnormalised numbers" in str(report.verdict)) is lost


def plain(operator: str, inputs: str = "float[1,4] x") -> onnx.ModelProto:
    return parsed(f"g ({inputs}) => (float[1,4] y) {{ {operator} }}")


def test_what_gives_nan_in_float32_is_left_out_and_said_so() -> None:
    model = plain("s = Sub(x, x) z = Mul(x, x) y = Div(z, x)")
    report = verify(model, model)
    found = result(report, "zeros")
    assert (found.outcome, found.why) == ("left out", "the original gives NaN")
    assert report.ok
    assert "left out: zeros: the original gives NaN" in report.to_text()


def test_what_float32_cannot_run_is_left_out_and_said_so() -> None:
    model = parsed(
        f"""g (int64[1,s] position_ids) => (float[1,s] y) {{
          start = Constant <value = float[64] {{{numbers(64)}}}> () f = Cast <to = 1> (position_ids)
          n = Neg(start) a = Abs(position_ids) t = Gather(n, a) s = Add(t, f) y = Cos(s) }}"""
    )
    found = result(verify(model, model), "late positions")
    assert found.outcome == "left out"
    assert "the original cannot run on it" in found.why


def test_what_moves_the_original_as_far_is_no_failure() -> None:
    # the direction of the difference of nearly equal numbers
    text = """g (float[1,4] x) => (float[1,4] y) {{
      c = Constant <value = float[1,4] {{0.9998, 1.0003, 0.9996, 1.0007}}> ()
      k = Cast <to = {type}> (c) h = Cast <to = {type}> (x) d = Sub(h, k)
      w = Cast <to = 1> (d) axis = Constant <value_ints = [1]> () s = ReduceL2(w, axis)
      y = Div(w, s) }}"""
    report = verify(*pair(text))
    found = result(report, "repeated values")
    assert found.outcome == "left out"
    assert found.why == "the original itself changes as much when its inputs are rounded"


SIGNAL = """g (float[1,samples] x) => (float[a,b,c] y) {{
  axes = Constant <value = int64[1] {{1}}> () u = Unsqueeze(x, axes)
  k = Constant <value = float[1,1,2] {{{weight}, {weight}}}> () v = Cast <to = {type}> (k)
  h = Cast <to = {type}> (u) d = Conv(h, v) y = Cast <to = 1> (d) }}"""


def test_another_scale_of_a_signal_is_doubted_and_does_not_fail() -> None:
    report = verify(*pair(SIGNAL, weight=3))
    assert result(report, "sound of 16 bits").outcome == "doubtful"
    assert (report.verdict.status, report.failures) == ("in doubt", ())
    [doubt] = report.verdict.doubts
    assert doubt.startswith("on sound of 16 bits (x [1, 16] ")
    assert "--input-range NAME=LOW:HIGH" in doubt
    assert doubt in str(report.verdict)


def test_a_declared_range_leaves_no_doubt() -> None:
    report = verify(*pair(SIGNAL, weight=3), input_ranges=["x=-1:1"])
    assert report.stress is not None
    assert {r.outcome for r in report.stress.results} == {"held"}
    assert result(report, "ends of the range").outcome == "held"
    wide = verify(*pair(SIGNAL, weight=3), input_ranges={"x": (-32768, 32767)})
    assert result(wide, "ends of the range").outcome == "failed"


def test_an_output_that_is_next_to_nothing_is_held_to_its_usual_size() -> None:
    text = """g (float[1,4] x) => (float[1,4] y) {{
      c = Constant <value = float {{0.00001}}> () k = Cast <to = {type}> (c)
      h = Cast <to = {type}> (x) d = Add(h, k) y = Cast <to = 1> (d) }}"""
    found = result(verify(*pair(text)), "zeros")
    assert found.outcome == "held"
    assert 0 < found.outputs[0].max_abs < 1e-6


def test_data_are_stressed_if_asked_for_and_their_shapes_kept() -> None:
    model = plain("y = Tanh(x)", "float[b,seq] x")
    data = {"x": np.ones((3, 5), np.float32)}
    assert verify(model, model, data).stress is None
    report = verify(model, model, data, stress=True)
    assert result(report, "zeros").inputs == ("x [3, 5] 0..0",)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(3.1, "3.1 s; budget 5 s"), (12.1, "12.1 s; the last one ended after the budget of 5 s")],
)
def test_a_budget_that_was_passed_is_said_to_be(seconds: float, said: str) -> None:
    line = f"stress inputs ({said}): none fit this model"
    assert StressReport((), seconds, 5.0).lines() == [line]


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


def stepping(text: str, low: int, reading: int = 1) -> onnx.ModelProto:
    filled = text.format(low=low, held=NAMES[low], reading=reading, read=NAMES[reading])
    return onnx.parser.parse_model(filled)


@pytest.mark.parametrize("low", [10, 16])
def test_a_filter_whose_state_leaves_float16_after_a_few_steps_fails(low: int) -> None:
    report = verify(stepping(FILTER, 1), stepping(FILTER, low))
    assert not report.ok
    assert report.stress is not None
    tried = {result.name: result.inputs for result in report.stress.results}
    assert tried["repeated values"] == ("x [1000, 1] 1..1",)


def test_a_filter_in_float32_passes() -> None:
    assert verify(stepping(FILTER, 1), stepping(FILTER, 1)).ok


def test_small_steps_that_are_lost_fail_where_an_input_says_how_many_there_are() -> None:
    report = verify(stepping(COUNTER, 1), stepping(COUNTER, 10))
    assert report.stress is not None
    failed = [result.name for result in report.stress.results if result.outcome == "failed"]
    assert "zeros" in failed
    assert not any(
        "zeros" in line for line in verify(stepping(COUNTER, 1), stepping(COUNTER, 1)).failures
    )
