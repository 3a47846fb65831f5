"""Outputs that hold several scales: the small ones count by themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.numerics.compare.distance import Comparer, Tolerances
from amp_rewrite.numerics.compare.slices import Slices
from amp_rewrite.numerics.compare.verify import verify

HEADER = '<ir_version: 9, opset_import: ["" : 18]>'
RNG = np.random.default_rng

WRONG = pytest.mark.parametrize("factor", [0.5, 0.0, -1.0, 2.0])

HEADS = {
    "channels first": "o = Concat<axis=1>(box, sc2)",
    "channels last": "t = Concat<axis=1>(box, sc2) o = Transpose<perm=[0,2,1]>(t)",
    "no batch": "t = Concat<axis=1>(box, sc2) o = Squeeze(t, zero)",
    "a grid": "t = Concat<axis=1>(box, sc2) o = Reshape(t, grid)",
}


def detector(head: str, factor: float, *, low: bool = False) -> onnx.ModelProto:
    """Return boxes of 0 to 640 and scores of 0 to 1, times `factor`, side by side."""
    ends = ("Cast<to=10>(f)", "Cast<to=1>(o)") if low else ("Identity(f)", "Identity(o)")
    model = onnx.parser.parse_model(
        f"""{HEADER} g (float[1,64,100] f) => (float out)
          <int64[1] zero = {{0}}, int64[4] grid = {{1,14,10,10}}> {{
          f1 = {ends[0]} b = Conv<kernel_shape=[1]>(f1, Wb) c = Conv<kernel_shape=[1]>(f1, Wc)
          bs = Sigmoid(b) box = Mul(bs, s640) sc = Sigmoid(c) sc2 = Mul(sc, k)
          {HEADS[head]} out = {ends[1]} }}"""
    )
    rng, kind = RNG(0), np.float16 if low else np.float32
    weights = {
        "Wb": rng.standard_normal((4, 64, 1)) / 8,
        "Wc": rng.standard_normal((10, 64, 1)) / 8,
        "s640": np.array(640.0),
        "k": np.array(factor),
    }
    for name, weight in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(weight.astype(kind), name))
    return model


def images(count: int = 2) -> list[dict[str, Any]]:
    rng = RNG(1)
    return [{"f": rng.standard_normal((1, 64, 100)).astype(np.float32)} for _ in range(count)]


@pytest.mark.parametrize("head", HEADS)
def test_right_scores_beside_boxes_hold(head: str) -> None:
    report = verify(detector(head, 1.0), detector(head, 1.0, low=True), images())
    assert report.ok
    assert report.outputs[0].slice is not None
    assert report.outputs[0].slice.distance < 0.01


@pytest.mark.parametrize("head", HEADS)
@WRONG
def test_wrong_scores_beside_boxes_do_not(head: str, factor: float) -> None:
    report = verify(detector(head, 1.0), detector(head, factor, low=True), images())
    (output,) = report.outputs
    assert not report.ok
    assert report.verdict.doubts == ()
    assert output.error is not None
    assert output.error < 0.01  # what one distance over all of it says
    assert output.shares["slice"] > 1
    assert "own scale, at most" in str(output.slice)


def dense(text: str, low: int, outputs: int = 16, seed: int = 0) -> onnx.ModelProto:
    """Return a layer of rounded weights, computed in a low type."""
    model = onnx.parser.parse_model(
        f"""{HEADER} g (float[n,64] x) => (float y) <float off = {{-3}}, float tiny = {{1e-3}}> {{
          l = Cast<to={low}>(x) v = Cast<to={low}>(w)
          m = MatMul(l, v) h = Cast<to=1>(m) {text} }}"""
    )
    weight = RNG(seed).standard_normal((64, outputs)).astype(np.float32) / 8
    if low != 1:
        kept = numpy_helper.from_array(weight.astype(np.float16), "w")
        if low == 16:
            kept = onnx.helper.make_tensor("w", 16, weight.shape, weight.ravel())
        model.graph.initializer.append(kept)
    else:
        model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    return model


LEFT_ALONE = {
    "logits": ("y = Identity(h)", 1),
    "logits of many rows": ("y = Identity(h)", 50),
    "probabilities": ("b = Mul(h, off) y = Softmax(b)", 4),
    "features that are mostly dead": ("s = Add(h, off) y = Relu(s)", 40),
    "differences of what is almost the same": (
        "s = Mul(h, tiny) d = Add(s, off) y = Sub(d, off)",
        9,
    ),
}


@pytest.mark.share(2)
@pytest.mark.parametrize("kind", LEFT_ALONE)
@pytest.mark.parametrize("low", [10, 16])
def test_numbers_that_are_small_by_chance_fail_no_good_model(kind: str, low: int) -> None:
    text, rows = LEFT_ALONE[kind]
    for seed in range(4):
        x = RNG(seed).standard_normal((rows, 64)).astype(np.float32)
        original, rewritten = dense(text, 1, seed=seed), dense(text, low, seed=seed)
        report = verify(original, rewritten, {"x": x}, intermediates=False)
        assert report.outputs[0].slice is None or report.outputs[0].slice.ok


@pytest.mark.parametrize("wrong", [0.5, 0.0, -1.0])
def test_scores_of_which_few_are_large_are_seen_too(wrong: float) -> None:
    rng = RNG(4)
    scores = np.exp(-(rng.uniform(1, 12, (1, 50, 9)) ** 1.5))  # 1 to 5 of 50 count in each class
    scores[0, 7, 0] = 0.9
    right = np.concatenate([rng.uniform(100, 640, (1, 50, 4)), scores], 2)
    for scale in (1.0, wrong):
        found = right * np.r_[np.ones(4), np.full(9, scale)]
        noise = right * (1 + 3e-4 * rng.standard_normal(right.shape))
        limits = Tolerances.of(FLOAT16)
        comparers = [Comparer("y", limits) for _ in range(2)]
        for comparer, other in zip(comparers, (found, noise), strict=True):
            comparer.add(right, other)
        assert comparers[0].result(comparers[1]).ok is (scale == 1)


def test_classes_that_one_rounding_makes_equal_may_be_swapped() -> None:
    original = np.array([[0.2, 0.99999, 1.0, 0.1]] * 4)
    for gap, agree in ((1e-5, 1.0), (0.003, 0.0)):
        original[:, 1] = 1 - gap
        comparer = Comparer("y", Tolerances.of(FLOAT16))
        comparer.add(original, original[:, [0, 2, 1, 3]])
        assert comparer.result().top1 == agree


def test_the_top_class_counts_whatever_the_rank() -> None:
    text = f"""{HEADER} g (float[2,5,10] x) => (float[2,5,10] y) <float[10] b = {{%s}}> {{
      y = Add(x, b) }}"""
    zeros, high = ",".join(["0"] * 10), ",".join(["0"] * 9 + ["0.3"])
    original, other = (onnx.parser.parse_model(text % b) for b in (zeros, high))
    x = 10 + 0.1 * RNG(0).random((2, 5, 10)).astype(np.float32)
    report = verify(original, other, {"x": x})
    assert report.outputs[0].top1 is not None
    assert report.outputs[0].top1 < 0.5
    assert report.outputs[0].shares["classes"] > 1
    assert verify(original, original, {"x": x}).outputs[0].top1 == 1.0


def test_probabilities_that_are_each_of_their_own_have_no_top_class() -> None:
    original = onnx.parser.parse_model(
        f"{HEADER} g (float[1,20,88] x) => (float[1,20,88] y) {{ y = Sigmoid(x) }}"
    )
    assert verify(original, original).outputs[0].top1 is None


@pytest.mark.parametrize("order", [(0, 40), (40, 0)])
def test_a_feed_in_which_nothing_was_found_hides_no_slice(order: tuple[int, int]) -> None:
    slices, rng = Slices(), RNG(0)
    for count in order:
        right = np.array([600.0, 0.5]) * rng.choice([-1, 1], (count, 2))
        slices.add(right, np.tile([0.0, 0.4], (count, 1)), 2)
    worst = slices.worst(Tolerances.of(FLOAT16).of_slices, Slices())
    assert worst is not None
    assert (worst.index, worst.ok) == (1, False)
