"""Verdicts that can be trusted: what does not count, what is no alarm, and the yardstick."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import amp_rewrite as amp
from amp_rewrite.base.printable import percent
from amp_rewrite.errors import VerdictError
from amp_rewrite.numerics.compare.moved_inputs import CEILING
from amp_rewrite.numerics.compare.verify import verify

HEADER = '<ir_version: 9, opset_import: ["" : 18]>'


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEADER + text)


def with_weights(model: onnx.ModelProto, **shapes: tuple[int, ...]) -> onnx.ModelProto:
    """Add normal weights to a model."""
    rng = np.random.default_rng(0)
    for name, shape in shapes.items():
        weight = rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        model.graph.initializer.append(numpy_helper.from_array(weight.astype(np.float32), name))
    return model


def product() -> onnx.ModelProto:
    text = "g (float[2,4] x) => (float[2,4] y) { y = MatMul(x, w) }"
    return with_weights(parsed(text), w=(4, 4))


def batch(number: float = 1.0) -> dict[str, Any]:
    x = np.random.default_rng(1).standard_normal((2, 4)).astype(np.float32)
    x[0, 0] = number
    return {"x": x}


NONFINITE = pytest.mark.parametrize(
    ("number", "kind"), [(float("nan"), "NaN"), (float("inf"), "infinity")]
)


@NONFINITE
def test_data_on_which_the_original_is_not_finite_are_no_agreement(
    number: float, kind: str
) -> None:
    report = verify(product(), amp.rewrite(product()).model, batch(number))
    assert not report.ok
    assert report.feeds == 0
    assert (report.failures, report.verdict.decided) == ((), None)
    [line] = report.verdict.doubts
    assert line.startswith("feed 1: the original gives ")
    assert line.endswith(f"; input x holds {kind} in 1 elements")
    assert str(report.verdict) == f"Not compared: {line}"
    assert str(report.verdict) in report.to_text()


def test_data_of_nan_alone_convert_nothing(tmp_path: Path) -> None:
    found = amp.convert(product(), batch(float("nan")))
    assert found.verdict.status == "not compared"
    with pytest.raises(VerdictError, match="input x holds NaN"):
        found.save(tmp_path / "y.onnx")


@pytest.mark.parametrize("bias", [-100.0, 0.0])
def test_an_output_that_is_one_number_everywhere_is_not_said_to_hold(bias: float) -> None:
    model = with_weights(
        parsed(
            f"""g (float[2,4] x) => (float[2,4] y) <float b = {{{bias}}}> {{
              h = MatMul(x, w) s = Add(h, b) y = Sigmoid(s) }}"""
            if bias
            else "g (float[2,4] x) => (float[2,4] y) { h = MatMul(x, w) a = Abs(h) "
            "n = Neg(a) y = Relu(n) }"
        ),
        w=(4, 4),
    )
    rewritten = amp.rewrite(model, level="UNSAFE_FORCE_ALL", target="schema").model
    report = verify(model, rewritten, batch(), atol=1e-30) if not bias else None
    report = report or verify(model, model, batch())
    assert not report.compared
    assert str(report.verdict).startswith("Not compared: output y is ")
    assert report.verdict.exit_status == 4
    assert "Passed" not in report.to_text()


def test_inputs_are_made_up_without_signs_where_the_original_gives_nan_for_others() -> None:
    model = with_weights(
        parsed("g (float[2,4] x) => (float[2,4] y) { r = Sqrt(x) y = MatMul(r, w) }"), w=(4, 4)
    )
    report = verify(model, amp.rewrite(model).model)
    assert (report.ok, report.feeds, report.left_out) == (True, 1, ())


ROUTED = """g (float[4] x, bool[4] never) => (float[4] y) {{
  c = Constant <value = float {{1.0003}}> () k = Cast <to = {type}> (x)
  w = Cast <to = 1> (k) keep = Greater(w, c) i = Constant <value = float {{-inf}}> ()
  s = Where(keep, x, i) {more} y = Softmax(t) }}"""


@pytest.mark.parametrize("more", ["t = Identity(s)", "h = Add(s, x) t = Mul(h, c)"])
def test_another_choice_fills_other_places_with_minus_infinity_and_that_is_no_overflow(
    more: str,
) -> None:
    original, rewritten = (parsed(ROUTED.format(type=t, more=more)) for t in (1, 10))
    x = np.array([20, 1.0004, 0.5, 19], np.float32)
    report = verify(original, rewritten, {"x": x, "never": np.zeros(4, np.bool_)})
    assert report.infinities == ()
    assert report.ok


def test_what_overflows_to_minus_infinity_before_a_where_is_found() -> None:
    text = """g (float[4] x) => (float[4] y) {{
      k = Cast <to = {type}> (x) w = Cast <to = 1> (k) c = Constant <value = float {{0}}> ()
      keep = Greater(x, c) i = Constant <value = float {{-inf}}> () n = Not(keep)
      s = Where(n, w, i) y = Softmax(s) }}"""
    original, rewritten = (parsed(text.format(type=t)) for t in (1, 10))
    report = verify(original, rewritten, {"x": np.array([1, -1e6, -2, 3], np.float32)})
    assert not report.ok
    assert report.infinities[0].value == "k"


STEEP = """g (float[4] x) => (float[4] y)
  <float[4] c = {{1, 1.0001, 1.0002, 0.9999}}, float one = {{1}}, float tiny = {{0.00000001}}> {{
    a = Add(x, c) h = Cast <to = {type}> (a) w = Cast <to = 1> (h) d = Sub(w, one)
    n = ReduceL2(d) s = Add(n, tiny) y = Div(d, s) }}"""


def test_zeros_that_move_a_little_show_an_original_that_is_no_yardstick() -> None:
    original, rewritten = (parsed(STEEP.format(type=t)) for t in (1, 10))
    report = verify(original, rewritten)
    assert report.stress is not None
    [found] = [r for r in report.stress.results if r.name == "zeros"]
    assert (found.outcome, report.failures) == ("left out", ())
    assert found.why == "the original itself changes as much when its inputs are rounded"


ATTENTION = """g (float[1,8,16] x, bool[1,8,8] keep) => (float[1,8,16] y)
  <float zero = {{0}}, float fill = {{{fill}}}> {{
    q = MatMul(x, wq) k = MatMul(x, wk) v = MatMul(x, wv) t = Transpose <perm = [0,2,1]> (k)
    s = MatMul(q, t) m = Where(keep, zero, fill) h = Cast <to = {type}> (s)
    f = Cast <to = {type}> (m) a = Add(h, f) b = Cast <to = 1> (a) p = Softmax(b)
    y = MatMul(p, v) }}"""


def attention(fill: float, low: int = 1) -> onnx.ModelProto:
    text = ATTENTION.format(fill=fill, type=low)
    return with_weights(parsed(text), wq=(16, 16), wk=(16, 16), wv=(16, 16))


def padded(first: int = 4) -> dict[str, Any]:
    """Return a causal mask of which the first rows see nothing, and scores beyond 8."""
    keep = np.tril(np.ones((8, 8), np.bool_))
    keep[:, :first] = False
    x = 4 * np.random.default_rng(0).standard_normal((1, 8, 16))
    return {"x": x.astype(np.float32), "keep": keep[None]}


def test_rows_that_are_masked_whole_are_apart() -> None:
    original = attention(float(np.finfo(np.float32).min))
    report = verify(original, attention(-32752, 10), padded())
    (output,) = report.outputs
    assert report.ok
    assert (output.apart, output.elements) == (4 * 16, 4 * 16)
    assert "elements in fully masked rows do not count" in report.to_text()


def test_rows_that_are_masked_whole_must_stay_finite() -> None:
    original = attention(-60000.0)
    assert not verify(original, attention(float("-inf"), 10), padded()).ok


def cancelling(factor: float = 1.0) -> onnx.ModelProto:
    """Return the difference of two products whose weights are almost the same."""
    text = """g (float[4,16] x) => (float[4,16] y) {
      a = MatMul(x, w) b = MatMul(x, v) y = Sub(a, b) }"""
    w = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)
    noise = np.random.default_rng(1).standard_normal((16, 16)).astype(np.float32)
    model = parsed(text)
    for name, weight in (("w", w), ("v", w + 1e-3 * factor * noise)):
        model.graph.initializer.append(numpy_helper.from_array(weight, name))
    return model


def many(size: float = 1.0) -> dict[str, Any]:
    return {"x": size * np.random.default_rng(2).standard_normal((4, 16)).astype(np.float32)}


def test_what_the_rounded_weights_bring_alone_stands_beside_a_verdict_that_it_decides() -> None:
    report = verify(cancelling(5), amp.rewrite(cancelling(5)).model, many())
    [alone] = report.control
    assert alone.error is not None
    assert f"(rounding the weights alone: {percent(alone.error)})" in report.to_text()
    passed = verify(product(), amp.rewrite(product()).model, batch())
    assert passed.ok
    assert passed.control == passed.moves == ()


def test_a_model_that_is_as_far_off_as_its_weights_alone_is_written_if_one_insists(
    tmp_path: Path,
) -> None:
    found = amp.convert(cancelling(5), many())
    assert (found.ok, found.is_low) == (False, True)
    assert "rounding the weights alone to float16 gives the same error" in str(found.verdict)
    assert str(found.verdict).endswith("the mix that passes has nothing in float16")
    with pytest.raises(VerdictError, match=r"in doubt: .*rounding the weights alone"):
        found.save(tmp_path / "y.onnx")
    assert not (tmp_path / "y.onnx").exists()
    found.save(tmp_path / "y.onnx", write_failed=True)
    assert (tmp_path / "y.onnx").exists()


def test_an_error_of_more_than_a_quarter_of_the_output_is_never_in_doubt() -> None:
    for factor, excused in ((5, True), (1, False)):
        original = cancelling(factor)
        report = verify(original, amp.rewrite(original).model, many())
        assert report.outputs[0].error is not None
        assert (report.outputs[0].error < CEILING) is excused
        assert (report.verdict.status == "in doubt") is excused
    found = amp.convert(cancelling(), many())
    assert (found.verdict.doubts, found.ok) == ((), False)
    assert found.nothing_left is not None


def test_a_constant_with_other_numbers_is_no_rounded_weight() -> None:
    """A weight that a rewrite halved would else excuse the half."""
    half = amp.to_proto(amp.rewrite(product()).model)
    (weight,) = half.graph.initializer
    wrong_numbers = numpy_helper.to_array(weight) / 2
    weight.CopyFrom(numpy_helper.from_array(wrong_numbers.astype(np.float16), weight.name))
    report = verify(product(), half, batch())
    assert (report.verdict.status, report.control) == ("failed", ())


CLOCK = """g (int64[N,1] t) => (float[N,2] y) <int64 day = {86400}, float w = {0.0000727}> {
  r = Mod(t, day) f = Cast <to = 1> (r) a = Mul(f, w) s = Sin(a) c = Cos(a)
  h = Concat <axis = 1> (s, c) y = MatMul(h, v) }"""
SSIM = """g (float[1,1,H,W] a, float[1,1,H,W] b) => (float[1,1,J,K] y)
  <float k = {0.0001}, float l = {0.0009}, float two = {2}> {
  m = AveragePool <kernel_shape = [7,7]> (a) n = AveragePool <kernel_shape = [7,7]> (b)
  mm = Mul(m, m) nn = Mul(n, n) mn = Mul(m, n) aa = Mul(a, a) bb = Mul(b, b) ab = Mul(a, b)
  p = AveragePool <kernel_shape = [7,7]> (aa) q = AveragePool <kernel_shape = [7,7]> (bb)
  r = AveragePool <kernel_shape = [7,7]> (ab) va = Sub(p, mm) vb = Sub(q, nn) co = Sub(r, mn)
  t = Mul(mn, two) u = Add(t, k) d = Mul(co, two) e = Add(d, l) top = Mul(u, e)
  f = Add(mm, nn) g = Add(f, k) h = Add(va, vb) i = Add(h, l) low = Mul(g, i) y = Div(top, low) }"""
STEPS = """q{0}, s{0}, z{0} = DynamicQuantizeLinear(h{0}) m{0} = MatMulInteger(q{0}, w, z{0})
  f{0} = Cast <to = 1> (m{0}) r{0} = Mul(f{0}, s{0}) e{0} = Mul(r{0}, k) h{1} = Tanh(e{0})"""
INT8 = (
    "g (float[64,64] h0) => (float[64,2] y) <float k = {0.06}> {"
    + " ".join(STEPS.format(i, i + 1) for i in range(12))
    + "y = MatMul(h12, v) }"
)


def realistic(name: str) -> dict[str, Any]:
    """Return seconds since 1970, two flat pictures with noise, or normal numbers."""
    rng = np.random.default_rng(0)
    if name == "t":
        return {name: 1_700_000_000 + rng.integers(0, 10**6, (32, 1))}
    if name == "a":
        return {n: (0.7 + 0.01 * rng.random((1, 1, 24, 24))).astype(np.float32) for n in "ab"}
    return {name: rng.standard_normal((64, 64)).astype(np.float32)}


@pytest.mark.parametrize(
    ("text", "name", "size"), [(CLOCK, "t", 2), (SSIM, "a", 0), (INT8, "h0", 64)]
)
def test_all_commands_say_that_outputs_are_lost(text: str, name: str, size: int) -> None:
    model, feed = parsed(text), realistic(name)
    model = with_weights(model, v=(size, 2)) if size else model
    if "MatMulInteger" in text:
        weight = (50 * np.random.default_rng(1).standard_normal((64, 64))).clip(-127, 127)
        model.graph.initializer.append(numpy_helper.from_array(weight.astype(np.int8), "w"))
    forced = amp.rewrite(model, level="UNSAFE_FORCE_ALL", target="schema").model
    reports = verify(model, forced, feed), amp.check(forced, feed, original=model)
    assert {r.verdict.status for r in (*reports, amp.check(forced, feed))} == {"failed"}
    assert text is SSIM or verify(model, forced).verdict.status == "failed"  # made-up inputs
    found = amp.convert(model, feed)
    assert found.ok is found.is_low
    assert verify(model, found.model, feed).worst < 0.01
