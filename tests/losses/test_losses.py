"""Losses and their gradients against numpy in float64."""

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from amp_rewrite import losses
from amp_rewrite.errors import AmpError
from amp_rewrite.graph.io.load import load
from amp_rewrite.optimizers import GradientDescent
from amp_rewrite.train.session.training_session import TrainingSession
from amp_rewrite.training.training_graph import GraphValue, value

RNG = np.random.default_rng(7)


def model_of(w: np.ndarray, *, symbolic: bool = True) -> ir.Model:
    """Return y = w + x, so that the gradient of w is that of y."""
    kind = {"float32": "float", "float16": "float16"}[w.dtype.name]
    dims = ["n", *map(str, w.shape[1:])] if symbolic else list(map(str, w.shape))
    graph = onnx.parser.parse_graph(
        f"forward ({kind}[{', '.join(dims)}] x) => ({kind}[{', '.join(dims)}] y, int64[n] k)"
        "{ y = Add(x, w) k = Shape(y) }"
    )
    graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    opsets = [onnx.helper.make_opsetid("", 17)]
    return load(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8))


def run(loss: GraphValue, w: np.ndarray, feeds: dict[str, Any]) -> tuple[Any, np.ndarray]:
    """Return the loss and the gradient of its sum with respect to w."""
    pairs = GradientDescent().compute_gradients(loss)
    train_op = GradientDescent(1.0).apply_gradients(pairs)
    with TrainingSession(train_op) as session:
        out = session.run({"x": np.zeros_like(w), **feeds}, ["loss", pairs[0][0].name])
    return out["loss"], out[pairs[0][0].name].astype(np.float64)


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


SHAPES = [((5, 4), -1), ((3, 2, 4), -1), ((3, 4, 2), 1), ((2, 3, 2, 4), -1), ((2, 4, 3, 2), 1)]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("ignore", [None, 0])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_softmax_cross_entropy_and_its_gradient(
    shape: tuple[int, ...], axis: int, ignore: int | None, reduction: str
) -> None:
    w = RNG.normal(size=shape).astype(np.float32)
    labels = RNG.integers(0, 4, np.delete(shape, axis))
    labels.flat[0] = 1  # not all of them are ignored
    loss = losses.softmax_cross_entropy(
        model_of(w), "y", "t", axis=axis, ignore_index=ignore, reduction=reduction
    )
    assert loss.name == "loss"
    found, gradient = run(loss, w, {"t": labels})
    p = softmax(w.astype(np.float64), axis)
    hot = np.moveaxis(np.eye(4)[labels], -1, axis)
    keep = np.ones(labels.shape) if ignore is None else (labels != ignore).astype(float)
    each = -np.log((p * hot).sum(axis)) * keep
    scale = 1 / keep.sum() if reduction == "mean" else 1.0
    expected = each if reduction == "none" else each.sum() * scale
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    wanted = (p - hot) * np.expand_dims(keep, axis) * scale
    np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", [(5,), (4, 3), (2, 3, 2)])
def test_sigmoid_cross_entropy_and_its_gradient(shape: tuple[int, ...], reduction: str) -> None:
    w = RNG.normal(size=shape).astype(np.float32)
    z = RNG.random(shape).astype(np.float32)
    loss = losses.sigmoid_cross_entropy(model_of(w), "y", "t", reduction=reduction)
    found, gradient = run(loss, w, {"t": z})
    p = 1 / (1 + np.exp(-w.astype(np.float64)))
    each = -z * np.log(p) - (1 - z) * np.log(1 - p)
    scale = 1 / each.size if reduction == "mean" else 1.0
    expected = each if reduction == "none" else each.sum() * scale
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gradient, (p - z) * scale, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_mean_squared_error_and_its_gradient(reduction: str) -> None:
    w = RNG.normal(size=(4, 3)).astype(np.float32)
    t = RNG.normal(size=(4, 3)).astype(np.float32)
    loss = losses.mean_squared_error(model_of(w), "y", "t", reduction=reduction)
    found, gradient = run(loss, w, {"t": t})
    error = w.astype(np.float64) - t
    scale = 1 / error.size if reduction == "mean" else 1.0
    expected = error**2 if reduction == "none" else (error**2).sum() * scale
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(gradient, 2 * error * scale, rtol=1e-5)


EXTREME = np.array([[1e4, -1e4, 0.0], [-3e4, 3e4, 100.0]], np.float32)


def test_extreme_logits_give_finite_losses_and_gradients() -> None:
    loss = losses.softmax_cross_entropy(model_of(EXTREME), "y", "t")
    found, gradient = run(loss, EXTREME, {"t": np.array([1, 1])})
    np.testing.assert_allclose(found, 1e4, rtol=1e-6)
    np.testing.assert_allclose(gradient, [[0.5, -0.5, 0], [0, 0, 0]], atol=1e-6)
    loss = losses.sigmoid_cross_entropy(model_of(EXTREME), "y", "t", reduction="sum")
    found, gradient = run(loss, EXTREME, {"t": np.zeros_like(EXTREME)})
    np.testing.assert_allclose(found, 1e4 + np.log(2) + 3e4 + 100, rtol=1e-6)
    np.testing.assert_allclose(gradient, [[1, 0, 0.5], [0, 1, 1]], atol=1e-6)


def test_losses_of_float16_logits_are_float32() -> None:
    w = np.array([[1, 2, 3, 4]], np.float16)
    for make in (losses.softmax_cross_entropy, losses.sigmoid_cross_entropy):
        assert make(model_of(w), "y", "t").dtype is ir.DataType.FLOAT
    assert losses.mean_squared_error(model_of(w), "y", "t").dtype is ir.DataType.FLOAT


def test_labels_become_an_input_shaped_by_the_logits() -> None:
    model = model_of(np.zeros((5, 2, 4), np.float32))
    loss = losses.softmax_cross_entropy(model, "y", "labels")
    new = loss.graph.model.graph.inputs[-1]
    assert new.name == "labels"
    assert new.dtype is ir.DataType.INT64
    assert new.shape is not None
    assert [str(d) if isinstance(d, int) else "symbolic" for d in new.shape.dims][1:] == ["2"]


def test_labels_may_be_a_value_of_the_model() -> None:
    model = model_of(np.zeros((5, 2), np.float32))
    inputs = len(model.graph.inputs)
    losses.mean_squared_error(model, value(model, "y"), value(model, "x"))
    assert len(model.graph.inputs) == inputs


def test_a_second_loss_has_another_name() -> None:
    model = model_of(np.zeros((5, 2), np.float32))
    names = [losses.mean_squared_error(model, "y", "t").name for _ in range(2)]
    assert names == ["loss", "loss_1"]


REFUSED: dict[str, tuple[Any, str]] = {
    "reduction": (
        lambda m: losses.mean_squared_error(m, "y", "t", reduction="max"),
        "unknown reduction",
    ),
    "no axis": (
        lambda m: losses.softmax_cross_entropy(m, "y", "t", axis="c"),  # type: ignore[arg-type]
        "axis must be an integer; found 'c'",
    ),
    "no class": (
        lambda m: losses.softmax_cross_entropy(m, "y", "t", ignore_index="a"),  # type: ignore[arg-type]
        "ignore_index must be an integer; found 'a'",
    ),
    "a fraction of a class": (
        lambda m: losses.softmax_cross_entropy(m, "y", "t", ignore_index=0.5),  # type: ignore[arg-type]
        "ignore_index must be an integer; found 0.5",
    ),
    "a class that int64 cannot hold": (
        lambda m: losses.softmax_cross_entropy(m, "y", "t", ignore_index=2**63),
        "ignore_index must be an integer",
    ),
    "axis": (lambda m: losses.softmax_cross_entropy(m, "y", "t", axis=2), "no such axis"),
    "integer logits": (
        lambda m: losses.sigmoid_cross_entropy(m, "k", "t"),
        "Invalid type int64 for predictions",
    ),
    "float labels": (
        lambda m: losses.softmax_cross_entropy(m, "y", "x"),
        "labels must be integers",
    ),
    "shapes": (
        lambda m: losses.mean_squared_error(m, "y", "k"),
        "labels must have the shape of the predictions",
    ),
    "labels that are no class per row": (
        lambda m: losses.softmax_cross_entropy(m, "y", "k"),
        r"labels must have the shape of the logits without the axis .*\[5\], the classes .*axis=1",
    ),
    "no name": (lambda m: losses.softmax_cross_entropy(m, "y", ""), "not a value of the model"),
    "no value": (
        lambda m: losses.mean_squared_error(m, "y", None),  # pyright: ignore[reportArgumentType]
        "not a value .* found None",
    ),
    "unknown logits": (
        lambda m: losses.softmax_cross_entropy(m, "logit", "t"),
        "no value of this name",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_loss_can_be_computed_from_is_refused(case: str) -> None:
    call, message = REFUSED[case]
    with pytest.raises(AmpError, match=message):
        call(model_of(np.zeros((5, 2), np.float32), symbolic=False))
