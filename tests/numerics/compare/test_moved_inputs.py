"""The third yardstick: how far the original moves by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from amp_rewrite.dtypes import BFLOAT16, FLOAT16
from amp_rewrite.numerics.compare.distance import Comparer, Tolerances
from amp_rewrite.numerics.compare.moved_inputs import STEP, judged, moved
from amp_rewrite.numerics.compare.verify import verify

HEADER = '<ir_version: 9, opset_import: ["" : 18]>'


def chaotic(steps: int, low: int = 1, last: str = "Identity(w)") -> onnx.ModelProto:
    """Return the logistic map, `steps` times, with the first number in a low type."""
    nodes = "".join(
        f"r{i} = Sub(one, v{i}) q{i} = Mul(r{i}, v{i}) v{i + 1} = Mul(q{i}, k) "
        for i in range(steps)
    )
    return onnx.parser.parse_model(
        f"""{HEADER} g (float[400] x) => (float[400] y)
          <float one = {{1}}, float k = {{3.99}}, float zero = {{0}}, float two = {{2}}> {{
            h = Cast<to={low}>(x) v0 = Cast<to=1>(h) {nodes} w = Identity(v{steps}) y = {last} }}"""
    )


def numbers() -> dict[str, Any]:
    return {"x": np.random.default_rng(0).uniform(0.1, 0.9, 400).astype(np.float32)}


def test_what_no_arithmetic_can_hold_is_judged_against_the_original_itself() -> None:
    report = verify(chaotic(50), chaotic(50, 10), numbers())
    (output,), (moves,) = report.outputs, report.moves
    assert output.error is not None
    assert moves.error is not None
    assert min(output.error, moves.error) > 0.3
    assert (report.verdict.status, output.excuse) == ("in doubt", "original")
    assert "so does the float32 original when its inputs change by" in report.verdict.doubts[0]
    assert report.to_dict()["verdict"] == str(report.verdict)


@pytest.mark.share(2)
@pytest.mark.parametrize("count", [4, 10])
def test_few_numbers_are_as_far_off_as_chance_has_it(count: int) -> None:
    for seed in range(6):
        x = np.random.default_rng(seed).uniform(0.1, 0.9, count).astype(np.float32)
        original, low, none = chaotic(60), chaotic(60, 10), chaotic(60, 10, "Mul(w, zero)")
        report = verify(resized(original, count), resized(low, count), {"x": x})
        assert report.verdict.status == "in doubt"
        assert not verify(resized(original, count), resized(none, count), {"x": x}).ok


def resized(model: onnx.ModelProto, count: int) -> onnx.ModelProto:
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = count
    return model


def test_a_steady_original_excuses_nothing() -> None:
    report = verify(chaotic(9), chaotic(9, 10), numbers())
    (moves,) = report.moves
    assert (report.ok, moves.ok) == (False, True)
    assert (report.verdict.status, report.outputs[0].excuse) == ("failed", "")


def test_what_rounds_a_number_to_one_of_256_is_judged_so() -> None:
    """Near ties of a dynamic quantisation, behind which small differences are magnified."""
    text = f"""{HEADER} g (float[8,32] x) => (float[8,32] y) <float big = {{%s}}> {{
      h = Cast<to=%d>(x) v = Cast<to=1>(h) q, s, z = DynamicQuantizeLinear(v)
      d = DequantizeLinear(q, s, z) e = Sub(d, v) f = Mul(e, big) y = Sin(f) }}"""
    original, low = (onnx.parser.parse_model(text % ("3e6", t)) for t in (1, 10))
    x = {"x": np.random.default_rng(0).standard_normal((8, 32)).astype(np.float32)}
    report = verify(original, low, x)
    assert (report.verdict.status, report.outputs[0].excuse) == ("in doubt", "original")


def test_whole_numbers_lowest_numbers_and_other_types_stay() -> None:
    feeds = {
        "positions": np.arange(4, dtype=np.float32),
        "mask": np.array([0.5, np.finfo(np.float32).min, -np.inf], np.float32),
        "ids": np.arange(4),
        "half": np.array([0.1], np.float16),
        "items": [np.array([0.3], np.float32)],
    }
    made = moved(feeds)
    assert made is not None
    for name in ("positions", "ids", "half"):
        assert made[name] is feeds[name]
    assert np.array_equal(made["mask"][1:], feeds["mask"][1:])
    assert abs(made["mask"][0] / 0.5 - 1) == pytest.approx(STEP, rel=0.1)
    assert made["items"][0] != feeds["items"][0]
    assert moved({"ids": np.arange(4)}) is None


def test_a_control_that_rounds_nothing_is_no_yardstick_of_small_numbers() -> None:
    """So in `check`, where the weights are the same: a number that is small by chance is noise."""
    right = np.array([[0.16, 0.00067, 0.82, 0.23, 0.55, 0.41]])
    small = np.eye(1, 6, 1)
    limits = Tolerances.of(BFLOAT16)
    found, control, moves = (Comparer("y", limits) for _ in range(3))
    found.add(right, right + 0.0017 * small)
    control.add(right, right)
    moves.add(right, right + 6e-7 * small)
    assert judged(found, control, moves).ok


@pytest.mark.parametrize("length", [64, 384])
def test_small_numbers_of_an_embedding_are_not_judged_where_nothing_was_rounded(
    length: int,
) -> None:
    rng = np.random.default_rng(1)
    right = rng.standard_normal((1, length))
    right[0, 20] = 0.015
    noise = rng.standard_normal((1, length))
    limits = Tolerances.of(FLOAT16)
    found, control, moves = (Comparer("embedding", limits) for _ in range(3))
    found.add(right, right + 2e-3 * noise)
    control.add(right, right)
    moves.add(right, right + 1e-6 * noise * (np.arange(length) != 20))
    assert judged(found, control, moves).ok
