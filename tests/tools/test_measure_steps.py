"""What the shaders of operators with several steps compute, and what the emulation makes of it."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
from accumulating_graphs import SUMS

import amp_rewrite as amp

TOOLS = Path(__file__).parents[2] / "tools"
HEADER = '<ir_version: 9, opset_import: ["" : 20]>'
OPERATORS = ("BatchNormalization", "Erf", "Exp", "Gelu", "LeakyRelu", "Sigmoid", "Tanh")


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(TOOLS), *sys.path])
    return import_module("measure_steps")


def test_constants_are_cut_towards_zero(tool: Any) -> None:
    assert tool.cut(1.061405429) == np.float16(1.0605)
    assert tool.cut(-0.284496736) == np.float16(-0.2844)
    assert tool.cut(0.5) == 0.5


@pytest.mark.parametrize("op", [op for op in OPERATORS if op != "BatchNormalization"])
def test_the_emulation_computes_what_the_shaders_do(tool: Any, op: str) -> None:
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    x = every[np.isfinite(every)]
    for call, predict in tool.STEPS[op].items():
        graph = f"g (float16[N] x) => (float16[N] y) {{ y = {call} }}"
        model = onnx.parser.parse_model(f"{HEADER} {graph}")
        found = amp.evaluate(model, {"x": x}, accumulate_low=SUMS)["y"]
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(found, predict(x))
        assert not np.array_equal(found, amp.evaluate(model, {"x": x})["y"], equal_nan=True)


@pytest.mark.webgpu
@pytest.mark.parametrize("op", OPERATORS)
def test_webgpu_is_measured_to_round_every_step(tool: Any, op: str, webgpu: str) -> None:
    assert set(tool.STEPS) == set(OPERATORS)
    with np.errstate(all="ignore"):
        assert tool.measure_steps(op, webgpu) == "float16"
