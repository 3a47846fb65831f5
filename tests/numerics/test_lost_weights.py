"""Weights that a converter clipped, or made infinite: no verdict against the file's own form."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import amp_rewrite as amp
from amp_rewrite.numerics.lost_weights import lost_weights
from amp_rewrite.rewriting.read_source import read_source

TEXT = """<ir_version: 9, opset_import: ["" : 18]>
g (float[4,64] x) => (float[4,32] y) {
  h = Cast<to=%d>(x) m = MatMul(h, w) f = Cast<to=1>(m) s = Mul(f, k) y = Tanh(s) }"""


def model(weight: Any, low: Any = np.float16) -> onnx.ModelProto:
    number = {np.float32: 1, np.float16: 10, ml_dtypes.bfloat16: 16}[low]
    made = onnx.parser.parse_model(TEXT % number)
    held = weight.astype(low)
    tensor = onnx.helper.make_tensor("w", number, held.shape, held.tobytes(), raw=True)
    made.graph.initializer.append(tensor)
    made.graph.initializer.append(numpy_helper.from_array(np.array(1e-5, np.float32), "k"))
    return made


def wide() -> Any:
    return 40_000 * np.random.default_rng(0).standard_normal((64, 32))


def data() -> dict[str, Any]:
    return {"x": 0.01 * np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)}


@pytest.mark.parametrize("low", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("most", [10_000, 65_504])
def test_clipped_weights_are_counted(low: Any, most: float) -> None:
    clipped = np.clip(wide(), -most, most)
    found = lost_weights(read_source(model(clipped, low), inline_functions=True))
    assert found is not None
    assert (found.tensor, found.size) == ("w", 64 * 32)
    count = np.count_nonzero(np.abs(clipped.astype(low).astype(np.float32)) == found.magnitude)
    assert found.clipped == found.count == count
    assert "Convert the float32 model again" in str(found)


def test_infinite_weights_are_counted() -> None:
    with np.errstate(over="ignore"):
        found = lost_weights(read_source(model(wide()), inline_functions=True))
    assert found is not None
    assert (found.clipped, found.magnitude) == (0, None)
    assert found.infinite > 100
    assert "infinite or NaN" in str(found)


@pytest.mark.parametrize(
    "weight",
    [
        20_000 * np.tanh(wide() / 40_000 * np.linspace(0.01, 1, 32)),
        np.where(np.eye(64, 32) > 0, 0, -10_000),
        np.sign(wide()),
        np.clip(wide() / 40_000, -1, 1),
        np.full((64, 32), 10_000),
        np.where(np.eye(64, 32) > 0, 0, -np.inf),
        np.r_[np.full((1, 32), 600), wide()[1:] / 100],
    ],
    ids=["wide", "mask", "signs", "bounded", "constant", "infinite mask", "outliers"],
)
def test_other_weights_are_left_alone(weight: Any) -> None:
    assert lost_weights(read_source(model(weight), inline_functions=True)) is None


def test_a_repair_of_clipped_weights_is_in_doubt_and_says_against_what_it_compared(
    tmp_path: Any,
) -> None:
    low = model(np.clip(wide(), -10_000, 10_000))
    made = amp.repair(low, data())
    assert made.verdict is not None
    assert made.verdict.status == "in doubt"
    assert "compared with this file's own float32 form" in str(made.verdict)
    assert "elements of the weight w are exactly +-10000" in made.verdict.doubts[0]
    with pytest.raises(amp.errors.VerdictError, match="Convert the float32 model again"):
        made.save(tmp_path / "fixed.onnx")
    seen = amp.check(low, data())
    assert seen.verdict.status == "in doubt"
    assert seen.to_dict()["weights"]["tensor"] == "w"


def test_the_original_shows_what_was_lost() -> None:
    original, low = model(wide(), np.float32), model(np.clip(wide(), -10_000, 10_000))
    seen = amp.check(low, data(), original=original)
    assert (seen.verdict.status, seen.against) == ("failed", "the original")
    made = amp.repair(low, data(), original=original)
    assert made.verdict is not None
    assert made.verdict.status == "failed"
    whole = 10_000 * np.random.default_rng(0).uniform(-1, 1, (64, 32))
    right = amp.check(model(whole), data(), original=model(whole, np.float32))
    assert right.run is not None
    assert right.run.ok
    assert "worst error " in str(right.verdict)
    assert "compared with the original" in str(right.verdict)
