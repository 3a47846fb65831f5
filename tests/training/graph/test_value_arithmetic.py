"""Arithmetic on values of a graph against numpy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import amp_rewrite as amp
from amp_rewrite.errors import AmpError, OptionError
from amp_rewrite.graph.io.load import load

Array = np.ndarray[Any, Any]

RNG = np.random.default_rng(11)
X = RNG.normal(size=(3, 4)).astype(np.float32) * 2
W = RNG.normal(size=(3, 4)).astype(np.float32)
M = RNG.normal(size=(4, 2)).astype(np.float32)
K = np.array([2, 0])


def model() -> Any:
    """Return y = x + w, with an integer input k and a matrix m."""
    graph = onnx.parser.parse_graph(
        "forward (float[n, 4] x, int64[2] k) => (float[n, 4] y, int64[2] j)"
        "{ y = Add(x, w) j = Identity(k) }"
    )
    graph.initializer.append(onnx.numpy_helper.from_array(W, "w"))
    graph.initializer.append(onnx.numpy_helper.from_array(M, "m"))
    opsets = [onnx.helper.make_opsetid("", 17)]
    return load(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8))


def _softmax(y: Array) -> Array:
    e = np.exp(y - y.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


BOTH: dict[str, Callable[[Any], Any]] = {
    "y + 1": lambda y: y + 1,
    "1 + y": lambda y: 1 + y,
    "y - 2": lambda y: y - 2,
    "2 - y": lambda y: 2 - y,
    "y * 3": lambda y: y * 3,
    "3 * y": lambda y: 3 * y,
    "y / 4": lambda y: y / 4,
    "4 / y": lambda y: 4 / y,
    "y ** 2": lambda y: y**2,
    "2.5 ** y": lambda y: 2.5**y,
    "-y": lambda y: -y,
    "abs(y)": lambda y: abs(y),
    "y + an array": lambda y: y + np.arange(4),
    "an array - y": lambda y: np.arange(4) - y,
    "an array @ y.transpose()": lambda y: np.ones((2, 4), np.float32) @ y.transpose(),
    "y @ an array": lambda y: y @ M,
    "y < 0.5": lambda y: y < 0.5,
    "y <= y": lambda y: y <= y,
    "y > 0.5": lambda y: y > 0.5,
    "0.5 >= y": lambda y: 0.5 >= y,  # noqa: SIM300 the reflected operator is the case
    "y[0]": lambda y: y[0],
    "y[-1]": lambda y: y[-1],
    "y[1:]": lambda y: y[1:],
    "y[::-1]": lambda y: y[::-1],
    "y[:, 1]": lambda y: y[:, 1],
    "y[..., -1]": lambda y: y[..., -1],
    "y[:-1, 1:3]": lambda y: y[:-1, 1:3],
    "y[:, ::2]": lambda y: y[:, ::2],
    "y[None, 1, :, None]": lambda y: y[None, 1, :, None],
    "y[5:]": lambda y: y[5:],
    "y[[2, 0]]": lambda y: y[[2, 0]],
    "y[1:, [3, 3]]": lambda y: y[1:, [3, 3]],
    "y.sum()": lambda y: y.sum(),
    "y.sum(0)": lambda y: y.sum(0),
    "y.mean(-1, keepdims)": lambda y: y.mean(-1, keepdims=True),
    "y.max((0, 1))": lambda y: y.max((0, 1)),
    "y.min(1)": lambda y: y.min(1),
    "y.reshape(2, -1)": lambda y: y.reshape(2, -1),
    "y.reshape((-1,))": lambda y: y.reshape((-1,)),
    "y.transpose(1, 0)": lambda y: y.transpose(1, 0),
    "y.clip(-1, 1)": lambda y: y.clip(-1, 1),
    "y.clip(0)": lambda y: y.clip(0, None),
}
"""What reads the same for a value of a graph and for an array."""

OTHERS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Array], Array]]] = {
    "y.exp()": (lambda y, _: y.exp(), np.exp),
    "y.square().log()": (lambda y, _: y.square().log(), lambda y: np.log(y * y)),
    "y.abs().sqrt()": (lambda y, _: y.abs().sqrt(), lambda y: np.sqrt(abs(y))),
    "y.tanh()": (lambda y, _: y.tanh(), np.tanh),
    "y.sigmoid()": (lambda y, _: y.sigmoid(), lambda y: 1 / (1 + np.exp(-y))),
    "y.softplus()": (lambda y, _: y.softplus(), lambda y: np.logaddexp(0, y)),
    "y.relu()": (lambda y, _: y.relu(), lambda y: np.maximum(y, 0)),
    "y.sign()": (lambda y, _: y.sign(), np.sign),
    "y.softmax()": (lambda y, _: y.softmax(), _softmax),
    "y.log_softmax()": (lambda y, _: y.log_softmax(), lambda y: np.log(_softmax(y))),
    "y.maximum(0.5)": (lambda y, _: y.maximum(0.5), lambda y: np.maximum(y, 0.5)),
    "y.where(y > 0, -1)": (lambda y, _: y.where(y > 0, -1), lambda y: np.where(y > 0, y, -1)),
    "y.equal(y)": (lambda y, _: y.equal(y), lambda y: y == y),
    "y.astype": (lambda y, _: y.astype("int64").astype("float32"), np.trunc),
    "y[k]": (lambda y, k: y[k], lambda y: y[K]),
    "y[1:, k]": (lambda y, k: y[1:, k], lambda y: y[1:, K]),
    "y @ y.transpose()": (lambda y, _: y @ y.transpose(), lambda y: y @ y.T),
}


@pytest.fixture(scope="module")
def found() -> dict[str, Array]:
    """Return what each expression gives when the graph runs, all in one step."""
    m = model()
    y, k = amp.value(m, "y"), amp.value(m, "k")
    made = {name: make(y) for name, make in BOTH.items()}
    made |= {name: make(y, k) for name, (make, _) in OTHERS.items()}
    train_op = amp.optimizers.SGD(0.0).minimize((y * y).sum())
    with amp.TrainingSession(train_op) as session:
        names = {name: value.name for name, value in made.items()}
        out = session.run({"x": X, "k": K}, list(names.values()))
    return {name: out[value] for name, value in names.items()}


@pytest.mark.parametrize("name", BOTH)
def test_what_numpy_writes_alike(name: str, found: dict[str, Array]) -> None:
    expected = BOTH[name](X + W)
    assert found[name].shape == expected.shape
    np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", OTHERS)
def test_what_has_a_method(name: str, found: dict[str, Array]) -> None:
    expected = OTHERS[name][1](X + W)
    assert found[name].shape == expected.shape
    np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-6)


def test_a_loss_written_in_python_is_minimized() -> None:
    """A contrastive loss: each row is to resemble the row that k names."""
    m = model()
    y, k = amp.value(m, "y"), amp.value(m, "k")
    unit = y / (y * y).sum(-1, keepdims=True).sqrt()
    loss = (1 - (unit[:2] * unit[k]).sum(-1)).mean()
    train_op = amp.optimizers.SGD(0.5).minimize(loss)
    with amp.TrainingSession(train_op) as session:
        losses = [float(session.run({"x": X, "k": K})["loss"]) for _ in range(300)]
    assert losses[0] > 0.1
    assert losses[-1] < 0.01


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "words": (lambda y: y + "1", "not a number, an array of numbers or a value"),
    "nothing": (lambda y: y * None, "not a number"),
    "ragged": (lambda y: y - [[1], [2, 3]], "not a number"),
    "shapes": (lambda y: y @ np.ones((3, 3)), "does not admit its inputs"),
    "truth": (lambda y: 1 if y > 0 else 2, "neither true nor false"),
    "a boolean index": (lambda y: y[True], "not an index; .*found True"),
    "an index of floats": (lambda y: y[y], "not an index; found the value 'y'"),
    "a float index": (lambda y: y[0.5], "not an index"),
    "a step of 0": (lambda y: y[::0], "not an index"),
    "too many indices": (lambda y: y[0, 0, 0], "more indices than axes; .*found 3"),
    "two ellipses": (lambda y: y[..., ...], "is not clear"),
    "a number in it": (lambda y: 1.0 in y, r"known when the graph runs; .*found 1\.0 in a value"),
    "a type": (lambda y: y.astype("float3"), "unknown type; found 'float3'"),
    "an axis": (lambda y: y.softmax("a"), "axis must be an integer"),
    "axes": (lambda y: y.sum("a"), "axes must be an integer"),
    "a condition": (lambda y: y.where(True, 0), "a condition is a value"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_computed_is_refused(case: str) -> None:
    call, message = REFUSED[case]
    with pytest.raises(AmpError, match=message):
        call(amp.value(model(), "y"))


def test_rows_of_a_known_number_are_iterated_over() -> None:
    m = model()
    rows = list(amp.value(m, "m"))
    assert [row.shape for row in rows] == [(2,)] * 4
    total: Any = sum(rows)
    loss = total.sum() + amp.value(m, "y").sum() * 0.0
    with amp.TrainingSession(amp.optimizers.SGD(0.5).minimize(loss)) as session:
        found = session.run({"x": X, "k": K})["loss"]
    np.testing.assert_allclose(found, M.sum(), rtol=1e-6)
    with pytest.raises(OptionError, match=r"found shape \[\]"):
        iter(loss)
    with pytest.raises(OptionError, match=r"iterated over; found shape \[None, 4\]; .*\.sum\(\)"):
        sum(amp.value(m, "x"))
    with pytest.raises(TypeError, match="gradients must come in a list"):
        amp.LossScaleOptimizer(amp.optimizers.SGD()).get_unscaled_gradients(amp.value(m, "m"))


def test_values_of_two_models_do_not_meet() -> None:
    with pytest.raises(OptionError, match="values of two models"):
        amp.value(model(), "y").maximum(amp.value(model(), "y"))
