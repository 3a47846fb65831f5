"""Several losses, each with a loss scale of its own."""

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from thread_shards import on_threads

import amp_rewrite as amp
from amp_rewrite.distributed import Shards
from amp_rewrite.errors import LossScaleError
from amp_rewrite.loss_scaling import (
    DynamicLossScale,
    FixedLossScale,
    MultiLossScaleOptimizer,
)
from amp_rewrite.optimizers import Adam, GradientDescent, Momentum, WeightAverage, get

# the gradients of "main" and "side" are what is fed: of a shared variable, of one of each loss's
# own, and of rows of a table that both read
TEXT = """g (float[3] m, float[3] s, float[n,2] mr, float[n,2] sr, int64[n] ids)
    => (float main, float side) {
    shared_m = Mul(shared, m)
    own_m = Mul(first, m)
    rows = Gather<axis=0>(table, ids)
    rows_m = Mul(rows, mr)
    sum_m = Add(shared_m, own_m)
    one_m = ReduceSum<keepdims=0>(sum_m)
    two_m = ReduceSum<keepdims=0>(rows_m)
    main = Add(one_m, two_m)
    shared_s = Mul(shared, s)
    own_s = Mul(second, s)
    rows_s = Mul(rows, sr)
    sum_s = Add(shared_s, own_s)
    one_s = ReduceSum<keepdims=0>(sum_s)
    two_s = ReduceSum<keepdims=0>(rows_s)
    side = Add(one_s, two_s)
}"""
SHAPES = {"shared": (3,), "first": (3,), "second": (3,), "table": (5, 2)}
BAD = (np.nan, np.inf, -np.inf)
Feeds = dict[str, np.ndarray]


def model() -> ir.Model:
    proto = onnx.parser.parse_graph(TEXT)
    rng = np.random.default_rng(0)
    for name, shape in SHAPES.items():
        array = rng.normal(size=shape).astype(np.float32)
        proto.initializer.append(onnx.numpy_helper.from_array(array, name))
    opsets = [onnx.helper.make_opsetid("", 17)]
    made = onnx.helper.make_model(proto, opset_imports=opsets, ir_version=8)
    onnx.checker.check_model(made)
    return amp.load(made)


def batch(seed: int, **changed: Any) -> Feeds:
    rng = np.random.default_rng(seed)
    feeds = {name: rng.normal(size=3) for name in "ms"}
    feeds |= {name: rng.normal(size=(4, 2)) for name in ("mr", "sr")}
    feeds = {name: array.astype(np.float32) for name, array in feeds.items()}
    for name, number in changed.items():
        feeds[name].flat[-1] = number
    return {**feeds, "ids": rng.integers(0, 5, 4)}


def scale(**options: Any) -> DynamicLossScale:
    return DynamicLossScale(2.0**15, increment_period=2, **options)


def step_of(optimizer: Any, **options: Any) -> Any:
    graph = model()
    return optimizer.minimize([amp.value(graph, "main"), amp.value(graph, "side")], **options)


def kept(state: dict[str, np.ndarray]) -> dict[str, bytes]:
    return {k: v.tobytes() for k, v in state.items() if not k.startswith("loss_scale/")}


def scales_after(mode: str, batches: list[Feeds], optimizer: Any = None) -> list[list[float]]:
    """Run batches; return the scales that each step used, and those after the last."""
    given = MultiLossScaleOptimizer(optimizer or Adam(0.01), [scale(), scale()], conditional=mode)
    with amp.TrainingSession(step_of(given), threads=1) as session:
        used = [session.run(feeds, ["loss_scale_0", "loss_scale_1"]) for feeds in batches]
        return [[float(x) for x in each.values()] for each in used] + [[*given.current_loss_scales]]


@pytest.mark.parametrize("mode", ["if", "select"])
def test_finite_steps_are_those_of_the_sum_without_a_scale(mode: str) -> None:
    scaled = MultiLossScaleOptimizer(Adam(0.01), [scale(), FixedLossScale(8)], conditional=mode)
    plain = step_of(Adam(0.01))
    with amp.TrainingSession(step_of(scaled)) as one, amp.TrainingSession(plain) as other:
        for seed in range(4):
            found = one.run(batch(seed), ["loss", "main", "side", "grads_finite"])
            expected = other.run(batch(seed), ["loss"])
            assert found["grads_finite"]
            assert found["loss"] == found["main"] + found["side"] == expected["loss"]
        state, reference = one.state_dict(), other.state_dict()
    for name in SHAPES:  # powers of two: unscaled gradients are exact
        np.testing.assert_array_equal(state[name], reference[name])


@pytest.mark.share(11)
@pytest.mark.parametrize("mode", ["if", "select"])
@pytest.mark.parametrize("where", ["m", "s", "mr", "sr"])
@pytest.mark.parametrize("bad", BAD)
def test_a_loss_moves_its_own_scale_alone_and_skips_the_step_for_all(
    bad: float, where: str, mode: str
) -> None:
    optimizer = MultiLossScaleOptimizer(Momentum(0.1), [scale(), scale()], conditional=mode)
    to_blame, other = (0, 1) if where.startswith("m") else (1, 0)
    with amp.TrainingSession(step_of(optimizer), threads=1) as session:
        session.run(batch(0))
        before = session.state_dict()
        found = session.run(
            batch(1, **{where: bad}),
            ["grads_finite", "grads_finite_0", "grads_finite_1", "skipped_steps", "outcome"],
        )
        assert not found["grads_finite"]
        assert not found[f"grads_finite_{to_blame}"]
        assert found[f"grads_finite_{other}"]
        assert found["skipped_steps"] == 1
        assert f"at loss scale 32768 of loss {to_blame}" in str(found["outcome"])
        assert kept(session.state_dict()) == kept(before)
        assert session.global_step == 1
        # the second step in which the other loss was finite: its scale grows
        assert optimizer.current_loss_scales[to_blame] == 2.0**14
        assert optimizer.current_loss_scales[other] == 2.0**16
        after = session.run(batch(2), ["skipped_steps_0", "skipped_steps_1", "grads_finite"])
        assert after["grads_finite"]
        assert after["skipped_steps_0"] == after["skipped_steps_1"] == 1


@pytest.mark.parametrize("mode", ["if", "select"])
def test_a_trajectory_is_that_of_one_scaler_for_each_loss(mode: str) -> None:
    rng = np.random.default_rng(3)
    faults = rng.random((40, 2)) < 0.3
    batches = [
        batch(i, **{k: np.inf for k, is_bad in zip("ms", bad, strict=True) if is_bad})
        for i, bad in enumerate(faults)
    ]
    found = np.array(scales_after(mode, batches))
    for loss in range(2):  # https://nvidia.github.io/apex/amp.html: a LossScaler each
        now, good = 2.0**15, 0
        for step, is_bad in enumerate(faults[:, loss]):
            assert found[step, loss] == now
            good = 0 if is_bad else good + 1
            if is_bad:
                now = max(now / 2, 1.0)
            elif good == 2:
                now, good = now * 2, 0
        assert found[-1, loss] == now


def test_a_sum_that_overflows_while_each_loss_is_finite_shrinks_all_scales() -> None:
    huge = batch(0, m=3e38, s=3e38)
    given = [FixedLossScale(1), DynamicLossScale(1.0, floor=0.25), DynamicLossScale(1, floor=0.1)]
    graph = model()
    main, side = amp.value(graph, "main"), amp.value(graph, "side")
    optimizer = MultiLossScaleOptimizer(GradientDescent(0.1), given)
    with amp.TrainingSession(optimizer.minimize([main, side, main])) as session:
        names = ["grads_finite", "grads_finite_0", "grads_finite_1", "outcome"]
        found = session.run(huge, names)
        assert not found["grads_finite"]
        assert optimizer.current_loss_scales == (1.0, 0.5, 0.5)


@pytest.mark.share(3)
@pytest.mark.parametrize("mode", ["if", "select"])
@pytest.mark.parametrize("at", [0, 1])
def test_of_accumulated_batches_any_may_skip_the_group(at: int, mode: str) -> None:
    optimizer = MultiLossScaleOptimizer(Adam(0.01), [scale(), scale()], conditional=mode)
    with amp.TrainingSession(step_of(optimizer, accumulate=2), threads=1) as session:
        before = kept(session.state_dict())
        told = [
            str(
                session.run(batch(i, **({"sr": np.inf} if i == at else {})), ["outcome"])["outcome"]
            )
            for i in range(2)
        ]
        assert told[0] == "accumulated: 1 of 2 batches wait for the update"
        assert "at loss scale 32768 of loss 1" in told[1]
        assert kept(session.state_dict()) == before
        assert optimizer.current_loss_scales == (2.0**15, 2.0**14)
        assert all(session.run(batch(i), ["grads_finite"])["grads_finite"] for i in range(2))
        assert optimizer.current_loss_scales == (2.0**16, 2.0**14)
        assert session.global_step == 1


def test_what_is_done_to_gradients_in_between_hides_no_infinity() -> None:
    optimizer = MultiLossScaleOptimizer(GradientDescent(0.1), [scale(), scale()])
    graph = model()
    pairs = optimizer.compute_gradients([amp.value(graph, "main"), amp.value(graph, "side")])
    clipped = [(amp.optimizers.clip_by_value(gradient, -1, 1), v) for gradient, v in pairs]
    step = optimizer.apply_gradients(clipped)
    with amp.TrainingSession(step) as session:
        found = session.run(batch(0, s=np.inf), ["grads_finite", "grads_finite_0"])
        assert not found["grads_finite"]
        assert found["grads_finite_0"]


def test_a_loss_that_stays_at_its_floor_is_an_error() -> None:
    floor = DynamicLossScale(1.0, max_consecutive_skips=3)
    step = step_of(MultiLossScaleOptimizer(Adam(0.01), [scale(), floor]))
    with amp.TrainingSession(step) as session:
        for _ in range(5):  # the other one's faults are not counted
            session.run(batch(0, m=np.nan))
        for _ in range(2):
            session.run(batch(0, s=np.nan))
        with pytest.raises(LossScaleError, match=r"3 steps in a row .* lowest loss scale, 1"):
            session.run(batch(0, s=np.nan))


def test_a_checkpoint_and_a_step_file_keep_every_scale(tmp_path: Any) -> None:
    batches = [batch(0), batch(1, s=np.inf), batch(2), batch(3, m=np.inf), batch(4)]
    made = step_of(MultiLossScaleOptimizer(Adam(0.01), ["dynamic", scale()]))
    with amp.TrainingSession(made) as session:
        for feeds in batches[:3]:
            session.run(feeds)
        session.save(tmp_path / "c.safetensors")
        for feeds in batches[3:]:
            session.run(feeds)
        expected = session.state_dict()
    amp.save(amp.build_step(made), tmp_path / "step.onnx")
    with amp.TrainingSession(tmp_path / "step.onnx") as session:
        session.restore(tmp_path / "c.safetensors")
        for feeds in batches[3:]:
            session.run(feeds)
        assert len(session.info.loss_scales) == 2
        found = session.state_dict()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


def test_low_precision_needs_the_scales_that_no_common_one_is() -> None:
    """float16: gradients of 1e-7 die unscaled, those of 1e4 overflow with what the others need."""
    feeds = {**batch(0), "s": np.full(3, 1e-7, np.float32), "m": np.full(3, 2e4, np.float32)}
    wide = [FixedLossScale(1.0), FixedLossScale(2.0**15)]
    own = step_of(MultiLossScaleOptimizer(GradientDescent(1.0), wide))
    with amp.TrainingSession(own, precision="float16", emulate=True) as session:
        before = session.state_dict()
        session.run(feeds)
        moved = {k: before[k] - v for k, v in session.state_dict().items() if k in SHAPES}
    np.testing.assert_allclose(moved["first"], feeds["m"], rtol=1e-3)
    np.testing.assert_allclose(moved["second"], feeds["s"], rtol=0.3)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_around_other_wrappers_too(accumulate: int) -> None:
    inner = WeightAverage(amp.optimizers.ParameterGroups(Adam(0.01), no_decay=()), decay=0.9)
    optimizer = MultiLossScaleOptimizer(inner, [scale(), scale()])
    step = step_of(optimizer, accumulate=accumulate)
    with amp.TrainingSession(step) as session:
        before = kept(session.state_dict())
        for _ in range(accumulate):
            session.run(batch(0, m=np.inf))
        assert kept(session.state_dict()) == before
        for _ in range(accumulate):
            session.run(batch(0))
        assert kept(session.state_dict()) != before


def test_on_shards_every_one_skips_and_shrinks_the_scale_of_the_loss_that_one_blames() -> None:
    def program(shards: Shards) -> tuple[dict[str, bytes], list[float], bool]:
        inner = amp.CrossShardOptimizer(Momentum(0.1))
        optimizer = MultiLossScaleOptimizer(inner, [scale(), scale()])
        with amp.TrainingSession(step_of(optimizer), shards=shards, threads=1) as session:
            before = kept(session.state_dict())
            session.run(batch(0, **({"sr": np.inf} if shards.rank == 1 else {})))
            after = session.state_dict()
            scales = [float(after[f"loss_scale/current_loss_scale{i}"]) for i in ("", "_1")]
            same = kept(after) == before
            session.run(batch(1))
            return kept(session.state_dict()), scales, same

    first, second = on_threads(2, program)
    assert first == second
    assert first[1:] == ([2.0**15, 2.0**14], True)


def test_a_configuration_makes_an_equal_optimizer() -> None:
    optimizer = MultiLossScaleOptimizer(Adam(0.5), [scale(), 4], conditional="select")
    again = get({"class_name": "MultiLossScaleOptimizer", "config": optimizer.get_config()})
    assert isinstance(again, MultiLossScaleOptimizer)
    assert again.get_config() == optimizer.get_config()
    assert again.loss_scales == optimizer.loss_scales
    assert again.conditional == "select"
    shown = repr(again)
    assert "DynamicLossScale(" in shown
    assert "FixedLossScale(loss_scale_value=4" in shown


def test_the_graph_rewrite_takes_a_scale_for_each_loss() -> None:
    optimizer = amp.enable_mixed_precision_graph_rewrite(Adam(), ["dynamic", 8])
    assert isinstance(optimizer, MultiLossScaleOptimizer)
    found = amp.enable_mixed_precision_graph_rewrite(
        Adam(), ["dynamic", "dynamic"], precision="bfloat16"
    )
    assert isinstance(found, Adam)


def test_what_does_not_fit_is_refused() -> None:
    graph = model()
    main, side = amp.value(graph, "main"), amp.value(graph, "side")
    two = MultiLossScaleOptimizer(Adam(), ["dynamic", "dynamic"])
    wrong = [(main, "1 of 2"), ([main], "1 of 2"), ([main, side, main], "3 of 2")]
    for given, found in wrong:
        with pytest.raises(
            ValueError, match=rf"losses do not fit .*found {found}; expected a list"
        ):
            two.minimize(given)
    outside = amp.CrossShardOptimizer(MultiLossScaleOptimizer(Adam(), ["dynamic", "dynamic"]))
    with (
        amp.distributed.shard_context(1),
        pytest.raises(ValueError, match=r"found 1 of 2; .*put this optimizer around any other"),
    ):
        outside.minimize([main, side])
    with pytest.raises(ValueError, match=r"take no grad_loss; .*multiply"):
        two.compute_gradients([main, side], grad_loss=main)
    with pytest.raises(ValueError, match="two losses are of different models"):
        two.minimize([main, amp.value(model(), "side")])
    with pytest.raises(TypeError, match="the loss must be a value of a model; found str"):
        two.minimize([main, "side"])  # type: ignore[list-item]
    one = scale()
    with pytest.raises(ValueError, match="one LossScale stands for two losses"):
        MultiLossScaleOptimizer(Adam(), [one, one])
    with pytest.raises(ValueError, match="no loss scales"):
        MultiLossScaleOptimizer(Adam(), [])
    with pytest.raises(TypeError, match=r"must be a list; found 'dynamic'.*LossScaleOptimizer for"):
        MultiLossScaleOptimizer(Adam(), "dynamic")
    with pytest.raises(ValueError, match="loss_scale cannot be None"):
        MultiLossScaleOptimizer(Adam(), ["dynamic", None])
    with pytest.raises(ValueError, match="must not already be"):
        MultiLossScaleOptimizer(two, ["dynamic"])
    with pytest.raises(ValueError, match="no losses"):
        Adam().minimize([])
