"""Every optimizer, step by step, against formulas written down again from the papers in numpy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from amp_rewrite import optimizers
from amp_rewrite.training.graph.training_graph import value
from amp_rewrite.training.session.training_session import TrainingSession

STEPS, ROWS, COLUMNS = 25, 6, 3
RATE = 0.0625  # exact in float32, so that the formulas need not round it
TOLERANCE = {"float64": 1e-11, "float32": 2e-5}

Array = np.ndarray
Slots = dict[str, Array]
Reference = Callable[[Array, Slots, Array, int], Array]


def gradient_descent(w: Array, s: Slots, g: Array, t: int) -> Array:
    return w - RATE * g


def momentum(w: Array, s: Slots, g: Array, t: int) -> Array:
    s["momentum"][...] = 0.75 * s["momentum"] + g
    return w - RATE * s["momentum"]


def penalized(w: Array, s: Slots, g: Array, t: int) -> Array:
    return momentum(w, s, g + 0.25 * w, t)


def penalized_descent(w: Array, s: Slots, g: Array, t: int) -> Array:
    return gradient_descent(w, s, g + 0.25 * w, t)


def nesterov(w: Array, s: Slots, g: Array, t: int) -> Array:
    s["momentum"][...] = 0.75 * s["momentum"] + g
    return w - RATE * (g + 0.75 * s["momentum"])


def adagrad(w: Array, s: Slots, g: Array, t: int) -> Array:
    s["accumulator"][...] += g**2
    return w - RATE * g / (np.sqrt(s["accumulator"]) + 1e-3)


def adadelta(w: Array, s: Slots, g: Array, t: int) -> Array:
    s["accum"][...] = 0.9 * s["accum"] + 0.1 * g**2
    step = np.sqrt(s["accum_update"] + 1e-3) / np.sqrt(s["accum"] + 1e-3) * g
    s["accum_update"][...] = 0.9 * s["accum_update"] + 0.1 * step**2
    return w - RATE * step


def rmsprop(w: Array, s: Slots, g: Array, t: int) -> Array:
    s["rms"][...] = 0.8 * s["rms"] + 0.2 * g**2
    s["momentum"][...] = 0.5 * s["momentum"] + g / (np.sqrt(s["rms"]) + 1e-3)
    return w - RATE * s["momentum"]


def centered(w: Array, s: Slots, g: Array, t: int) -> Array:
    s["rms"][...] = 0.8 * s["rms"] + 0.2 * g**2
    s["mg"][...] = 0.8 * s["mg"] + 0.2 * g
    variance = np.maximum(s["rms"] - s["mg"] ** 2, 0)
    s["momentum"][...] = 0.5 * s["momentum"] + g / (np.sqrt(variance) + 1e-2)
    return w - RATE * s["momentum"]


def _direction(s: Slots, g: Array, t: int) -> Array:
    s["m"][...] = 0.8 * s["m"] + (1 - 0.8) * g
    s["v"][...] = 0.95 * s["v"] + (1 - 0.95) * g**2
    root = s["v"]
    if "vhat" in s:
        root = s["vhat"][...] = np.maximum(s["vhat"], s["v"])
    return s["m"] / (1 - 0.8**t) / (np.sqrt(root / (1 - 0.95**t)) + 1e-3)


def keras_amsgrad(w: Array, s: Slots, g: Array, t: int) -> Array:
    s["m"][...] += (g - s["m"]) * (1 - 0.8)
    s["v"][...] += (g**2 - s["v"]) * (1 - 0.95)
    s["vhat"][...] = np.maximum(s["vhat"], s["v"])
    alpha = RATE * np.sqrt(1 - 0.95**t) / (1 - 0.8**t)
    return w - s["m"] * alpha / (np.sqrt(s["vhat"]) + 1e-3)


def adam(w: Array, s: Slots, g: Array, t: int) -> Array:
    return w - RATE * _direction(s, g, t)


def adamw(w: Array, s: Slots, g: Array, t: int) -> Array:
    return w - RATE * 0.25 * w - RATE * _direction(s, g, t)


def lamb(w: Array, s: Slots, g: Array, t: int) -> Array:
    r = _direction(s, g, t) + 0.25 * w
    return w - RATE * np.linalg.norm(w) / np.linalg.norm(r) * r


ADAM: dict[str, Any] = {"beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3}
RULES: dict[str, tuple[Reference, type[optimizers.Optimizer], dict[str, Any]]] = {
    "gradient descent": (gradient_descent, optimizers.GradientDescent, {}),
    "momentum": (momentum, optimizers.Momentum, {"momentum": 0.75}),
    "penalized descent": (
        penalized_descent,
        optimizers.GradientDescent,
        {"weight_decay": 0.25},
    ),
    "penalized momentum": (
        penalized,
        optimizers.Momentum,
        {"momentum": 0.75, "weight_decay": 0.25},
    ),
    "nesterov": (nesterov, optimizers.Momentum, {"momentum": 0.75, "use_nesterov": True}),
    "adagrad": (
        adagrad,
        optimizers.Adagrad,
        {"epsilon": 1e-3, "initial_accumulator_value": 0.5},
    ),
    "adadelta": (adadelta, optimizers.Adadelta, {"rho": 0.9, "epsilon": 1e-3}),
    "rmsprop": (rmsprop, optimizers.RMSProp, {"decay": 0.8, "momentum": 0.5, "epsilon": 1e-3}),
    "centered rmsprop": (
        centered,
        optimizers.RMSProp,
        {"decay": 0.8, "momentum": 0.5, "epsilon": 1e-2, "centered": True},
    ),
    "adam": (adam, optimizers.Adam, ADAM),
    "lazy adam": (adam, optimizers.Adam, {**ADAM, "lazy": True}),
    "amsgrad": (adam, optimizers.Adam, {**ADAM, "amsgrad": True}),
    "lazy amsgrad": (adam, optimizers.Adam, {**ADAM, "amsgrad": True, "lazy": True}),
    "Keras's amsgrad": (keras_amsgrad, optimizers.AdamOptimizer, {**ADAM, "amsgrad": True}),
    "adamw": (adamw, optimizers.AdamW, {**ADAM, "weight_decay": 0.25}),
    "adamw amsgrad": (adamw, optimizers.AdamW, {**ADAM, "weight_decay": 0.25, "amsgrad": True}),
    "lamb": (lamb, optimizers.LAMB, {**ADAM, "weight_decay": 0.25}),
    "lamb amsgrad": (lamb, optimizers.LAMB, {**ADAM, "weight_decay": 0.25, "amsgrad": True}),
}
WHOLE_TABLE = (
    *("adam", "adamw", "lamb", "penalized descent", "penalized momentum"),
    *("amsgrad", "Keras's amsgrad", "adamw amsgrad", "lamb amsgrad"),
)
"""The rules by which a row without a gradient moves too."""


def _slots(optimizer: optimizers.Optimizer, w: Array) -> Slots:
    first = getattr(optimizer, "initial_accumulator_value", 0.0)
    return {name: np.full_like(w, first) for name in optimizer.get_slot_names()}


def _check(
    session: TrainingSession, optimizer: optimizers.Optimizer, w: Array, s: Slots, tolerance: float
) -> None:
    found = session.state_dict()
    np.testing.assert_allclose(found["w"], w, rtol=tolerance, atol=tolerance)
    for name, expected in s.items():
        slot = optimizer.get_slot("w", name)
        assert slot is not None
        np.testing.assert_allclose(found[slot.name], expected, rtol=tolerance, atol=tolerance)


@pytest.mark.share(2)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("rule", RULES)
def test_dense_gradients_follow_the_formula(
    rule: str, dtype: str, dense_model: Callable[..., ir.Model]
) -> None:
    reference, kind, parameters = RULES[rule]
    rng = np.random.default_rng(1)
    initial = rng.normal(size=(ROWS, COLUMNS)).astype(dtype)
    optimizer = kind(learning_rate=RATE, **parameters)
    model = dense_model(initial)
    train_op = optimizer.minimize(value(model, "loss"))
    w = initial.astype(np.float64)
    slots = _slots(optimizer, w)
    with TrainingSession(train_op) as session:
        for t in range(1, STEPS + 1):
            g = rng.normal(size=w.shape).astype(dtype)
            session.run({"g": g})
            w = reference(w, slots, g.astype(np.float64), t)
            _check(session, optimizer, w, slots, TOLERANCE[dtype])


@pytest.mark.share(7)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("rule", RULES)
def test_sparse_gradients_sum_equal_indices_and_touch_what_the_rule_allows(
    rule: str, dtype: str, sparse_model: Callable[..., ir.Model]
) -> None:
    reference, kind, parameters = RULES[rule]
    rng = np.random.default_rng(2)
    initial = rng.normal(size=(ROWS, COLUMNS)).astype(dtype)
    optimizer = kind(learning_rate=RATE, **parameters)
    model = sparse_model(initial)
    pairs = optimizer.compute_gradients(value(model, "loss"))
    assert isinstance(pairs[0][0], optimizers.IndexedSlices)
    train_op = optimizer.apply_gradients(pairs)
    w = initial.astype(np.float64)
    slots = _slots(optimizer, w)
    with TrainingSession(train_op) as session:
        for t in range(1, STEPS + 1):
            ids = rng.integers(0, ROWS - 1, size=rng.integers(1, 8))  # the last row is never used
            g = rng.normal(size=(len(ids), COLUMNS)).astype(dtype)
            session.run({"g": g, "ids": ids})
            total = np.zeros_like(w)
            np.add.at(total, ids, g.astype(np.float64))
            rows = np.arange(ROWS) if rule in WHOLE_TABLE else np.unique(ids)
            part = {name: slot[rows] for name, slot in slots.items()}
            w[rows] = reference(w[rows], part, total[rows], t)
            for name, slot in slots.items():
                slot[rows] = part[name]
            _check(session, optimizer, w, slots, TOLERANCE[dtype])
        if rule not in WHOLE_TABLE:
            np.testing.assert_array_equal(session.state_dict()["w"][-1], initial[-1])


def test_a_variable_of_zeros_and_one_without_a_direction_do_not_stop_lamb(
    dense_model: Callable[..., ir.Model],
) -> None:
    optimizer = optimizers.LAMB(0.5, weight_decay=0.0)
    model = dense_model(np.zeros((2, 2), np.float32))
    with TrainingSession(optimizer.minimize(value(model, "loss"))) as session:
        session.run({"g": np.zeros((2, 2), np.float32)})
        np.testing.assert_array_equal(session.state_dict()["w"], np.zeros((2, 2)))
        session.run({"g": np.ones((2, 2), np.float32)})
        w = session.state_dict()["w"]
    assert np.isfinite(w).all()
    assert (w < 0).all()
