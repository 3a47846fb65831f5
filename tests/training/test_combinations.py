"""Accumulation, groups, loss scaling, averages, shards and frozen parts together, at random."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thread_shards import on_threads

import amp_rewrite as amp
from amp_rewrite.optimizers import (
    AdamW,
    Optimizer,
    ParameterGroups,
    TrainOp,
    WeightAverage,
)

SHAPES = {"body.weight": (3, 4), "body.bias": (4,), "head.weight": (4, 2)}
FETCHES = ["grads_finite", "loss_scale", "skipped_steps"]
SHARDS = 2
BATCHES = 6
"""What one shard is fed, one after the other: a multiple of 1, 2 and 3."""

States = dict[str, np.ndarray[Any, Any]]
Feeds = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Combination:
    """How a network is trained.

    Attributes:
        accumulate: Batches of an update.
        conditional: How a step is skipped.
        grouped: The head has an optimizer of its own, and no bias decays.
        averaged: An average of the weights is kept.
        scaled_first: The loss scale is inside the optimizer that sums over shards.
        frozen: What is not trained.
        finite: Shard -> batch -> whether its gradients are finite.
    """

    accumulate: int
    conditional: str
    grouped: bool
    averaged: bool
    scaled_first: bool
    frozen: tuple[str, ...]
    finite: tuple[tuple[bool, ...], ...]

    def feeds(self, shard: int, number: int) -> Feeds:
        """Return a batch of a shard."""
        random = np.random.default_rng((shard, number))
        x, t = (random.normal(size=(2, length)).astype(np.float32) for length in (3, 2))
        return {"x": x, "t": t if self.finite[shard][number] else np.full_like(t, np.inf)}

    def whole(self, update: int) -> Feeds:
        """Return what all shards are fed for an update, as one batch."""
        numbers = range(update * self.accumulate, (update + 1) * self.accumulate)
        parts = [self.feeds(shard, number) for shard in range(SHARDS) for number in numbers]
        return {name: np.concatenate([part[name] for part in parts]) for name in ("x", "t")}


# Most batches are finite, or hardly an update of several were made.
USUALLY = st.sampled_from([True, True, True, False])

COMBINATIONS = st.builds(
    Combination,
    accumulate=st.integers(1, 3),
    conditional=st.sampled_from(["if", "select"]),
    grouped=st.booleans(),
    averaged=st.booleans(),
    scaled_first=st.booleans(),
    frozen=st.sampled_from([(), ("body.*",), ("bias",)]),
    finite=st.tuples(*[st.tuples(*[USUALLY] * BATCHES)] * SHARDS),
)


def train_op(combination: Combination, *, shards: bool) -> TrainOp:
    """Return what trains the network in a combination, for shards or without them."""
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    g (float[n, 3] x) => (float[n, 2] y) {
        p = MatMul(x, "body.weight")
        h = Add(p, "body.bias")
        a = Tanh(h)
        y = MatMul(a, "head.weight")
    }""")
    random = np.random.default_rng(1)
    for name, shape in SHAPES.items():
        array = random.normal(size=shape).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    model = amp.load(proto)
    if combination.frozen:
        amp.freeze(model, combination.frozen)
    loss = amp.losses.mean_squared_error(model, "y", "t")
    optimizer = wrapped(combination, shards=shards)
    return optimizer.minimize(loss, accumulate=combination.accumulate)


def wrapped(combination: Combination, *, shards: bool) -> Optimizer:
    """Return the optimizers of a combination, one around the other."""
    optimizer: Optimizer = AdamW(0.05, weight_decay=0.1)
    if combination.grouped:
        head = {"variables": "head.*", "learning_rate": 0.02, "name": "head"}
        optimizer = ParameterGroups(optimizer, [head], no_decay="bias")
    if combination.averaged:
        optimizer = WeightAverage(optimizer, 0.9)
    scale = amp.DynamicLossScale(2.0**10, 2)
    options: dict[str, Any] = {"conditional": combination.conditional}
    if not shards:
        return amp.LossScaleOptimizer(optimizer, scale, **options)
    if combination.scaled_first:
        return amp.CrossShardOptimizer(amp.LossScaleOptimizer(optimizer, scale, **options))
    return amp.LossScaleOptimizer(amp.CrossShardOptimizer(optimizer), scale, **options)


def updates_of(session: amp.TrainingSession, batches: list[Feeds], every: int) -> list[States]:
    """Run all batches; return what was fetched and the states, after every so many."""
    found: list[States] = []
    for number, feeds in enumerate(batches):
        fetched = session.run(feeds, FETCHES)
        if (number + 1) % every == 0:
            found.append({**session.state_dict(), **fetched})
    return found


def check(combination: Combination) -> None:
    """Compare small batches on shards with large ones on none."""
    count = combination.accumulate
    with amp.distributed.shard_context():
        sharded = train_op(combination, shards=True)

    def program(shards: amp.distributed.Shards) -> list[States]:
        batches = [combination.feeds(shards.rank, number) for number in range(BATCHES)]
        with amp.TrainingSession(sharded, threads=1, shards=shards) as session:
            start = session.state_dict()
            return [start, *updates_of(session, batches, count)]

    first, second = on_threads(SHARDS, program)
    whole = [combination.whole(update) for update in range(BATCHES // count)]
    large = train_op(replace(combination, accumulate=1), shards=False)
    with amp.TrainingSession(large, threads=1) as session:
        expected = updates_of(session, whole, 1)
    for before, after, other, wanted in zip(first, first[1:], second[1:], expected, strict=False):
        assert_equal(after, other)
        assert {name: after[name] for name in FETCHES} == {name: wanted[name] for name in FETCHES}
        for name, array in wanted.items():
            np.testing.assert_allclose(after[name], array, rtol=1e-3, atol=1e-5, err_msg=name)
        if not after["grads_finite"]:
            kept = [n for n in after if n not in FETCHES and not n.startswith("loss_scale/")]
            assert_equal({n: before[n] for n in kept}, {n: after[n] for n in kept})


def assert_equal(first: States, second: States) -> None:
    """Compare arrays bit for bit."""
    assert first.keys() == second.keys()
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name], err_msg=name)


@settings(max_examples=3)
@given(COMBINATIONS)
def test_a_combination_does_what_large_batches_do(combination: Combination) -> None:
    check(combination)


@pytest.mark.slow
@settings(max_examples=60)
@given(COMBINATIONS)
def test_many_combinations_do_what_large_batches_do(combination: Combination) -> None:
    check(combination)
