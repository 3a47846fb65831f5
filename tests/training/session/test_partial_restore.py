"""Checkpoints restore across freezing and unfreezing, and into larger and smaller models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import amp_rewrite as amp
from amp_rewrite.errors import CheckpointError
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


def opened(model: ir.Model, *frozen: str, **arguments: Any) -> amp.TrainingSession:
    loss = amp.losses.softmax_cross_entropy(model, "y", "t")
    if frozen:
        amp.freeze(model, frozen)
    optimizer = amp.LossScaleOptimizer(Adam(0.1), 8)  # a fixed scale has no state
    return amp.TrainingSession(optimizer.minimize(loss), **arguments)


@pytest.fixture
def trained(tmp_path: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """Return a checkpoint of a model all of which was trained, and its states."""
    with opened(network(scale=2.0)) as session:
        for _ in range(3):
            session.run({"x": X, "t": T})
        session.save(tmp_path / "all.safetensors", {"epoch": 3})
        return tmp_path / "all.safetensors", session.state_dict()


FROZEN = ("body", "scale", "shift")


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_what_was_trained_is_restored_where_it_is_frozen(
    trained: tuple[Path, dict[str, np.ndarray]], precision: str
) -> None:
    path, states = trained
    with opened(network(), *FROZEN, precision=precision, emulate=precision != "float32") as session:
        before = session.evaluate({"x": X, "t": T}, "y")["y"]
        with pytest.raises(CheckpointError, match="that the step does not have"):
            session.restore(path)
        np.testing.assert_array_equal(session.evaluate({"x": X, "t": T}, "y")["y"], before)
        assert session.restore(path, strict=False) == {"epoch": 3}
        found = session.restored
        assert found is not None
        assert set(found.taken) >= {*FROZEN, "head", "head/Adam", "mean", "var", "global_step"}
        assert set(found.left) == {f"{n}/Adam{i}" for n in FROZEN for i in ("", "_1")}
        assert found.left["body/Adam"] == "the step has no such state"
        assert found.kept == ()
        n = X @ states["body"] - states["mean"]
        n = n / np.sqrt(states["var"] + 1e-5) * states["scale"] + states["shift"]
        y = session.evaluate({"x": X, "t": T}, "y")["y"]
        tolerance = 1e-5 if precision == "float32" else 1e-2
        np.testing.assert_allclose(y, n @ states["head"], rtol=tolerance, atol=tolerance)


def test_a_checkpoint_of_a_frozen_step_holds_what_was_restored_into_it(
    trained: tuple[Path, dict[str, np.ndarray]], tmp_path: Path
) -> None:
    path, states = trained
    with opened(network(), *FROZEN) as session:
        session.restore(path, strict=False)
        session.run({"x": X, "t": T})
        session.save(tmp_path / "head.safetensors")
        head = session.state_dict()["head"]
        exported = session.export().graph.initializers
        np.testing.assert_array_equal(exported["body"].const_value.numpy(), states["body"])
    with opened(network()) as session:
        session.restore(tmp_path / "head.safetensors", strict=False)
        now, found = session.state_dict(), session.restored
    assert found is not None
    assert set(found.kept) == {f"{n}/Adam{i}" for n in FROZEN for i in ("", "_1")}
    for name in (*FROZEN, "mean", "var"):
        np.testing.assert_array_equal(now[name], states[name])
    np.testing.assert_array_equal(now["head"], head)
    with opened(network(), *FROZEN) as session:  # the same step again: nothing is left or kept
        session.restore(tmp_path / "head.safetensors")


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


def test_frozen_weights_that_the_precision_cannot_hold_are_refused() -> None:
    arguments: dict[str, Any] = {"precision": "float16", "emulate": True}
    with opened(network(), *FROZEN, **arguments) as session:
        with pytest.raises(CheckpointError, match=r"frozen 'body' is stored in a type"):
            session.load_state_dict({"body": np.full((3, 4), 1e6, np.float32)}, strict=False)
        assert session.restored is None
