"""States are fed back: an error that is small at each call adds up."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from amp_rewrite.numerics.compare.verify import verify

HEADER = '<ir_version: 8, opset_import: ["" : 17]>'


def parsed(text: str, **weights: Any) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f"{HEADER} {text}")
    for name, weight in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(weight), name))
    return model


def mean(low: int = 1, names: tuple[str, str] = ("mean", "mean_out")) -> onnx.ModelProto:
    """Return an exponential mean of a stream, whose state is computed in a type."""
    before, after = names
    return parsed(
        f"""g (float[1,16] x, float[1,16] {before}) => (float[1,16] y, float[1,16] {after})
        <float keep = {{0.999}}, float new = {{0.001}}> {{
          p = Cast<to={low}>({before}) k = Cast<to={low}>(keep) a = Mul(p, k)
          m = Mul(x, new) b = Cast<to={low}>(m) s = Add(a, b) {after} = Cast<to=1>(s)
          y = Sub(x, {after}) }}"""
    )


def batch() -> dict[str, Any]:
    x = 3 + np.random.default_rng(0).standard_normal((1, 16)).astype(np.float32)
    return {"x": x, "mean": np.zeros((1, 16), np.float32)}


def test_a_state_that_drifts_fails_though_each_call_passes() -> None:
    report = verify(mean(), mean(10), batch())
    assert all(output.ok for output in report.outputs)
    assert report.fed_back is not None
    assert report.fed_back.calls == 1000, "however fast the machine is"
    assert report.fed_back.states == ("mean_out",)
    assert report.failures[0].startswith(
        f"after {report.fed_back.calls:,} calls with mean_out fed back: "
    )
    assert report.verdict.status == "failed"


def test_a_state_in_float32_passes_and_that_is_said() -> None:
    report = verify(mean(), mean(), batch())
    assert report.ok
    assert "calls with mean_out fed back: worst error 0 %" in report.to_text()


def test_a_model_that_fails_on_one_call_is_not_called_again() -> None:
    wrong = mean()
    wrong.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array(0.5, np.float32), "keep"))
    fed = batch() | {"mean": np.linspace(1, 2, 16, dtype=np.float32)[None]}
    report = verify(mean(), wrong, fed)
    assert report.verdict.status == "failed"
    assert not all(output.ok for output in report.outputs)
    assert report.fed_back is None


def test_a_cache_that_grows_is_not_fed_back() -> None:
    model = parsed(
        """g (float[1,4] x, float[past,4] past_key) => (float[1,4] y, float[all,4] present_key) {
          present_key = Concat<axis=0>(past_key, x) y = Exp(x) }"""
    )
    report = verify(model, model)
    assert (report.ok, report.fed_back) == (True, None)
