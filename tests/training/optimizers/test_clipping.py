"""Clipping between compute_gradients and apply_gradients, and by the optimizer itself."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from amp_rewrite import LossScaleOptimizer, optimizers
from amp_rewrite.graph.io.load import load
from amp_rewrite.optimizers import GradientDescent
from amp_rewrite.training.graph.training_graph import value
from amp_rewrite.training.session.training_session import TrainingSession

G = np.array([[3.0, -4.0], [0.0, 12.0]], np.float32)  # its norm is 13
Make = Callable[..., ir.Model]


def run(pairs: Any, feeds: dict[str, Any], *fetches: Any, **clipping: Any) -> Any:
    """Return -1 times the applied gradient, which is the variable after one step, and fetches."""
    optimizer = GradientDescent(1.0, **clipping)
    with TrainingSession(optimizer.apply_gradients(pairs)) as session:
        out = session.run(feeds, ["gradient_norm", *fetches])
        return -session.state_dict()["w"], out


def pairs_of(model: ir.Model) -> Any:
    return GradientDescent(1.0).compute_gradients(value(model, "loss"))


@pytest.mark.parametrize(("limit", "scale"), [(6.5, 0.5), (13.0, 1.0), (100.0, 1.0)])
def test_a_global_norm_is_limited_and_returned(
    dense_model: Make, limit: float, scale: float
) -> None:
    pairs = pairs_of(dense_model(np.zeros_like(G)))
    clipped, norm = optimizers.clip_by_global_norm([g for g, _ in pairs], limit)
    applied, out = run([(clipped[0], pairs[0][1])], {"g": G}, norm.name)
    np.testing.assert_allclose(applied, scale * G, rtol=1e-6)
    assert out[norm.name] == 13.0
    assert out[norm.name].shape == ()
    assert out["gradient_norm"] == 13.0  # the one before clipping


def test_a_global_norm_that_is_not_finite_makes_gradients_nan(dense_model: Make) -> None:
    pairs = pairs_of(dense_model(np.zeros_like(G)))
    clipped, _ = optimizers.clip_by_global_norm([pairs[0][0]], 1.0)
    feeds = {"g": np.array([[1, np.inf], [0, 1]], np.float32)}
    applied, _ = run([(clipped[0], pairs[0][1])], feeds)
    assert np.isnan(applied).all()


TWO_VARIABLES = """<ir_version: 8, opset_import: ["": 17]>
forward (float[2] g, float[2] h) => (float loss)
<float[2] w = {0, 0}, float[2] v = {0, 0}> {
    wg = Mul(w, g)
    vh = Mul(v, h)
    both = Add(wg, vh)
    loss = ReduceSum<keepdims=0>(both)
}"""


@pytest.mark.parametrize("together", [True, False])
def test_the_norm_of_a_step_is_that_of_all_gradients(together: bool) -> None:
    pairs = pairs_of(load(onnx.parser.parse_model(TWO_VARIABLES)))
    groups = [[g for g, _ in pairs]] if together else [[g] for g, _ in pairs]
    clipped = [g for group in groups for g in optimizers.clip_by_global_norm(group, 100.0)[0]]
    feeds = {"g": np.array([3, 4], np.float32), "h": np.array([0, 12], np.float32)}
    _, out = run([(g, v) for g, (_, v) in zip(clipped, pairs, strict=True)], feeds)
    assert out["gradient_norm"] == 13.0


@pytest.mark.parametrize("name", ["g", "h"])
def test_an_infinity_in_any_group_that_is_clipped_by_itself_skips_the_step(name: str) -> None:
    optimizer = LossScaleOptimizer(GradientDescent(1.0))
    model = load(onnx.parser.parse_model(TWO_VARIABLES))
    pairs = optimizer.compute_gradients(value(model, "loss"))
    clipped = [(optimizers.clip_by_global_norm([g], 1.0)[0][0], v) for g, v in pairs]
    feeds = {"g": np.array([3, 4], np.float32), "h": np.array([0, 12], np.float32)}
    feeds[name][1] = np.inf
    with TrainingSession(optimizer.apply_gradients(clipped)) as session:
        assert not session.run(feeds, ["grads_finite"])["grads_finite"]
        assert not any(session.state_dict()[variable].any() for variable in ("v", "w"))


def test_none_stays_none_and_a_known_norm_is_used(dense_model: Make) -> None:
    pairs = pairs_of(dense_model(np.zeros_like(G)))
    gradient = pairs[0][0]
    norm = optimizers.global_norm([gradient, None]) * 2
    clipped, same = optimizers.clip_by_global_norm([None, gradient], 13.0, use_norm=norm)
    assert clipped[0] is None
    assert same.value is norm.value
    applied, _ = run([(clipped[1], pairs[0][1])], {"g": G})
    np.testing.assert_allclose(applied, G / 2, rtol=1e-6)


def test_the_norm_of_a_sparse_gradient_is_that_of_the_dense_one(
    sparse_model: Callable[..., ir.Model],
) -> None:
    pairs = pairs_of(sparse_model(np.zeros((3, 2), np.float32)))
    clipped, norm = optimizers.clip_by_global_norm([pairs[0][0]], 5.0)
    feeds = {"ids": np.array([2, 0, 2]), "g": np.array([[1, 4], [0, 0], [5, 4]], np.float32)}
    applied, out = run([(clipped[0], pairs[0][1])], feeds, norm.name)
    assert out[norm.name] == 10.0
    np.testing.assert_allclose(applied, [[0, 0], [0, 0], [3, 4]], rtol=1e-6)


def test_each_norm_is_limited_along_axes(dense_model: Make) -> None:
    pairs = pairs_of(dense_model(np.zeros_like(G)))
    clipped = optimizers.clip_by_norm(pairs[0][0], 10.0, axes=[1])
    applied, _ = run([(clipped, pairs[0][1])], {"g": G})
    np.testing.assert_allclose(applied, [[3.0, -4.0], [0.0, 10.0]], rtol=1e-6)
    assert optimizers.clip_by_norm(None, 1.0) is None


def test_values_are_limited_after_equal_indices_are_summed(
    sparse_model: Callable[..., ir.Model],
) -> None:
    pairs = pairs_of(sparse_model(np.zeros((3, 2), np.float32)))
    clipped = optimizers.clip_by_value(pairs[0][0], -1.0, 2.0)
    feeds = {"ids": np.array([1, 1]), "g": np.array([[1.5, -3], [1.5, 1]], np.float32)}
    applied, out = run([(clipped, pairs[0][1])], feeds)
    np.testing.assert_array_equal(applied, [[0, 0], [2, -1], [0, 0]])
    assert out["gradient_norm"] == np.float32(np.hypot(3, 2))  # the one before clipping
    assert optimizers.clip_by_value(None, 0.0, 1.0) is None


BY_ITSELF = {
    "clipnorm": (6.5, G / 2),
    "clipvalue": (3.5, np.clip(G, -3.5, 3.5)),
    "global_clipnorm": (6.5, G / 2),
}


@pytest.mark.parametrize("name", BY_ITSELF)
def test_an_optimizer_clips_by_itself(dense_model: Make, name: str) -> None:
    limit, expected = BY_ITSELF[name]
    pairs = pairs_of(dense_model(np.zeros_like(G)))
    applied, out = run(pairs, {"g": G}, **{name: limit})
    np.testing.assert_allclose(applied, expected, rtol=1e-6)
    assert out["gradient_norm"] == 13.0


IMPOSSIBLE: dict[str, tuple[Callable[[Any], Any], str]] = {
    "no norm": (lambda g: optimizers.clip_by_global_norm([g], 0.0), "impossible clip_norm"),
    "interval": (lambda g: optimizers.clip_by_value(g, 1.0, -1.0), "empty interval"),
    "an optimizer's norm": (lambda _: GradientDescent(1.0, clipnorm=0.0), "impossible clipnorm"),
    "two ways": (
        lambda _: GradientDescent(1.0, clipnorm=1.0, clipvalue=None, global_clipnorm=1.0),
        "clips in one way",
    ),
    "no gradient": (lambda _: optimizers.global_norm([None, None]), "no gradients to clip"),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_impossible_limits_are_refused(dense_model: Make, case: str) -> None:
    call, message = IMPOSSIBLE[case]
    gradient = pairs_of(dense_model(np.zeros_like(G)))[0][0]
    with pytest.raises(ValueError, match=message):
        call(gradient)


def test_an_argument_of_other_libraries_is_told_its_name_here() -> None:
    with pytest.raises(TypeError, match="max_grad_norm is called global_clipnorm here"):
        GradientDescent(1.0, max_grad_norm=1.0)
