"""Adapters in files of their own, as PEFT lays them out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from safetensors.numpy import load_file

import amp_rewrite as amp
from amp_rewrite.errors import OptionError, SaveError
from amp_rewrite.optimizers import GradientDescent, WeightAverage

RANDOM = np.random.default_rng(11)
WEIGHTS = {
    "block.q.weight": RANDOM.normal(size=(4, 3)).astype(np.float32),
    "block.v.weight": RANDOM.normal(size=(2, 4)).astype(np.float32),
}
X = {"x": RANDOM.normal(size=(5, 3)).astype(np.float32)}
TEXT = """<ir_version: 8, opset_import: ["": 17]>
g (float[n, 3] x) => (float loss) {
    q = Gemm<transB = 1>(x, "block.q.weight")
    y = Gemm<transB = 1>(q, "block.v.weight")
    s = Mul(y, y)
    loss = ReduceMean<keepdims = 0>(s)
}"""


def network() -> ir.Model:
    proto = onnx.parser.parse_model(TEXT)
    for name, array in WEIGHTS.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return amp.load(proto)


def trained(averaged: bool = False) -> amp.TrainingSession:
    model = network()
    amp.lora(model, "block.q", rank=2, alpha=4, dropout=0.1)
    amp.lora(model, "block.v", rank=1)
    optimizer = GradientDescent(0.1)
    loss = amp.value(model, "loss")
    step = (WeightAverage(optimizer, decay=0.5) if averaged else optimizer).minimize(loss)
    session = amp.TrainingSession(step)
    for _ in range(3):
        session.run(X)
    return session


def test_the_files_are_those_of_peft(tmp_path: Path) -> None:
    with trained() as session:
        session.export_adapters(tmp_path / "adapter")
        states, y = session.state_dict(), session.evaluate(X, "y")["y"]
    assert sorted(p.name for p in (tmp_path / "adapter").iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", 2, 4)
    assert config["target_modules"] == ["block.q", "block.v"]
    assert (config["rank_pattern"], config["alpha_pattern"]) == ({"block.v": 1}, {"block.v": 1})
    tensors = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    stem = "base_model.model.block"
    assert {name: array.shape for name, array in tensors.items()} == {
        f"{stem}.q.lora_A.weight": (2, 3),
        f"{stem}.q.lora_B.weight": (4, 2),
        f"{stem}.v.lora_A.weight": (1, 4),
        f"{stem}.v.lora_B.weight": (2, 1),
    }
    np.testing.assert_array_equal(tensors[f"{stem}.q.lora_A.weight"], states["block.q.lora_A"].T)
    # what PEFT's Linear computes with them
    h = X["x"]
    for name, scale in (("q", 4 / 2), ("v", 1.0)):
        change = tensors[f"{stem}.{name}.lora_B.weight"] @ tensors[f"{stem}.{name}.lora_A.weight"]
        h = h @ (WEIGHTS[f"block.{name}.weight"] + scale * change).T
    np.testing.assert_allclose(h, y, rtol=1e-5, atol=1e-6)


def test_averages_can_be_written(tmp_path: Path) -> None:
    with trained(averaged=True) as session:
        session.export_adapters(tmp_path / "a", averaged=True)
        session.export_adapters(tmp_path / "b")
        average = session.info.averages["block.q.lora_A"]
        states = session.state_dict()
    name = "base_model.model.block.q.lora_A.weight"
    found = load_file(tmp_path / "a" / "adapter_model.safetensors")[name]
    np.testing.assert_array_equal(found, states[average].T)
    other = load_file(tmp_path / "b" / "adapter_model.safetensors")[name]
    assert not np.array_equal(found, other)


def test_a_step_without_adapters_has_none_to_write(tmp_path: Path) -> None:
    step = GradientDescent(0.1).minimize(amp.value(network(), "loss"))
    without = pytest.raises(OptionError, match="the step has no adapters")
    with amp.TrainingSession(step) as session, without:
        session.export_adapters(tmp_path / "adapter")
    assert not (tmp_path / "adapter").exists()


def test_a_folder_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with trained() as session, pytest.raises(SaveError, match="the adapters cannot be written"):
        session.export_adapters(tmp_path / "file" / "adapter")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
