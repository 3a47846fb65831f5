"""TF1's and Keras's optimizers compute the numbers of their own documents, under their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx.parser
import pytest

import amp_rewrite as amp
from amp_rewrite import optimizers as opt

STEPS, RATE = 50, 0.125
TOLERANCE = 1e-6
MODEL = """<ir_version: 8, opset_import: ["": 17]>
m (float[4] g) => (float loss) <float[4] w = {1, -2, 0.5, 3}> {
  p = Mul(w, g)
  loss = ReduceSum<keepdims=0>(p)
}"""

Array = np.ndarray
Formula = Callable[[dict[str, Any], Array, float], Array]
"""(what is remembered, the gradient, the rate of the step) -> what the variable loses."""


def momentum(s: dict[str, Any], g: Array, rate: float) -> Array:
    s["a"] = 0.75 * s.get("a", 0) + g
    return rate * s["a"]


def nesterov(s: dict[str, Any], g: Array, rate: float) -> Array:
    s["a"] = 0.75 * s.get("a", 0) + g
    return rate * (g + 0.75 * s["a"])


def adagrad(s: dict[str, Any], g: Array, rate: float) -> Array:
    s["a"] = s.get("a", 0.5) + g**2
    return rate * g / np.sqrt(s["a"])


def adadelta(s: dict[str, Any], g: Array, rate: float) -> Array:
    s["a"] = 0.95 * s.get("a", 0) + 0.05 * g**2
    d = np.sqrt(s.get("u", 0) + 1e-8) / np.sqrt(s["a"] + 1e-8) * g
    s["u"] = 0.95 * s.get("u", 0) + 0.05 * d**2
    return rate * d


def rmsprop(start: float, epsilon: float, *, centered: bool = False) -> Formula:
    def step(s: dict[str, Any], g: Array, rate: float) -> Array:
        s["s"] = 0.9 * s.get("s", start) + (1 - 0.9) * g**2
        s["m"] = 0.9 * s.get("m", 0) + (1 - 0.9) * g
        variance = s["s"] - s["m"] ** 2 if centered else s["s"]
        s["v"] = 0.5 * s.get("v", 0) + rate * g / np.sqrt(variance + epsilon)
        return s["v"]

    return step


def adam(epsilon: float) -> Formula:
    def step(s: dict[str, Any], g: Array, rate: float) -> Array:
        t = s["t"] = s.get("t", 0) + 1
        s["m"] = 0.9 * s.get("m", 0) + (1 - 0.9) * g
        s["v"] = 0.999 * s.get("v", 0) + (1 - 0.999) * g**2
        return rate * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * s["m"] / (np.sqrt(s["v"]) + epsilon)

    return step


def keras_momentum(s: dict[str, Any], g: Array, rate: float) -> Array:
    s["v"] = 0.75 * s.get("v", 0) - rate * g
    return -s["v"]


def keras_nesterov(s: dict[str, Any], g: Array, rate: float) -> Array:
    s["v"] = 0.75 * s.get("v", 0) - rate * g
    return -(0.75 * s["v"] - rate * g)


def halved(step: int) -> float:
    return RATE * 0.5 ** (step // 10)


HALVED = opt.ExponentialDecay(RATE, 10, 0.5, staircase=True)

CASES: dict[str, tuple[Callable[[], opt.Optimizer], Formula]] = {
    "TF1 Momentum": (lambda: opt.MomentumOptimizer(RATE, 0.75), momentum),
    "TF1 Momentum, locking": (lambda: opt.MomentumOptimizer(RATE, 0.75, True), momentum),
    "TF1 Nesterov": (
        lambda: opt.MomentumOptimizer(RATE, 0.75, False, "M", use_nesterov=True),
        nesterov,
    ),
    "TF1 Adagrad": (lambda: opt.AdagradOptimizer(RATE, 0.5, False, "Ada"), adagrad),
    "TF1 Adadelta": (lambda: opt.AdadeltaOptimizer(RATE, 0.95, 1e-8, False, "D"), adadelta),
    "TF1 RMSProp": (lambda: opt.RMSPropOptimizer(RATE, 0.9, 0.5), rmsprop(1, 1e-10)),
    "TF1 centered RMSProp": (
        lambda: opt.RMSPropOptimizer(RATE, 0.9, 0.5, 1e-3, False, True),
        rmsprop(1, 1e-3, centered=True),
    ),
    "TF1 Adam": (lambda: opt.AdamOptimizer(RATE), adam(1e-8)),
    "Keras SGD": (lambda: opt.SGD(RATE, 0.75), keras_momentum),
    "Keras SGD, Nesterov and a name": (lambda: opt.SGD(RATE, 0.75, True, "S"), keras_nesterov),
    "Keras RMSprop": (lambda: opt.RMSprop(RATE, rho=0.9, momentum=0.5), rmsprop(0, 1e-7)),
    "Keras Adam": (
        lambda: opt.Adam(RATE, beta_1=0.9, beta_2=0.999, epsilon=1e-7, epsilon_hat=True),
        adam(1e-7),
    ),
    "Keras Adagrad": (
        lambda: opt.Adagrad(RATE, initial_accumulator_value=0.5, epsilon=1e-7),
        adagrad,
    ),
    "Keras Adadelta": (lambda: opt.Adadelta(RATE, rho=0.95, epsilon=1e-8), adadelta),
}
SCHEDULED: dict[str, tuple[Callable[[], opt.Optimizer], Formula]] = {
    "TF1 Momentum": (lambda: opt.MomentumOptimizer(HALVED, 0.75), momentum),
    "TF1 RMSProp": (lambda: opt.RMSPropOptimizer(HALVED, 0.9, 0.5), rmsprop(1, 1e-10)),
    "Keras SGD": (lambda: opt.SGD(HALVED, 0.75), keras_momentum),
    "Keras SGD, Nesterov": (lambda: opt.SGD(HALVED, 0.75, nesterov=True), keras_nesterov),
}


def loss_of() -> amp.GraphValue:
    return amp.value(amp.load(onnx.parser.parse_model(MODEL)), "loss")


def gradients() -> list[Array]:
    """Return gradients that float16 holds exactly, of several magnitudes."""
    rng = np.random.default_rng(0)
    sizes = np.array([1, 2**-3, 2**-6, 4])
    return [
        (rng.standard_normal(4) * sizes).astype(np.float16).astype(np.float64) for _ in range(STEPS)
    ]


def trained(optimizer: opt.Optimizer, **session: Any) -> Array:
    with amp.TrainingSession(optimizer.minimize(loss_of()), **session) as opened:
        for g in gradients():
            opened.run({"g": g.astype(np.float32)})
        return opened.state_dict()["w"]


def expected(formula: Formula, rate: Callable[[int], float]) -> Array:
    w, state = np.array([1, -2, 0.5, 3]), {}
    for step, g in enumerate(gradients()):
        w = w - formula(state, g, rate(step))
    return w


def error(found: Array, wanted: Array) -> float:
    return float(np.max(np.abs(found - wanted) / np.maximum(np.abs(wanted), 1)))


@pytest.mark.parametrize("case", CASES)
def test_fifty_steps_are_those_of_the_formula(case: str) -> None:
    make, formula = CASES[case]
    # float32 sums of 50 steps: an ulp each, of variables up to 8
    assert error(trained(make()), expected(formula, lambda _: RATE)) < 4 * TOLERANCE


@pytest.mark.parametrize("case", SCHEDULED)
def test_a_rate_that_changes_is_where_the_formula_has_it(case: str) -> None:
    make, formula = SCHEDULED[case]
    assert error(trained(make()), expected(formula, halved)) < 4 * TOLERANCE


@pytest.mark.parametrize("case", ["TF1 RMSProp", "TF1 Adam", "Keras SGD", "Keras RMSprop"])
def test_fifty_steps_in_float16_with_a_loss_scale_are_the_same(case: str) -> None:
    make, formula = CASES[case]
    optimizer = amp.LossScaleOptimizer(inner_optimizer=make(), initial_scale=64.0)
    found = trained(optimizer, precision="float16", emulate=True)
    assert error(found, expected(formula, lambda _: RATE)) < 4 * TOLERANCE


def test_epsilon_is_where_tensorflow_has_it_for_tiny_gradients() -> None:
    def after_one_step(optimizer: opt.Optimizer) -> float:
        with amp.TrainingSession(optimizer.minimize(loss_of())) as session:
            session.run({"g": np.full(4, 1e-8, np.float32)})
            return float(session.state_dict()["w"][0])

    assert after_one_step(opt.AdamOptimizer(0.1)) == pytest.approx(0.997, abs=5e-4)
    assert after_one_step(opt.Adam(0.1)) == pytest.approx(0.95, abs=5e-4)  # the paper's


def test_a_configuration_of_keras_is_read() -> None:
    config = {
        "name": "adam",
        "learning_rate": {
            "module": "keras.optimizers.schedules",
            "class_name": "PiecewiseConstantDecay",
            "config": {"boundaries": [5], "values": [0.5, 0.25], "name": "PiecewiseConstant"},
            "registered_name": None,
        },
        **dict.fromkeys(("weight_decay", "clipnorm", "global_clipnorm", "clipvalue")),
        **dict.fromkeys(("ema_overwrite_frequency", "loss_scale_factor")),
        "use_ema": False,
        "beta_1": 0.8,
        "beta_2": 0.99,
        "epsilon": 1e-7,
        "amsgrad": False,
    }
    adam = opt.get({"module": "keras.optimizers", "class_name": "Adam", "config": config})
    assert isinstance(adam, opt.Adam)
    assert (adam.beta1, adam.beta_2, adam.epsilon, adam.epsilon_hat) == (0.8, 0.99, 1e-7, True)
    assert adam.learning_rate == opt.PiecewiseConstantDecay([5], [0.5, 0.25], "PiecewiseConstant")


@pytest.mark.parametrize("name", ["Adam", "AdamW"])
def test_a_configuration_of_keras_with_amsgrad_is_read(name: str) -> None:
    config = {"learning_rate": 0.5, "beta_1": 0.8, "epsilon": 1e-7, "amsgrad": True}
    adam = opt.get({"module": "keras.optimizers", "class_name": name, "config": config})
    assert isinstance(adam, opt.Adam)
    assert (adam.amsgrad, adam.epsilon_hat, adam.beta1) == (True, True, 0.8)
    again = type(adam).from_config(adam.get_config())
    assert again.get_config() == adam.get_config()
    assert (again.amsgrad, again.epsilon_hat) == (True, True)
