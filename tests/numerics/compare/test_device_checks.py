"""A rewritten model on an execution provider: what is the provider's fault is said to be."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import amp_rewrite as amp
from amp_rewrite.errors import RunError
from amp_rewrite.numerics.compare.verify import verify
from amp_rewrite.targets import CPU

HEADER = '<ir_version: 9, opset_import: ["" : 17]>'


def convolution(channels: int) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f"{HEADER} g (float[1,{channels},8,8] x, float[4,{channels},3,3] w) => (float[1,4,8,8] y)"
        "{ y = Conv<pads: ints = [1, 1, 1, 1]>(x, w) }"
    )


def sum_of(operator: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f"{HEADER} g (float[4] x) => (float[4] y) {{ y = {operator}(x, x) }}"
    )


def test_where_the_rewritten_model_departs_the_original_runs_there_too() -> None:
    report = verify(sum_of("Add"), sum_of("Mul"), providers=[CPU], stress=False)
    assert report.device is not None
    (itself,) = report.device.itself
    assert itself.error == 0
    assert "differs there" not in report.to_text()


def test_a_provider_that_fails_in_float32_too_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = amp.Evaluator.run

    def fail(self: amp.Evaluator, feeds: Any, outputs: Any = None) -> dict[str, Any]:
        if outputs is None:  # only a device is asked for all outputs
            raise RunError("cannot run the model", where="node 'a'", found="no such kernel")
        return plain(self, feeds, outputs)

    monkeypatch.setattr(amp.Evaluator, "run", fail)
    report = verify(sum_of("Add"), sum_of("Add"), {"x": np.ones(4, np.float32)}, providers=[CPU])
    assert report.failures == (
        f"{CPU} could not run the model: node 'a': no such kernel",
        "the original fails there as well: node 'a': no such kernel",
    )


@pytest.mark.webgpu
@pytest.mark.parametrize(("channels", "departs"), [(6, True), (8, False)])
def test_what_webgpu_computes_wrong_in_float32_is_said(
    channels: int, departs: bool, webgpu: str
) -> None:
    model = convolution(channels)
    low = amp.rewrite(model, target="webgpu").model
    report = verify(model, low, providers=[webgpu], stress=False)
    assert report.ok is not departs
    said = [line for line in report.failures if line.startswith("the original differs there")]
    assert len(said) == departs
