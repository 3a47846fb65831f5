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
from amp_rewrite.training.graph.training_graph import GraphValue
from amp_rewrite.training.session.training_session import TrainingSession

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


@pytest.mark.share(7, each="reduction")
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


def cross_entropy(
    x: np.ndarray, t: np.ndarray, w: np.ndarray, smoothing: float, ignored: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return each label's loss and count, as PyTorch documents them for class numbers (N,)."""
    log_prob = np.log(softmax(x.astype(np.float64), -1))
    kept = np.ones(t.shape) if ignored is None else (t != ignored).astype(float)
    known = np.where(kept > 0, t, 0)
    rows = np.arange(len(t))
    each = -(1 - smoothing) * w[known] * log_prob[rows, known]
    each -= smoothing / x.shape[-1] * (w * log_prob).sum(-1)
    return each * kept, w[known] * kept


def slope(f: Any, w: np.ndarray) -> np.ndarray:
    """Return the gradient of a function of float64 by central differences."""
    w = w.astype(np.float64)
    out = np.zeros_like(w)
    for at in np.ndindex(w.shape):
        high, low = w.copy(), w.copy()
        high[at] += 1e-6
        low[at] -= 1e-6
        out[at] = (f(high) - f(low)) / 2e-6
    return out


OPTIONS: list[dict[str, Any]] = [
    {"label_smoothing": 0.1},
    {"class_weights": [0.5, 2.0, 0.0, 1.0]},
    {"class_weights": [0.5, 2.0, 0.0, 1.0], "label_smoothing": 0.3},
    {"ignore_index": -100, "label_smoothing": 0.1},
    {"ignore_index": -100, "class_weights": (1, 2, 3, 4)},
    {"ignore_index": 2, "class_weights": np.arange(1, 5), "label_smoothing": 1.0},
]


@pytest.mark.share(2)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("spatial", [False, True])
def test_options_of_softmax_cross_entropy(
    options: dict[str, Any], reduction: str, spatial: bool
) -> None:
    w = RNG.normal(size=(6, 4, 2) if spatial else (6, 4)).astype(np.float32)
    labels = RNG.integers(0, 4, (6, 2) if spatial else (6,))
    if "ignore_index" in options:
        labels.flat[:2] = options["ignore_index"]
    loss = losses.softmax_cross_entropy(
        model_of(w), "y", "t", axis=1, reduction=reduction, **options
    )
    found, gradient = run(loss, w, {"t": labels})

    def expected(x: np.ndarray) -> float:
        each, counts = cross_entropy(
            np.moveaxis(x, 1, -1).reshape(-1, 4),
            labels.reshape(-1),
            np.asarray(options.get("class_weights", np.ones(4)), np.float64),
            options.get("label_smoothing", 0.0),
            options.get("ignore_index"),
        )
        return each.sum() / (counts.sum() if reduction == "mean" else 1)

    np.testing.assert_allclose(found, expected(w), rtol=1e-5)
    np.testing.assert_allclose(gradient, slope(expected, w), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("options", OPTIONS[3:], ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_labels_that_are_all_ignored_lose_nothing(options: dict[str, Any], reduction: str) -> None:
    w = RNG.normal(size=(3, 4)).astype(np.float32)
    loss = losses.softmax_cross_entropy(model_of(w), "y", "t", reduction=reduction, **options)
    found, gradient = run(loss, w, {"t": np.full(3, options["ignore_index"])})
    assert found == 0
    np.testing.assert_array_equal(gradient, np.zeros_like(w))


@pytest.mark.parametrize("options", [{}, OPTIONS[0], OPTIONS[2]], ids=str)
@pytest.mark.parametrize("axis", [1, -1])
def test_soft_labels(options: dict[str, Any], axis: int) -> None:
    w = RNG.normal(size=(5, 4, 4)).astype(np.float32)
    p = softmax(RNG.normal(size=w.shape), axis).astype(np.float32)
    loss = losses.softmax_cross_entropy(
        model_of(w), "y", "t", axis=axis, soft_labels=True, **options
    )
    found, gradient = run(loss, w, {"t": p})
    smoothing, weights = options.get("label_smoothing", 0.0), options.get("class_weights", 1.0)
    wanted = (1 - smoothing) * np.moveaxis(p, axis, -1) + smoothing / 4

    def expected(x: np.ndarray) -> float:
        log_prob = np.log(softmax(np.moveaxis(x, axis, -1), -1))
        return -(wanted * np.asarray(weights) * log_prob).sum() / 20

    np.testing.assert_allclose(found, expected(w.astype(np.float64)), rtol=1e-5)
    np.testing.assert_allclose(gradient, slope(expected, w), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("pos_weight", [None, 3.0, [0.5, 2.0, 0.0, 1.0]], ids=str)
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_options_of_sigmoid_cross_entropy(pos_weight: Any, smoothing: float) -> None:
    w = (RNG.normal(size=(5, 4)) * 3).astype(np.float32)
    z = RNG.integers(0, 2, (5, 4)).astype(np.float32)
    loss = losses.sigmoid_cross_entropy(
        model_of(w), "y", "t", pos_weight=pos_weight, label_smoothing=smoothing
    )
    found, gradient = run(loss, w, {"t": z})
    smooth = z * (1 - smoothing) + smoothing / 2
    weight = np.asarray(1.0 if pos_weight is None else pos_weight)

    def expected(x: np.ndarray) -> float:
        positive = weight * smooth * np.logaddexp(0, -x)
        return (positive + (1 - smooth) * np.logaddexp(0, x)).mean()

    np.testing.assert_allclose(found, expected(w.astype(np.float64)), rtol=1e-5)
    np.testing.assert_allclose(gradient, slope(expected, w), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("delta", [None, 0.5, 2])
def test_errors_that_grow_no_faster_than_themselves(delta: float | None, reduction: str) -> None:
    """Huber's loss, and without a delta the mean absolute error; one error is 1e6."""
    w = (RNG.normal(size=(4, 3)) * 2).astype(np.float32)
    w[0, 0], w[1, 1] = 1e6, 0
    t = np.zeros((4, 3), np.float32)
    make = losses.mean_absolute_error if delta is None else losses.huber
    given = {} if delta is None else {"delta": delta}
    loss = make(model_of(w), "y", "t", reduction=reduction, **given)
    found, gradient = run(loss, w, {"t": t})
    e = w.astype(np.float64)
    each = np.abs(e)
    if delta is not None:
        each = np.where(each <= delta, e * e / 2, delta * (each - delta / 2))
    scale = 1 / e.size if reduction == "mean" else 1
    np.testing.assert_allclose(found, each.sum() * scale, rtol=1e-6)
    wanted = np.sign(e) if delta is None else np.clip(e, -delta, delta)
    np.testing.assert_allclose(gradient, wanted * scale, rtol=1e-5, atol=1e-7)


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


def test_labels_become_an_input_shaped_by_the_logits() -> None:
    model = model_of(np.zeros((5, 2, 4), np.float32))
    loss = losses.softmax_cross_entropy(model, "y", "labels")
    new = loss.graph.model.graph.inputs[-1]
    assert new.name == "labels"
    assert new.dtype is ir.DataType.INT64
    assert new.shape is not None
    assert [str(d) if isinstance(d, int) else "symbolic" for d in new.shape.dims][1:] == ["2"]


REFUSED: dict[str, tuple[Any, str]] = {
    "reduction": (
        lambda m: losses.mean_squared_error(m, "y", "t", reduction="max"),
        "unknown reduction",
    ),
    "no axis": (
        lambda m: losses.softmax_cross_entropy(m, "y", "t", axis="c"),  # type: ignore[arg-type]
        "axis must be an integer; found 'c'",
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
    "weights of other classes": (
        lambda m: losses.softmax_cross_entropy(m, "y", "t", class_weights=[1, 2, 3]),
        "one weight for each class; found 3; expected 2",
    ),
    "a weight that is a word": (
        lambda m: losses.sigmoid_cross_entropy(m, "y", "t", pos_weight="2x"),
        "impossible pos_weight; found '2x'",
    ),
    "weights that do not broadcast": (
        lambda m: losses.sigmoid_cross_entropy(m, "y", "t", pos_weight=[1, 2, 3]),
        r"does not broadcast to the logits; found \[3\]",
    ),
    "soft labels to ignore": (
        lambda m: losses.softmax_cross_entropy(m, "y", "t", soft_labels=True, ignore_index=0),
        "no class to ignore",
    ),
    "no delta": (
        lambda m: losses.huber(m, "y", "t", delta=0),
        "impossible delta; found 0; expected a number above 0",
    ),
    "no value": (
        lambda m: losses.mean_squared_error(m, "y", None),  # pyright: ignore[reportArgumentType]
        "not a value .* found None",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_loss_can_be_computed_from_is_refused(case: str) -> None:
    call, message = REFUSED[case]
    with pytest.raises(AmpError, match=message):
        call(model_of(np.zeros((5, 2), np.float32), symbolic=False))
