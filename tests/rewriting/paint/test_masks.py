"""calibrate counts out the fills of masks that end in a Softmax, and nothing else."""

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

import amp_rewrite as amp

LOWEST = float(np.finfo(np.float32).min)
CAUSAL = np.triu(np.full((4, 4), LOWEST), 1).astype(np.float32)
CONSTANTS = {
    "w": np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32),
    "causal": CAUSAL,
    "turned": CAUSAL.T.copy(),
    "positive": -CAUSAL,
    "future": CAUSAL < 0,
    "fill": np.float32(LOWEST),
    "above": np.float32(-LOWEST),
    "one": np.float32(1),
    "open": np.array([1, 1, 0, 0], np.float32),
}

MASKS = {
    "a constant": "m = Add(s, causal)",
    "Where": "m = Where(future, fill, s)",
    "a constant that is turned": "c = Transpose<perm=[1,0]>(turned) m = Add(s, c)",
    "Sub": "m = Sub(s, positive)",
    "computed": "o = Mul(keep, open) k = Sub(o, one) b = Mul(k, above) m = Add(s, b)",
    "computed and subtracted": "k = Sub(one, keep) b = Mul(k, above) m = Sub(s, b)",
    "Min of two": "k = Sub(one, keep) b = Mul(k, fill) c = Min(b, causal) m = Add(s, c)",
}


def masked(mask: str, outputs: str = "float[4,4] y") -> onnx.ModelProto:
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[4,4] x, float[4] keep) => ({outputs}) {{
            s = MatMul(x, w) {mask} p = Softmax(m) y = MatMul(p, x)
        }}"""
    )
    tensors = [numpy_helper.from_array(np.asarray(v), k) for k, v in CONSTANTS.items()]
    model.graph.initializer.extend(tensors)
    return model


def feeds(scale: float = 1.0) -> dict[str, Any]:
    x = np.random.default_rng(1).standard_normal((4, 4)) * scale
    return {"x": x.astype(np.float32), "keep": np.array([1, 1, 1, 0], np.float32)}


@pytest.mark.share(2)
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_calibration_leaves_a_mask_as_the_default_has_it(mask: str, precision: Any):
    model, data = masked(mask), [feeds()]
    found = amp.calibrate(model, data, precision=precision)
    assert found.rules == ()
    low = amp.rewrite(model, precision=precision).model
    expected, got = (amp.evaluate(m, data[0])["y"] for m in (model, low))
    np.testing.assert_allclose(got, expected, atol=0.03 * float(np.abs(expected).max()))


@pytest.mark.parametrize("mask", ["m = Add(s, causal)", "m = Where(future, fill, s)"])
@pytest.mark.parametrize("scale", [6e4, -6e4])
def test_scores_that_overflow_beside_a_mask_are_denied(mask: str, scale: float):
    found = amp.calibrate(masked(mask), [feeds(scale)])
    assert any(rule.why.startswith("measured 1") for rule in found.rules)
    assert not any("3.4" in rule.why for rule in found.rules)


def test_a_mask_that_leaves_the_model_counts():
    model = masked("m = Add(s, causal) t = Relu(m)", "float[4,4] y, float[4,4] t")
    found = amp.calibrate(model, [feeds()]).ranges["m"]
    assert found.counted == found.largest == pytest.approx(-LOWEST)


def test_the_ranges_say_what_was_measured_and_what_of_it_counts():
    found = amp.calibrate(masked("m = Add(s, causal)"), [feeds()]).ranges["m"]
    assert found.largest == pytest.approx(-LOWEST)
    assert found.counted < 10
