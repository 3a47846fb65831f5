"""Formulas of public models that others lack: Snake, linear attention, experts in groups, flow."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from named_nodes import WAYS, error, model, reasons, types, weight

import amp_rewrite as amp
from amp_rewrite.dtypes import FLOAT16

Array = np.ndarray[Any, Any]

# Snake, the activation of vocoders: its square is bounded, and nothing follows it into float32.
SNAKE = """g (float[1,4,64] x) => (float[1,4,64] y)
  <float two = {2}, float[1,4,1] a = {1, 3, 0.5, 8}, float[1,4,1] b = {1, 0.333333, 2, 0.125}> {
    h = Conv<pads = [1, 1]>(x, w)
    ah = Mul(a, h)
    s = Sin(ah)
    q = Pow(s, two)
    p = Mul(q, b)
    t = Add(h, p)
    y = Conv<pads = [1, 1]>(t, w)
}"""

LAST = """g (float[4,16] x) => (float[4,16] y) <float two = {2}, int64[1] axes = {-1}> {
    h = MatMul(x, v)
    s = Tanh(h)
    q = Pow(s, two)
    r = ReduceSum(q, axes)
    t = Add(h, r)
    y = MatMul(t, v)
}"""


def activated(text: str) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    return model(text, w=rng.standard_normal((4, 4, 3)) / 3, v=rng.standard_normal((16, 16)) / 4)


@pytest.mark.parametrize("way", WAYS)
def test_only_sine_and_square_of_snake_stay_float32(way: str) -> None:
    source = activated(SNAKE)
    result = amp.rewrite(source, **WAYS[way])
    found = types(result)
    assert found["Add"] == found["Conv"] == WAYS[way]["precision"]
    assert found["Pow"] == found["Sin"] == "float32"
    assert "it is on the deny list" in amp.explain(result, "Pow_3")
    assert result.report.summary.casts_added == 4  # two of them at the ends of the model
    x = np.random.default_rng(1).standard_normal((1, 4, 64)).astype(np.float32)
    assert error(source, result, {"x": x}) < 2


def test_a_small_square_that_is_summed_up_keeps_what_follows_float32() -> None:
    assert reasons(amp.rewrite(activated(LAST)))["Add_4"] == "downstream-of-deny"


# Linear attention: products of activations that nothing but their quotient bounds.
TWO_PRODUCTS = """
    kv = MatMul(kt, v) num = MatMul(rq, kv)
    ks = MatMul(kt, ones) den = MatMul(rq, ks) de = Add(den, eps)
    o = Div(num, de)"""
PADDED_VALUES = """
    vp = Concat<axis = 2>(v, ones) kv = MatMul(kt, vp) both = MatMul(rq, kv)
    num = Slice(both, zero, last, axis) den = Slice(both, last, end, axis) de = Add(den, eps)
    o = Div(num, de)"""
SUMMED_KEYS = """
    kv = MatMul(kt, v) num = MatMul(rq, kv)
    st = ReduceSum(rk, tokens) p = Mul(rq, st) den = ReduceSum(p, axis) de = Add(den, eps)
    o = Div(num, de)"""


def attention(quotient: str) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    source = model(
        f"""g (float[1,256,32] x) => (float[1,256,32] y)
        <float eps = {{1e-5}}, int64[1] axis = {{2}}, int64[1] tokens = {{1}},
         int64[1] zero = {{0}}, int64[1] last = {{16}}, int64[1] end = {{17}}> {{
            q = MatMul(x, wq) k = MatMul(x, wk) v = MatMul(x, wv)
            rq = Relu(q) rk = Relu(k) kt = Transpose<perm = [0, 2, 1]>(rk)
            {quotient}
            y = MatMul(o, wo)
        }}""",
        **{f"w{name}": rng.standard_normal((32, 16)) for name in "qkv"},
        wo=rng.standard_normal((16, 32)) / 4,
        ones=np.ones((1, 256, 1)),
    )
    return onnx.shape_inference.infer_shapes(source)


@pytest.mark.filterwarnings("ignore:.*stays float32.*:amp_rewrite.errors.AmpWarning")
@pytest.mark.parametrize("quotient", [TWO_PRODUCTS, PADDED_VALUES, SUMMED_KEYS])
@pytest.mark.parametrize("way", WAYS)
def test_linear_attention_is_right_for_activations_of_any_size(way: str, quotient: str) -> None:
    source = attention(quotient)
    result = amp.rewrite(source, **WAYS[way])
    assert result.report.summary.compute_converted > 0.3
    x = 3 * np.random.default_rng(1).standard_normal((1, 256, 32)).astype(np.float32)
    middle = amp.evaluate(source, {"x": x}, outputs=["de"])["de"]
    assert middle.max() > FLOAT16.max
    assert error(source, result, {"x": x}) < 2


def test_the_products_are_named_in_a_warning() -> None:
    with pytest.warns(amp.AmpWarning, match="nothing bounds products of activations .MatMul_6"):
        amp.rewrite(attention(TWO_PRODUCTS))


def test_attention_with_a_softmax_stays_low() -> None:
    softmax = """t = MatMul(rq, kt) p = Softmax(t) a = MatMul(p, v) n = Add(eps, eps)
                 o = Mul(a, n)"""
    result = amp.rewrite(attention(softmax))
    assert result.report.summary.compute_converted == 1.0


# Groups of experts by the sum of their best two, all others filled with minus infinity, the best
# four of the rest, and the outputs of these by their shares.
ROUTER = """g (float[24,32] x) => (float[24,32] y)
  <int64[1] two = {2}, int64[1] four = {4}, int64[1] last = {-1}, int64[1] middle = {1},
   int64[3] grouped = {24,4,4}, int64[2] flat = {24,16}, int64 experts = {16},
   float[2] off_on = {0,1}, float tiny = {1e-20}, float scale = {2.5}> {
    logits = MatMul(x, router)
    scores = Sigmoid(logits)
    biased = Add(scores, bias)
    groups = Reshape(biased, grouped)
    best, place = TopK(groups, two)
    sums = ReduceSum<keepdims = 0>(best, last)
    most, chosen = TopK<sorted = 0>(sums, two)
    mask = ScatterElements<axis = 1>(none, chosen, ones)
    column = Unsqueeze(mask, last)
    wide = Expand(column, grouped)
    rows = Reshape(wide, flat)
    keep = Cast<to = 9>(rows)
    left = Not(keep)
    filled = Where(left, lowest, biased)
    top, experts_of = TopK<sorted = 0>(filled, four)
    picked = GatherElements<axis = 1>(scores, experts_of)
    total = ReduceSum(picked, last)
    sum = Add(total, tiny)
    share = Div(picked, sum)
    scaled = Mul(share, scale)
    hot = OneHot(experts_of, experts, off_on)
    wider = Unsqueeze(scaled, middle)
    gates = MatMul(wider, hot)
    h = MatMul(x, up)
    s = Sigmoid(h)
    a = Mul(h, s)
    o = MatMul(a, down)
    t = Transpose<perm = [1, 0, 2]>(o)
    mixed = MatMul(gates, t)
    y = Squeeze(mixed, middle)
  }"""


def _router() -> tuple[onnx.ModelProto, dict[str, Array]]:
    rng = np.random.default_rng(0)
    source = model(
        ROUTER,
        router=np.eye(32, 16),
        bias=(0.01 * rng.standard_normal(16)),
        none=np.zeros((24, 4)),
        ones=np.ones((24, 2)),
        lowest=-np.inf,
        up=weight(rng, 16, 32, 32),
        down=weight(rng, 16, 32, 32),
    )
    x = rng.standard_normal((24, 32)).astype(np.float32)
    x[:, :16] = [rng.permutation(np.linspace(-3, 3, 16)) for _ in range(24)]  # no near ties
    return source, {"x": x}


# All pairs of places of two pictures, looked up around where each place has moved to, four times.
ROUND = """
    at{i} = Mul(coords{i}, to_unit)
    centred{i} = Sub(at{i}, one)
    grid{i} = Add(centred{i}, window)
    found{i} = GridSample<align_corners = 1>(pairs, grid{i})
    row{i} = Reshape(found{i}, nine)
    h{i} = MatMul(row{i}, hidden)
    r{i} = Tanh(h{i})
    d{i} = MatMul(r{i}, step)
    delta{i} = Reshape(d{i}, place)
    moved{i} = Where(inside, delta{i}, zero)
    coords{n} = Add(coords{i}, moved{i})
"""
FLOW = """g (float[1,3,16,16] a, float[1,3,16,16] b) => (float[64,1,1,2] flow)
  <int64[3] flat = {1,8,64}, int64[4] volume = {64,1,8,8}, int64[2] nine = {64,9},
   int64[4] place = {64,1,1,2}, float one = {1}, float zero = {0}, float root = {0.3535534}> {
    f = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(a, features)
    k = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(b, features)
    nf = InstanceNormalization(f, ones, zeros)
    nk = InstanceNormalization(k, ones, zeros)
    u = Reshape(nf, flat)
    v = Reshape(nk, flat)
    ut = Transpose<perm = [0, 2, 1]>(u)
    c = MatMul(ut, v)
    scaled = Mul(c, root)
    pairs = Reshape(scaled, volume)
    ROUNDS
    flow = Sub(coords4, coords0)
  }""".replace("ROUNDS", "".join(ROUND.format(i=i, n=i + 1) for i in range(4)))


def _flow() -> tuple[onnx.ModelProto, dict[str, Array]]:
    rng = np.random.default_rng(1)
    y, x = np.meshgrid(np.arange(8), np.arange(8), indexing="ij")
    offsets = np.stack(np.meshgrid([-1, 0, 1], [-1, 0, 1]), -1) * 2 / 7
    source = model(
        FLOW,
        features=(rng.standard_normal((8, 3, 3, 3)) / 27**0.5),
        ones=np.ones(8),
        zeros=np.zeros(8),
        to_unit=np.full(2, 2 / 7),
        window=offsets[None],
        coords0=np.stack([x, y], -1).reshape(64, 1, 1, 2) * 1.0,
        inside=rng.random((64, 1, 1, 1)) < 0.9,
        hidden=weight(rng, 9, 16),
        step=weight(rng, 16, 2),
    )
    first = rng.standard_normal((1, 3, 16, 16)).astype(np.float32)
    return source, {"a": first, "b": np.roll(first, 2, 3)}


@pytest.mark.parametrize("made", [_router, _flow], ids=["router", "flow"])
@pytest.mark.parametrize("way", WAYS)
def test_a_model_of_parts_that_choose_and_look_up_holds(way: str, made: Any) -> None:
    source, feeds = made()
    result = amp.rewrite(source, **WAYS[way])
    assert result.report.summary.compute_converted > 0
    report = amp.verify(source, result.model, feeds, stress=False)
    assert report.ok, report.failures
    assert not report.infinities
