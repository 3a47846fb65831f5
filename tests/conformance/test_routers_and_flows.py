"""What DeepSeek-V3 and RAFT have and others lack, small: experts in groups, and looked-up flow."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import amp_rewrite as amp
from amp_rewrite.dtypes import Precision

Array = np.ndarray[Any, Any]

TARGETS = [("float16", "cuda"), ("bfloat16", "cuda"), ("float16", "webgpu")]


def _model(text: str, **constants: Array) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 22]> {text}')
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name) for name, array in constants.items()
    )
    return model


def _weight(rng: np.random.Generator, *shape: int) -> Array:
    return (rng.standard_normal(shape) / shape[-2] ** 0.5).astype(np.float32)


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
    model = _model(
        ROUTER,
        router=np.eye(32, 16, dtype=np.float32),
        bias=(0.01 * rng.standard_normal(16)).astype(np.float32),
        none=np.zeros((24, 4), np.float32),
        ones=np.ones((24, 2), np.float32),
        lowest=np.array(-np.inf, np.float32),
        up=_weight(rng, 16, 32, 32),
        down=_weight(rng, 16, 32, 32),
    )
    x = rng.standard_normal((24, 32)).astype(np.float32)
    x[:, :16] = [rng.permutation(np.linspace(-3, 3, 16)) for _ in range(24)]  # no near ties
    return model, {"x": x}


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
    model = _model(
        FLOW,
        features=(rng.standard_normal((8, 3, 3, 3)) / 27**0.5).astype(np.float32),
        ones=np.ones(8, np.float32),
        zeros=np.zeros(8, np.float32),
        to_unit=np.full(2, 2 / 7, np.float32),
        window=offsets[None].astype(np.float32),
        coords0=np.stack([x, y], -1).reshape(64, 1, 1, 2).astype(np.float32),
        inside=rng.random((64, 1, 1, 1)) < 0.9,
        hidden=_weight(rng, 9, 16),
        step=_weight(rng, 16, 2),
    )
    first = rng.standard_normal((1, 3, 16, 16)).astype(np.float32)
    return model, {"a": first, "b": np.roll(first, 2, 3)}


@pytest.mark.parametrize("made", [_router, _flow], ids=["router", "flow"])
@pytest.mark.parametrize(("precision", "target"), TARGETS)
def test_a_model_of_parts_that_choose_and_look_up_holds(
    precision: Precision, target: str, made: Any
) -> None:
    model, feeds = made()
    result = amp.rewrite(model, precision=precision, target=target)
    assert result.report.summary.compute_converted > 0
    report = amp.verify(model, result.model, feeds, stress=False)
    assert report.ok, report.failures
    assert not report.infinities
