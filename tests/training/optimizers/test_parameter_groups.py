"""Groups of variables that are trained in ways of their own, by one backward pass."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from two_layers import SHAPES, network

import amp_rewrite as amp
from amp_rewrite.errors import AmpError, OptimizerTypeError, OptimizerValueError, OptionError
from amp_rewrite.graph.step_part import Part, part_in
from amp_rewrite.optimizers import (
    Adam,
    AdamW,
    GradientDescent,
    LinearWarmUp,
    Optimizer,
    ParameterGroup,
    ParameterGroups,
    get,
)

Arrays = dict[str, np.ndarray]

FEEDS = {
    "x": np.random.default_rng(3).normal(size=(5, 3)).astype(np.float32),
    "t": np.random.default_rng(4).normal(size=(5, 2)).astype(np.float32),
}


def trained(optimizer: Optimizer, steps: int = 3, **arguments: Any) -> Arrays:
    """Return the states after some steps."""
    loss = amp.losses.mean_squared_error(network(), "y", "t")
    with amp.TrainingSession(optimizer.minimize(loss), **arguments) as session:
        for _ in range(steps):
            session.run(FEEDS)
        return session.state_dict()


def variables(states: Arrays) -> Arrays:
    return {name: states[name] for name in SHAPES}


def gradients(w: Arrays) -> Arrays:
    """Return the gradients of the loss, in float64."""
    x, t = FEEDS["x"].astype(float), FEEDS["t"]
    a = np.tanh(x @ w["body.weight"] + w["body.bias"])
    g = 2 * (a @ w["head.weight"] + w["head.bias"] - t) / t.size
    h = g @ w["head.weight"].T * (1 - a**2)
    return {
        "body.weight": x.T @ h,
        "body.bias": h.sum(0),
        "head.weight": a.T @ g,
        "head.bias": g.sum(0),
    }


def reference(rates: dict[str, float], decays: dict[str, float], steps: int = 3) -> Arrays:
    """Return the variables after gradient descent with L2, each with numbers of its own."""
    source = network().graph.initializers
    w = {name: np.array(source[name].const_value.numpy(), float) for name in SHAPES}  # type: ignore[union-attr]
    for _ in range(steps):
        g = gradients(w)
        w = {n: v - rates[n] * (g[n] + decays[n] * v) for n, v in w.items()}
    return w


def compare(found: Arrays, expected: Arrays) -> None:
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)


def test_rates_and_decays_are_those_of_the_groups() -> None:
    optimizer = ParameterGroups(
        GradientDescent(0.1, weight_decay=0.5),
        [
            ParameterGroup(variables="body.*", rate_multiplier=0.5),
            {"variables": "head.bias", "learning_rate": 0.3, "weight_decay": 0.25},
        ],
    )
    rates = {n: 0.05 if n.startswith("body") else 0.1 for n in SHAPES} | {"head.bias": 0.3}
    decays = dict.fromkeys(SHAPES, 0.5) | {"head.bias": 0.25}
    compare(trained(optimizer), reference(rates, decays))


def test_no_decay_spares_variables_of_every_group() -> None:
    optimizer = ParameterGroups(
        GradientDescent(0.1, weight_decay=0.5),
        [ParameterGroup(variables="body.*", weight_decay=0.25)],
        no_decay="bias,norm",
    )
    decays = {"body.weight": 0.25, "head.weight": 0.5, "body.bias": 0, "head.bias": 0}
    compare(trained(optimizer), reference(dict.fromkeys(SHAPES, 0.1), decays))


def test_groups_of_one_optimizer_do_what_it_does_alone() -> None:
    groups = [ParameterGroup(variables="body.*"), ParameterGroup(variables="head.weight")]
    alone, grouped = trained(AdamW(0.1)), trained(ParameterGroups(AdamW(0.1), groups))
    assert set(grouped) == set(alone)
    for name, array in alone.items():
        np.testing.assert_array_equal(grouped[name], array)


def test_norms_are_clipped_group_by_group() -> None:
    limit = 1e-3
    groups = [ParameterGroup(variables="body.*", global_clipnorm=limit)]
    found = trained(ParameterGroups(GradientDescent(1.0), groups), steps=1)
    free = trained(GradientDescent(1.0), steps=1)
    before = reference(dict.fromkeys(SHAPES, 0.0), dict.fromkeys(SHAPES, 0.0), 0)
    moved = [before[n] - found[n] for n in SHAPES if n.startswith("body")]
    norm = np.sqrt(sum((m**2).sum() for m in moved))
    np.testing.assert_allclose(norm, limit, rtol=1e-3)
    np.testing.assert_array_equal(found["head.weight"], free["head.weight"])


def test_all_groups_share_one_backward_pass() -> None:
    def backward(optimizer: Optimizer) -> int:
        loss = amp.losses.mean_squared_error(network(), "y", "t")
        step = amp.build_step(optimizer.minimize(loss))
        return sum(part_in(node.metadata_props) is Part.GRADIENT for node in step.graph)

    groups = [ParameterGroup(variables="head.*", learning_rate=0.05)]
    assert backward(ParameterGroups(Adam(0.1), groups)) == backward(Adam(0.1))


def test_a_schedule_holds_for_multiplied_rates_and_both_can_be_set() -> None:
    groups = [
        ParameterGroup(variables="body.*", rate_multiplier=0.5),
        ParameterGroup(variables="head.bias", name="last", learning_rate=LinearWarmUp(0.4, 2)),
    ]
    optimizer = ParameterGroups(GradientDescent(LinearWarmUp(0.2, 4)), groups)
    loss = amp.losses.mean_squared_error(network(), "y", "t")
    with amp.TrainingSession(optimizer.minimize(loss)) as session:
        before = session.state_dict()
        session.run(FEEDS)
        compare(session.state_dict(), variables(before))  # both warm up from 0
        session.run(FEEDS)
        after = session.state_dict()
        g = gradients({k: v.astype(float) for k, v in variables(before).items()})
        rates = dict.fromkeys(SHAPES, 0.05) | {"head.bias": 0.2}
        rates |= {n: 0.025 for n in SHAPES if n.startswith("body")}
        compare(after, {n: before[n] - rates[n] * g[n] for n in SHAPES})
        assert session.read_state("learning_rate/last") == np.float32(0.4)
        optimizer.members["last"].learning_rate = 0.0
        session.learning_rate = 0.0
        session.run(FEEDS)
        compare(session.state_dict(), variables(after))
    with pytest.raises(OptimizerValueError, match="of a group with a multiplier"):
        optimizer.members["group_1"].learning_rate = 0.1


@pytest.mark.parametrize("conditional", ["if", "select"])
def test_one_loss_scale_skips_all_groups(conditional: str) -> None:
    groups = [
        ParameterGroup(variables="head.*", learning_rate=0.05, name="head"),
        ParameterGroup(variables="body.bias", clipnorm=1.0),
    ]
    optimizer = amp.LossScaleOptimizer(
        ParameterGroups(AdamW(0.1), groups, no_decay="bias"),
        amp.DynamicLossScale(1024.0),
        conditional=conditional,
    )
    loss = amp.losses.mean_squared_error(network(), "y", "t")
    with amp.TrainingSession(optimizer.minimize(loss)) as session:
        session.run(FEEDS)
        before = session.state_dict()
        found = session.run({**FEEDS, "t": np.full((5, 2), np.inf, np.float32)})
        after = session.state_dict()
    assert not found["grads_finite"]
    names = {name for name in before if not np.array_equal(before[name], after[name])}
    assert names == {f"loss_scale/{n}" for n in (
        "current_loss_scale", "good_steps", "skipped_steps", "consecutive_skips"
    )}  # fmt: skip
    plain = ParameterGroups(AdamW(0.1), groups[1:], no_decay="bias")
    scaled = amp.LossScaleOptimizer(ParameterGroups(AdamW(0.1), groups[1:], no_decay="bias"), 8)
    compare(variables(trained(scaled)), variables(trained(plain)))


def test_a_configuration_makes_the_same_groups() -> None:
    groups = [
        ParameterGroup(variables="body.*", learning_rate=LinearWarmUp(0.1, 2), weight_decay=0.5),
        ParameterGroup(variables=["head.bias"], clipnorm=0.05, name="head"),
    ]
    optimizer = ParameterGroups(AdamW(0.1), groups, no_decay="bias")
    config = json.loads(json.dumps(optimizer.get_config()))
    other = get({"class_name": "ParameterGroups", "config": config})
    assert json.loads(json.dumps(other.get_config())) == config
    expected = trained(other)
    for name, array in trained(optimizer).items():
        np.testing.assert_array_equal(expected[name], array)


def build(*groups: Any, base: Any = None, **arguments: Any) -> None:
    optimizer = ParameterGroups(base or Adam(0.1), groups, **arguments)
    optimizer.minimize(amp.losses.mean_squared_error(network(), "y", "t"))


@pytest.mark.parametrize(
    ("groups", "arguments", "error", "message"),
    [
        ([{"variables": "tail.*"}], {}, OptionError, "group 'group_1': the pattern matches no"),
        ([], {"no_decay": "tail", "base": AdamW()}, OptionError, "no_decay: the pattern matches"),
        (
            [{"variables": "head.*"}, {"variables": "*.bias", "name": "b"}],
            {},
            OptimizerValueError,
            "head.bias: a variable is in two groups; found 'group_1' and 'b'",
        ),
        ([{"variables": "head.*", "name": "default"}], {}, OptimizerValueError, "one name"),
        ([{"variables": "head.*", "weight_decay": 1}], {}, OptimizerValueError, "no weight decay"),
        ([], {"no_decay": "bias"}, OptimizerValueError, "no_decay: no weight decay"),
        ([{"variables": "head.*", "rate": 0.1}], {}, OptimizerTypeError, "argument 'rate'"),
        ([{"learning_rate": 0.1}], {}, OptimizerTypeError, "missing a .* 'variables'"),
        ([3], {}, OptimizerTypeError, "must be a mapping; found an object of type int"),
        (
            [{"variables": "head.*", "learning_rate": 0.1, "rate_multiplier": 2}],
            {},
            OptimizerValueError,
            "exclude each other; found learning_rate and rate_multiplier",
        ),
        ([{"variables": "head.*", "clipnorm": -1}], {}, OptimizerValueError, "impossible clipnorm"),
        (
            [],
            {"base": amp.LossScaleOptimizer(Adam())},
            OptimizerValueError,
            "put the LossScaleOptimizer around ParameterGroups",
        ),
        ([], {"base": Adam(use_ema=True)}, OptimizerValueError, "put WeightAverage around"),
        ([], {"base": ParameterGroups(Adam())}, OptimizerValueError, "wraps no other one"),
        ([], {"base": "adam"}, OptimizerTypeError, "not an optimizer; found an object of type str"),
    ],
)  # fmt: skip
def test_impossible_groups_are_refused(
    groups: list[Any], arguments: dict[str, Any], error: type[AmpError], message: str
) -> None:
    with pytest.raises(error, match=message.replace("(", r"\(")):
        build(*groups, **arguments)
