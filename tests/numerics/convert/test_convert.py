"""convert: calibrate, rewrite, verify and, if needed, tune, with one verdict."""

from __future__ import annotations

import gc
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import amp_rewrite as amp
from amp_rewrite.errors import OptionError, VerdictError
from amp_rewrite.numerics.compare.verification import Verification
from amp_rewrite.numerics.convert.judge import fails_on_data

TEXT = """<ir_version: 9, opset_import: ["" : 18]>
g (float[2,4] x) => (float[2,4] y)
<float[4,4] w = {%s}, float[4,4] v = {%s}, float[4,4] u = {%s}> {
  [a] h = MatMul(x, w) [hot] i = MatMul(h, v) [c] j = MatMul(i, u) [d] y = Tanh(j) }"""


def model(w: float = 0.5, v: float = 0.5, u: float = 0.05) -> onnx.ModelProto:
    """Return three products and a Tanh; the second one is `hot` for large inputs."""
    squares = (",".join([f"{number:g}"] * 16) for number in (w, v, u))
    return onnx.parser.parse_model(TEXT % tuple(squares))


LARGE = 20_000.0
"""A magnitude of inputs that nothing in a model tells of: 320,000 behind factors of 0.5 and 2."""


def batches(count: int = 2, size: float = 1.0) -> list[dict[str, Any]]:
    rng = [np.random.default_rng(i) for i in range(count)]
    return [{"x": (size * r.uniform(0.9, 1.1, (2, 4))).astype(np.float32)} for r in rng]


def low_nodes(found: amp.Conversion) -> set[str]:
    """Return the nodes that compute in low precision."""
    return {
        node.name
        for node in found.result.report.nodes
        if any(v.dtype != "float32" for v in node.variables.values())
    }


def test_a_model_that_holds_is_neither_changed_by_calibrating_nor_tuned() -> None:
    found = amp.convert(model(), batches())
    assert found.ok
    assert found.calibration is not None
    assert (found.calibration.nodes, found.kept) == ((), None)
    assert low_nodes(found) == low_nodes(amp.convert(model()))
    assert str(found.verdict).startswith("Passed on 2 batches of your data: worst error ")


def test_what_fails_on_the_device_alone_is_searched_unless_float32_fails_there_too() -> None:
    report = amp.convert(model(), batches(), providers=["CPUExecutionProvider"]).verification
    device = report.device
    assert device is not None
    wrong = (replace(device.original[0], fault="error"),)

    def fails(**changes: Any) -> bool:
        return fails_on_data(replace(report, device=replace(device, **changes)))

    assert not fails()
    assert fails(original=wrong)
    assert not fails(original=wrong, itself=wrong)
    assert not fails_on_data(replace(report, device=None))


@pytest.mark.parametrize("target", ["cuda", "schema"])
def test_what_overflows_on_the_data_stays_float32_without_tuning(target: Any) -> None:
    hot = model(v=2, u=1e-6)
    found = amp.convert(hot, batches(size=LARGE), target=target, overflow="keep")
    assert found.ok
    assert found.calibration is not None
    assert "hot" in found.calibration.nodes
    assert found.kept is None
    assert "hot" not in low_nodes(found)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_a_tolerance_that_calibrating_does_not_reach_is_reached_by_tuning(precision: Any) -> None:
    loose = amp.convert(model(w=0.1234), batches(), precision=precision, rtol=0.1)
    assert (loose.ok, loose.kept) == (True, None)
    error = max(output.scaled_error for output in loose.verification.outputs)
    tight = amp.convert(model(w=0.1234), batches(), precision=precision, rtol=error / 4)
    assert tight.kept is not None
    assert tight.verification.ok
    assert tight.kept.rules
    assert tight.kept.predicted <= 1
    assert low_nodes(tight) < low_nodes(loose)
    assert max(o.scaled_error for o in tight.verification.outputs) <= error / 4
    assert "more node" in str(tight.verdict)


def integrating(decay: float = 0.98) -> onnx.ModelProto:
    """Return a state of 32 numbers that adds what it is given and forgets slowly, read by `out`."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((32, 32)) / 6,
        "v": rng.standard_normal((32, 32)) / 60,
        "k": decay * np.linalg.qr(rng.standard_normal((32, 32)))[0],
        "o": rng.standard_normal((32, 8)) / 6,
    }
    made = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[1,32] x, float[1,32] h) => (float[1,8] y, float[1,32] h_out) {
        [enter] a = MatMul(x, w) [relu] b = Relu(a) [write] u = MatMul(b, v)
        [turn] s = MatMul(h, k) [add] h_out = Add(s, u) [out] y = MatMul(h_out, o) }""")
    arrays = ((name, weight.astype(np.float32)) for name, weight in weights.items())
    made.graph.initializer.extend(onnx.numpy_helper.from_array(w, name) for name, w in arrays)
    return made


@pytest.mark.parametrize(("decay", "rtol"), [(0.98, 0.0012), (0.98, 0.001)])
def test_a_state_whose_error_adds_up_over_many_calls_is_kept(decay: float, rtol: float) -> None:
    rng = np.random.default_rng(1)
    shape = (1, 32)
    data = [
        {n: rng.standard_normal(shape).astype(np.float32) for n in ("x", "h")} for _ in range(3)
    ]
    found = amp.convert(integrating(decay), data, rtol=rtol)
    assert found.ok
    assert found.verification.fed_back is not None
    assert found.verification.fed_back.calls == 1000
    assert found.kept is not None
    assert "write" in found.kept.keep
    assert "out" in low_nodes(found), "its error stays in one call"


def test_a_tolerance_that_only_float32_reaches_is_not_written_as_float32(tmp_path: Path) -> None:
    found = amp.convert(model(w=0.1234), batches(), rtol=0.0)
    assert not found.ok
    assert not found.result.changed
    reason = "nothing left in float16: found no mix that passes rtol 0"
    assert found.nothing_left == reason
    assert str(found.verdict).startswith(f"FAILED on 2 batches of your data: {reason}")
    with pytest.raises(VerdictError, match=reason):
        found.save(tmp_path / "y.onnx")
    assert not (tmp_path / "y.onnx").exists()
    found.save(tmp_path / "y.onnx", write_failed=True)
    assert (tmp_path / "y.onnx").exists()


def test_without_data_the_model_is_verified_on_made_up_and_stress_inputs() -> None:
    found = amp.convert(model(u=0.01))
    assert (found.calibration, found.kept) == (None, None)
    assert found.verification.stress is not None
    assert amp.convert(model(u=0.01), stress=False).verification.stress is None


def failing() -> amp.Conversion:
    """Return a conversion that holds on its data and overflows for inputs of 3."""
    return amp.convert(model(w=6200, v=1e-5), batches(), stress=True)


def test_what_fails_on_a_stress_input_is_named_and_is_not_tuned() -> None:
    found = failing()
    assert not found.ok
    assert found.kept is None
    where = "2 batches of your data"
    assert str(found.verdict).startswith(
        f"FAILED on {where} and on stress inputs: on large constants (x [2, 4] 3.008"
    )


def test_what_does_not_hold_is_not_saved_unless_told_so(tmp_path: Path) -> None:
    found = failing()
    with pytest.raises(
        VerdictError, match=r"failed verification; found on large constants.*pass write"
    ) as e:
        found.save(tmp_path / "out.onnx")
    assert e.value.conversion is found
    assert list(tmp_path.iterdir()) == []
    found.save(tmp_path / "out.onnx", write_failed=True)
    onnx.checker.check_model(tmp_path / "out.onnx")


def test_the_report_has_the_verdict_and_is_valid_json() -> None:
    content = json.loads(failing().to_json())
    verdict = content["verdict"]
    assert content["version"] == 1
    assert (verdict["ok"], verdict["calibrated"], verdict["kept"]) == (False, [], None)
    assert verdict["failures"][0].startswith("on large constants")
    assert verdict["verification"]["stress"]["results"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rtol": -1.0}, "impossible rtol"),
        ({"rtol": float("nan")}, "impossible rtol"),
        ({"budget": 0.0}, "impossible budget"),
        ({"presicion": "float16"}, "unknown keyword"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        amp.convert(model(), batches(), **options)


def test_what_was_not_verified_in_time_is_in_doubt_and_not_written(tmp_path: Path) -> None:
    output = tmp_path / "out.onnx"
    found = amp.convert(model(), batches(3), budget=1e-6)
    assert (found.ok, found.calibration, found.verification.feeds) == (False, None, 0)
    assert found.verdict.status == "in doubt"
    assert found.verdict.doubts == (
        "the time was over before everything was compared: 0 of 3 feeds were; a larger budget does "
        "the rest",
    )
    assert "Passed" not in found.verification.to_text()
    assert json.loads(found.to_json())["verdict"]["ok"] is False
    with pytest.raises(VerdictError, match=r"in doubt: the time was over"):
        found.save(output)
    assert not output.exists()


def test_sessions_end_with_the_conversion() -> None:
    gc.collect()
    gc.disable()  # memory of large models is not left to it
    try:
        amp.convert(model(), batches())
        left = [o for o in gc.get_objects() if isinstance(o, Verification | amp.Evaluator)]
    finally:
        gc.enable()
    assert not left
