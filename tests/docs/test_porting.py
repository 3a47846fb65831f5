"""The ports of docs/porting.md lose what the same training loses in PyTorch."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from pages import ROOT, blocks_of

CURVES = json.loads((ROOT / "tests/support/porting_curves.json").read_text("utf-8"))
BLOCKS = [b.text for b in blocks_of(ROOT / "docs" / "porting.md") if b.language == "python"]
THEIRS = next(text for text in BLOCKS if "import torch" in text)
OURS = [text for text in BLOCKS if text is not THEIRS]
FLOAT32 = ('precision="float16"', 'precision="float32"'), ("torch.float16)", "enabled=False)")
"""What is written in place of what, so that both scripts train in float32."""


def run(blocks: list[str], names: dict[str, Any], changes: Any = ()) -> Mapping[str, Any]:
    """Run blocks of the page, with other words in them; return their names."""
    names["__name__"] = "__main__"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for block in blocks:
            for old, new in changes:
                block = block.replace(old, new)
            exec(compile(block, "docs/porting.md", "exec"), names)
    return names


def check(ours: list[float], theirs: list[float], rtol: float, atol: float) -> None:
    assert len(ours) == len(theirs) == 90
    np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol)
    assert np.mean(ours[-10:]) < 0.2 * np.mean(ours[:3])


def test_the_ports_lose_what_pytorch_loses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = run(OURS, {})
    for name in ("pytorch", "tf1", "keras"):
        # float16 has 11 bits, so that a loss near 2 is off by about 1e-3; it adds up along a curve
        check(names[f"{name}_losses"], CURVES[name], 0.01, 2e-3)


def test_the_port_of_the_pytorch_loop_loses_the_same_in_float32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = run(OURS[:2], {}, FLOAT32)
    check(names["pytorch_losses"], CURVES["pytorch"], 1e-4, 1e-5)


@pytest.mark.parametrize(("changes", "rtol", "atol"), [(FLOAT32, 1e-4, 1e-5), ((), 0.01, 2e-3)])
def test_the_pytorch_loop_and_its_port_lose_the_same(
    changes: Any, rtol: float, atol: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch: Any = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    ours = run(OURS[:2], {}, changes)["pytorch_losses"]
    weights = onnx.load("digits_model.onnx").graph.initializer
    arrays = {w.name: torch.tensor(numpy_helper.to_array(w).copy()) for w in weights}
    torch.save(
        {
            "0.weight": arrays["w1"].T,
            "0.bias": arrays["b1"],
            "2.weight": arrays["w2"].T,
            "2.bias": arrays["b2"],
        },
        "digits_model.pt",
    )
    theirs = run([THEIRS], {}, changes)
    check(ours, theirs["losses"], rtol, atol)
    exported = [
        onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        for file in ("digits_trained_here.onnx", "digits_trained.onnx")
    ]
    x = theirs["images"][:64].numpy()
    a, b = (np.asarray(e.run(None, {e.get_inputs()[0].name: x})[0]) for e in exported)
    np.testing.assert_allclose(a, b, rtol=20 * rtol, atol=20 * rtol)
