"""Checkpoints restore into larger and smaller models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import amp_rewrite as amp
from amp_rewrite.optimizers import Adam

RANDOM = np.random.default_rng(8)
X = RANDOM.normal(size=(4, 3)).astype(np.float32)
T = RANDOM.integers(0, 2, 4)


def network(classes: int = 2, *, extra: bool = False, scale: float = 1.0) -> ir.Model:
    """Return a body and a head; with `extra` a bias, which another model lacks."""
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    g (float[n, 3] x) => (float[n, {classes}] y) {{
        h = MatMul(x, body)
        n = BatchNormalization(h, scale, shift, mean, var)
        z = MatMul(n, head)
        y = {"Add(z, bias)" if extra else "Identity(z)"}
    }}"""
    random = np.random.default_rng(int(10 * scale))
    shapes: dict[str, tuple[int, ...]] = {"body": (3, 4), "head": (4, classes)}
    arrays = {k: scale * random.normal(size=s).astype(np.float32) for k, s in shapes.items()}
    ones, zeros = np.ones(4, np.float32), np.zeros(4, np.float32)
    arrays |= {"scale": ones, "shift": zeros, "mean": zeros, "var": ones}
    if extra:
        arrays["bias"] = np.zeros(classes, np.float32)
    proto = onnx.parser.parse_model(text)
    for name, array in arrays.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
    return amp.load(proto)


def opened(model: ir.Model) -> amp.TrainingSession:
    loss = amp.losses.softmax_cross_entropy(model, "y", "t")
    optimizer = amp.LossScaleOptimizer(Adam(0.1), 8)  # a fixed scale has no state
    return amp.TrainingSession(optimizer.minimize(loss))


@pytest.fixture
def trained(tmp_path: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """Return a checkpoint of a model all of which was trained, and its states."""
    with opened(network(scale=2.0)) as session:
        for _ in range(3):
            session.run({"x": X, "t": T})
        session.save(tmp_path / "all.safetensors", {"epoch": 3})
        return tmp_path / "all.safetensors", session.state_dict()


def test_a_larger_model_takes_what_it_has(trained: tuple[Path, dict[str, np.ndarray]]) -> None:
    path, states = trained
    with opened(network(classes=5, extra=True)) as session:
        before = session.state_dict()
        session.restore(path, strict=False)
        now, found = session.state_dict(), session.restored
    assert found is not None
    assert found.left["head"] == "float32 [4, 2], not float32 [4, 5]"
    assert {"head", "bias", "bias/Adam"} <= set(found.kept)
    np.testing.assert_array_equal(now["body"], states["body"])
    np.testing.assert_array_equal(now["head"], before["head"])


def test_a_smaller_model_leaves_what_it_lacks(tmp_path: Path) -> None:
    with opened(network(extra=True)) as session:
        session.save(tmp_path / "c")
    with opened(network()) as session:
        session.restore(tmp_path / "c", strict=False)
        assert session.restored is not None
        assert set(session.restored.left) == {"bias", "bias/Adam", "bias/Adam_1"}


def test_a_state_dict_says_what_was_taken() -> None:
    with opened(network()) as session:
        found = session.load_state_dict({"head": np.ones((4, 2), np.float32)}, strict=False)
        assert found.taken == ("head",)
        np.testing.assert_array_equal(session.state_dict()["head"], 1)
