"""A step whose gradients are not finite changes nothing but the loss scale, bit for bit."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import amp_rewrite as amp
from amp_rewrite import optimizers
from amp_rewrite.loss_scaling import DynamicLossScale, LossScaleOptimizer
from amp_rewrite.optimizers import Optimizer

Feeds = dict[str, np.ndarray]
Make = Callable[[], ir.Model]
FeedsOf = Callable[[np.random.Generator], Feeds]
BAD = (np.nan, np.inf, -np.inf)
OPTIMIZERS: dict[str, Callable[[], Optimizer]] = {
    "GradientDescent": lambda: optimizers.GradientDescent(0.1),
    "Momentum": lambda: optimizers.Momentum(0.1, 0.9, use_nesterov=True),
    "Adagrad": lambda: optimizers.Adagrad(0.1),
    "Adadelta": lambda: optimizers.Adadelta(1.0),
    "RMSProp": lambda: optimizers.RMSProp(0.01, centered=True, momentum=0.5),
    "Adam": lambda: optimizers.Adam(0.01),
    "lazy Adam": lambda: optimizers.Adam(0.01, lazy=True),
    "AdamW": lambda: optimizers.AdamW(0.01),
    "LAMB": lambda: optimizers.LAMB(0.01),
}


def session_of(model: ir.Model, optimizer: Optimizer) -> amp.TrainingSession:
    return amp.TrainingSession(optimizer.minimize(amp.value(model, "loss")), threads=1)


def kept(state: dict[str, np.ndarray]) -> dict[str, bytes]:
    return {k: v.tobytes() for k, v in state.items() if not k.startswith("loss_scale/")}


@pytest.mark.share(9)
@pytest.mark.parametrize("mode", ["if", "select"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_goes_on_as_if_the_bad_batch_had_not_been(
    name: str, mode: str, four_variables: Make, feeds_of: FeedsOf
) -> None:
    rng = np.random.default_rng(1)
    first, bad, second = (feeds_of(rng) for _ in range(3))
    bad["g3"][1, 2] = np.inf
    optimizer = LossScaleOptimizer(OPTIMIZERS[name](), conditional=mode)
    with session_of(four_variables(), optimizer) as session:
        assert session.run(first)["grads_finite"]
        before = session.state_dict()
        out = session.run(bad)
        assert set(out) == {"loss", "grads_finite"}
        assert out["grads_finite"].dtype == np.bool_
        assert not out["grads_finite"]
        assert kept(session.state_dict()) == kept(before)
        assert session.global_step == 1
        assert session.run(second)["grads_finite"]
        after = session.state_dict()
    with session_of(four_variables(), OPTIMIZERS[name]()) as plain:
        plain.run(first)
        plain.run(second)
        assert kept(plain.state_dict()) == kept(after)  # a power of 2 as scale rounds nothing


@pytest.mark.parametrize("mode", ["if", "select"])
def test_a_bad_number_is_found_wherever_it_is(
    mode: str, four_variables: Make, feeds_of: FeedsOf
) -> None:
    rng = np.random.default_rng(2)
    places = [(k, i) for k, n in {"g0": 1, "g1": 5, "g2": 12, "g3": 9}.items() for i in range(n)]
    optimizer = LossScaleOptimizer(optimizers.Adam(0.01), DynamicLossScale(), conditional=mode)
    with session_of(four_variables(), optimizer) as session:
        session.run(feeds_of(rng))
        before = kept(session.state_dict())
        for trial in range(500):
            # every place at least once, the first and the last elements among them
            key, index = places[trial if trial < len(places) else rng.integers(len(places))]
            feeds = feeds_of(rng)
            feeds[key].reshape(-1)[index] = BAD[rng.integers(3)]
            out = session.run(feeds, ["grads_finite", "skipped_steps"])
            assert not out["grads_finite"], (key, index)
            assert out["skipped_steps"] == trial + 1
            assert kept(session.state_dict()) == before, (key, index)
        assert session.run(feeds_of(rng))["grads_finite"]
        assert kept(session.state_dict()) != before


@pytest.mark.parametrize("mode", ["if", "select"])
def test_gradients_clipped_by_their_global_norm_are_checked_by_that_norm(
    mode: str, four_variables: Make, feeds_of: FeedsOf
) -> None:
    model = four_variables()
    optimizer = LossScaleOptimizer(optimizers.GradientDescent(1.0), conditional=mode)
    pairs = optimizer.compute_gradients(amp.value(model, "loss"))
    clipped, _ = optimizers.clip_by_global_norm([g for g, _ in pairs], 0.5)
    op = optimizer.apply_gradients(zip(clipped, [v for _, v in pairs], strict=True))
    squares = [n for n in amp.build_step(op).graph if n.op_type == "ReduceSumSquare"]
    assert len(squares) == 4  # one pass over each gradient
    feeds = feeds_of(np.random.default_rng(5))
    with amp.TrainingSession(op) as session:
        before = session.state_dict()
        assert session.run(feeds, ["gradient_norm"])["gradient_norm"] > 0.5
        after = session.state_dict()
        moved = [
            (after[k] - before[k]).reshape(-1) for k in ("scalar", "vector", "matrix", "table")
        ]
        np.testing.assert_allclose(np.linalg.norm(np.concatenate(moved)), 0.5, rtol=1e-5)
        feeds["g0"] = np.array(np.nan, np.float32)
        out = session.run(feeds, ["grads_finite", "gradient_norm"])
        assert not out["grads_finite"]
        assert np.isnan(out["gradient_norm"])
        assert kept(session.state_dict()) == kept(after)


def test_the_conditional_update_is_one_if_or_no_control_flow(four_variables: Make) -> None:
    for mode, count in (("if", 1), ("select", 0)):
        optimizer = LossScaleOptimizer(optimizers.Adam(0.1), conditional=mode)
        step = amp.build_step(optimizer.minimize(amp.value(four_variables(), "loss")))
        kinds = [node.op_type for node in step.graph]
        assert kinds.count("If") == count
        assert not {"Loop", "Scan"} & set(kinds)
        if mode == "if":
            branch = next(n for n in step.graph if n.op_type == "If").attributes["else_branch"]
            assert {n.op_type for n in branch.as_graph()} == {"Identity", "Div", "Max", "Add"}
            outside = {n.name for n in step.graph if str(n.name).startswith("Adam/")}
            assert not outside  # the whole update is inside


def _each(change: Callable[[Any], Any]) -> Callable[[list], list]:
    def changed(g: amp.GraphValue | amp.IndexedSlices) -> amp.GraphValue | amp.IndexedSlices:
        return (
            g._replace(values=change(g.values)) if isinstance(g, amp.IndexedSlices) else change(g)
        )

    return lambda gradients: [changed(g) for g in gradients]


def _limited(gradients: list) -> list:
    return [optimizers.clip_by_value(g, -0.1, 0.1) for g in gradients]


BETWEEN: dict[str, Callable[[list], list]] = {
    "clip_by_value": _limited,
    "clip_by_norm": lambda gradients: [optimizers.clip_by_norm(g, 0.1) for g in gradients],
    "clip_by_global_norm": lambda gradients: optimizers.clip_by_global_norm(gradients, 0.1)[0],
    "values, then norms": lambda gradients: optimizers.clip_by_global_norm(
        _limited(gradients), 0.1
    )[0],
    "values, then arithmetic": lambda gradients: _each(lambda g: g * 2.0)(_limited(gradients)),
    "a division": _each(lambda g: 1.0 / (g + 5.0)),
}


@pytest.mark.share(11)
@pytest.mark.parametrize("mode", ["if", "select"])
@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("name", ["Adam", "Momentum"])
def test_what_is_done_to_gradients_before_they_are_applied_hides_no_infinity(
    name: str, between: str, mode: str, four_variables: Make, feeds_of: FeedsOf
) -> None:
    rng = np.random.default_rng(3)
    optimizer = LossScaleOptimizer(OPTIMIZERS[name](), conditional=mode)
    pairs = optimizer.compute_gradients(amp.value(four_variables(), "loss"))
    changed = BETWEEN[between]([gradient for gradient, _ in pairs])
    op = optimizer.apply_gradients(zip(changed, [v for _, v in pairs], strict=True))
    with amp.TrainingSession(op, threads=1) as session:
        assert session.run(feeds_of(rng))["grads_finite"]
        before = kept(session.state_dict())
        for key in ("g0", "g1", "g2", "g3"):
            feeds = feeds_of(rng)
            feeds[key].reshape(-1)[-1] = np.inf
            assert not session.run(feeds)["grads_finite"], key
            assert kept(session.state_dict()) == before
