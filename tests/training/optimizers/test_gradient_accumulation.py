"""Gradients of several batches make one update, as one large batch does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from two_layers import SHAPES, network

import amp_rewrite as amp
from amp_rewrite.errors import AmpError, OptimizerTypeError, OptimizerValueError, OptionError
from amp_rewrite.optimizers import (
    Accumulation,
    Adam,
    AdamW,
    GradientDescent,
    Momentum,
    Optimizer,
    ParameterGroup,
    ParameterGroups,
    clip_by_global_norm,
    group,
)

Arrays = dict[str, np.ndarray]
BATCHES, ROWS = 3, 2


def batch(update: int, number: int | None = None) -> Arrays:
    """Return one batch of an update, or all of them in one."""
    random = np.random.default_rng(update)
    x = random.normal(size=(BATCHES * ROWS, 3)).astype(np.float32)
    t = random.normal(size=(BATCHES * ROWS, 2)).astype(np.float32)
    rows = slice(None) if number is None else slice(ROWS * number, ROWS * (number + 1))
    return {"x": x[rows], "t": t[rows]}


def loss_of(model: ir.Model) -> Any:
    return amp.losses.mean_squared_error(model, "y", "t")


def run_all(session: amp.TrainingSession, update: int, fetches: list[str], **last: Any) -> Arrays:
    """Run the batches of an update; return what the last one fetched."""
    for number in range(BATCHES - 1):
        session.run(batch(update, number))
    return session.run({**batch(update, BATCHES - 1), **last}, fetches)


def compare(found: Arrays, expected: Arrays) -> None:
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-6, err_msg=name)


def grouped() -> Optimizer:
    groups = [
        ParameterGroup(variables="body.*", rate_multiplier=0.5, global_clipnorm=0.1),
        ParameterGroup(variables="head.bias", learning_rate=0.05),
    ]
    return ParameterGroups(AdamW(0.1), groups, no_decay="bias")


def scaled(inner: Optimizer, mode: str) -> Optimizer:
    return amp.LossScaleOptimizer(inner, amp.DynamicLossScale(2.0**8), conditional=mode)


OPTIMIZERS: dict[str, Callable[[], Optimizer]] = {
    "plain": lambda: Adam(0.1),
    "clipped": lambda: Momentum(0.1, global_clipnorm=0.05),
    "groups": grouped,
    "scaled if": lambda: scaled(Adam(0.1), "if"),
    "scaled select": lambda: scaled(Adam(0.1), "select"),
    "scaled groups if": lambda: scaled(grouped(), "if"),
    "scaled groups select": lambda: scaled(grouped(), "select"),
    "fixed scale": lambda: amp.LossScaleOptimizer(grouped(), 64),
}


@pytest.mark.share(3)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_batches_do_what_one_large_batch_does(name: str) -> None:
    whole = OPTIMIZERS[name]().minimize(loss_of(network()))
    step = OPTIMIZERS[name]().minimize(loss_of(network()), accumulate=BATCHES)
    with amp.TrainingSession(whole) as large, amp.TrainingSession(step) as small:
        for update in range(3):
            for number in range(BATCHES - 1):
                before = small.state_dict()
                waiting = small.run(batch(update, number), ["gradient_norm", "accumulated"])
                after = small.state_dict()
                assert (waiting["gradient_norm"], waiting["accumulated"]) == (0, number + 1)
                assert {n for n in after if not np.array_equal(before[n], after[n])} == {
                    "accumulated",
                    *(f"{n}/accumulated" for n in SHAPES),
                }
            wanted = ["gradient_norm", "global_step"]
            found = small.run(batch(update, BATCHES - 1), [*wanted, "accumulated"])
            expected = large.run(batch(update), wanted)
            assert found["accumulated"] == 0
            assert found["global_step"] == expected["global_step"] == update + 1
            np.testing.assert_allclose(found["gradient_norm"], expected["gradient_norm"], rtol=1e-4)
            for variable in SHAPES:
                assert not small.state_dict()[f"{variable}/accumulated"].any()
        compare(small.state_dict(), large.state_dict())


@pytest.mark.parametrize(
    ("name", "precision"),
    [("clipped", "float32"), ("scaled if", "float16"), ("scaled groups select", "float32")],
)
def test_an_update_of_fewer_batches_is_the_mean_of_these(name: str, precision: str) -> None:
    """Of the last update of an epoch, say; the next one is of all batches again."""
    whole = OPTIMIZERS[name]().minimize(loss_of(network()))
    step = OPTIMIZERS[name]().minimize(loss_of(network()), accumulate=2 * BATCHES)
    given = {"precision": precision, "emulate": True}
    with amp.TrainingSession(whole, **given) as large, amp.TrainingSession(step, **given) as small:
        for update in range(2):
            for number in range(BATCHES - 1):
                small.run(batch(update, number))
            assert small.waiting == BATCHES - 1
            found = small.run(batch(update, BATCHES - 1), ["outcome", "accumulated"], apply=True)
            assert (found["outcome"], found["accumulated"]) == (f"applied: {BATCHES} batches", 0)
            large.run(batch(update))
        for _ in range(2):
            run_all(small, 2, ["loss"])
        assert small.waiting == 0
        large.run(batch(2))
        near = 1e-4 if precision == "float32" else 2e-2
        for variable in SHAPES:
            one, other = small.state_dict()[variable], large.state_dict()[variable]
            np.testing.assert_allclose(one, other, rtol=near, atol=near, err_msg=variable)


@pytest.mark.share(11, each="name")
@pytest.mark.parametrize("name", [n for n in OPTIMIZERS if n.startswith("scaled")])
@pytest.mark.parametrize("bad", range(BATCHES))
def test_one_batch_that_is_not_finite_skips_the_update_of_all(name: str, bad: int) -> None:
    step = OPTIMIZERS[name]().minimize(loss_of(network()), accumulate=BATCHES)
    with amp.TrainingSession(step) as session:
        run_all(session, 0, ["loss"])
        before = session.state_dict()
        finite = []
        for number in range(BATCHES):
            feeds = batch(1, number)
            if number == bad:
                feeds["t"] = np.full_like(feeds["t"], np.inf)
            found = session.run(feeds, ["grads_finite", "loss_scale"])
            finite.append(bool(found["grads_finite"]))
            assert found["loss_scale"] == 2.0**8
        after = session.state_dict()
        assert finite == [True] * (BATCHES - 1) + [False]
        names = {n for n in after if not np.array_equal(before[n], after[n])}
        assert names == {
            f"loss_scale/{n}"
            for n in ("current_loss_scale", "good_steps", "skipped_steps", "consecutive_skips")
        }
        assert after["loss_scale/current_loss_scale"] == 2.0**7
        counts = run_all(session, 2, ["skipped_steps", "consecutive_skips"])
        assert (counts["skipped_steps"], counts["consecutive_skips"]) == (1, 0)


NORMALIZED = "n = BatchNormalization<momentum = 0.75>(h, scale, shift, mean, var)\n a = Tanh(n)"
ONES, ZEROS = np.ones(4, np.float32), np.zeros(4, np.float32)
STATISTICS = {"scale": ONES, "shift": ZEROS, "mean": ZEROS, "var": ONES}


@pytest.mark.parametrize("mode", ["plain", "if", "select"])
def test_running_statistics_move_with_every_batch(mode: str) -> None:
    inner: Optimizer = GradientDescent(0.0)
    optimizer = inner if mode == "plain" else scaled(inner, mode)
    step = optimizer.minimize(loss_of(network(NORMALIZED, **STATISTICS)), accumulate=BATCHES)
    weights = network().graph.initializers
    w, b = (weights[n].const_value.numpy() for n in ("body.weight", "body.bias"))  # type: ignore[union-attr]
    mean, var = np.zeros(4), np.ones(4)
    with amp.TrainingSession(step) as session:
        for number in range(2 * BATCHES):
            feeds = batch(number // BATCHES, number % BATCHES)
            session.run(feeds)
            h = feeds["x"] @ w + b
            mean, var = 0.75 * mean + 0.25 * h.mean(0), 0.75 * var + 0.25 * h.var(0)
            compare(session.state_dict(), {"mean": mean, "var": var})


@pytest.mark.share(4)
@pytest.mark.parametrize("mode", ["if", "select"])
@pytest.mark.parametrize("bad", range(BATCHES))
def test_running_statistics_stay_finite(mode: str, bad: int) -> None:
    optimizer = scaled(GradientDescent(0.1), mode)
    step = optimizer.minimize(loss_of(network(NORMALIZED, **STATISTICS)), accumulate=BATCHES)
    with amp.TrainingSession(step) as session:
        for number in range(BATCHES):
            feeds = batch(0, number)
            before = session.state_dict()
            if number == bad:
                feeds["x"] = np.full_like(feeds["x"], np.inf)
            session.run(feeds)
            after = session.state_dict()
            if number == bad:
                assert np.array_equal(before["mean"], after["mean"])
                assert np.array_equal(before["var"], after["var"])


def test_a_table_accumulates_its_rows(sparse_model: Callable[..., ir.Model]) -> None:
    table = np.arange(6, dtype=np.float32).reshape(3, 2)
    op = GradientDescent(1.0).minimize(amp.value(sparse_model(table), "loss"), accumulate=2)
    with amp.TrainingSession(op) as session:
        session.run({"ids": np.array([0, 0]), "g": np.ones((2, 2), np.float32)})
        session.run({"ids": np.array([0, 2]), "g": np.full((2, 2), 2, np.float32)})
        expected = table - np.array([[2, 2], [0, 0], [1, 1]])
        np.testing.assert_allclose(session.state_dict()["w"], expected)


def test_the_mean_is_clipped_between_adding_and_applying() -> None:
    accumulation = Accumulation(BATCHES)
    optimizer = scaled(GradientDescent(1.0), "if")
    pairs = accumulation.add(optimizer.compute_gradients(loss_of(network())))
    clipped = clip_by_global_norm([g for g, _ in pairs], 0.01)[0]
    applied = zip(clipped, [v for _, v in pairs], strict=True)
    step = accumulation.every(optimizer.apply_gradients(applied))
    with amp.TrainingSession(step) as session:
        before = session.state_dict()
        for number in range(BATCHES):
            session.run(batch(0, number))
        after = session.state_dict()
    moved = np.concatenate([np.ravel(after[n] - before[n]) for n in SHAPES])
    np.testing.assert_allclose(np.linalg.norm(moved), 0.01, rtol=1e-3)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_gradients_in_low_precision_are_accumulated_in_float32(precision: str) -> None:
    step = scaled(Adam(0.1), "if").minimize(loss_of(network()), accumulate=BATCHES)
    with amp.TrainingSession(step, precision=precision, emulate=True) as session:
        for number in range(BATCHES):
            session.run(batch(0, number))
        found = session.state_dict()
    assert found["body.weight/accumulated"].dtype == np.float32
    whole = Adam(0.1).minimize(loss_of(network()))
    with amp.TrainingSession(whole) as session:
        session.run(batch(0))
        expected = {n: session.state_dict()[f"{n}/Adam"] for n in SHAPES}
    for name, array in expected.items():
        scale = np.abs(array).max()
        assert np.abs(found[f"{name}/Adam"] - array).max() < 0.05 * scale


@pytest.mark.parametrize(
    ("steps", "error", "message"),
    [
        (0, OptimizerValueError, "impossible number of batches to accumulate; found 0"),
        (2.0, OptimizerTypeError, "must be an integer; found 2.0"),
        (True, OptimizerTypeError, "must be an integer; found True"),
    ],
)
def test_impossible_numbers_are_refused(steps: Any, error: type[AmpError], message: str) -> None:
    with pytest.raises(error, match=message):
        Adam(0.1).minimize(loss_of(network()), accumulate=steps)


def test_an_accumulation_belongs_to_one_step() -> None:
    accumulation = Accumulation(2)
    optimizer = Adam(0.1)
    pairs = optimizer.compute_gradients(loss_of(network()))
    with pytest.raises(OptimizerValueError, match="nothing is accumulated"):
        accumulation.every(optimizer.apply_gradients(pairs))
    accumulation.add(pairs)
    with pytest.raises(OptimizerValueError, match="belongs to one step"):
        accumulation.add(pairs)
    with pytest.raises(OptionError, match="unknown way"):
        Accumulation(2, conditional="maybe")


def test_steps_that_accumulate_are_not_grouped() -> None:
    loss = loss_of(network())
    one = Adam(0.1).minimize(loss, var_list="head.weight", accumulate=2)
    with pytest.raises(OptimizerValueError, match="that accumulate gradients cannot be grouped"):
        group(one, one)


WEIGHTED: dict[str, dict[str, Any]] = {
    "ignore_index": {"ignore_index": 0},
    "class weights": {"class_weights": [0.1, 5.0]},
    "both, smoothed": {"ignore_index": 0, "class_weights": [0.1, 5.0], "label_smoothing": 0.2},
}


def labelled(update: int, number: int | None = None) -> Arrays:
    """Return a batch whose labels count unlike those of the others; the first one's are all 0."""
    x = batch(update, number)["x"]
    labels = np.random.default_rng(update + 7).integers(0, 2, BATCHES * ROWS)
    labels[:ROWS], labels[-1] = 0, 1
    rows = slice(None) if number is None else slice(ROWS * number, ROWS * (number + 1))
    return {"x": x, "t": labels[rows]}


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("name", "of"),
    [
        ("plain", "ignore_index"),
        ("clipped", "class weights"),
        ("scaled if", "both, smoothed"),
        ("scaled groups select", "ignore_index"),
    ],
)
def test_batches_count_by_the_labels_that_count(name: str, of: str) -> None:
    def made(**options: Any) -> Any:
        loss = amp.losses.softmax_cross_entropy(network(), "y", "t", **WEIGHTED[of])
        return OPTIMIZERS[name]().minimize(loss, **options)

    whole, step = made(), made(accumulate=BATCHES)
    with amp.TrainingSession(whole) as large, amp.TrainingSession(step) as small:
        for update in range(2):
            for number in range(BATCHES):
                small.run(labelled(update, number))
            large.run(labelled(update))
            assert small.state_dict()["accumulate/denominator"] == 0
        compare(small.state_dict(), large.state_dict())
        small.run(labelled(5, 0))
        small.run(labelled(5, 2), apply=True)  # fewer batches than make an update
        both = zip(labelled(5, 0).values(), labelled(5, 2).values(), strict=True)
        large.run(dict(zip("xt", map(np.concatenate, both), strict=True)))
        compare(small.state_dict(), large.state_dict())
