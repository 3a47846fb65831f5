"""Sums decide whether gradients are finite, which cost less than a norm where none is needed."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import amp_rewrite as amp
from amp_rewrite import optimizers
from amp_rewrite.loss_scaling import LossScaleOptimizer
from amp_rewrite.training.loss_scaling.check_by_sums import check_by_sums
from amp_rewrite.training.step.step import Step, read_step, whole_step

Feeds = dict[str, np.ndarray]
Make = Callable[[], ir.Model]
FeedsOf = Callable[[np.random.Generator], Feeds]


def op_of(model: ir.Model, mode: str = "if") -> optimizers.TrainOp:
    optimizer = LossScaleOptimizer(optimizers.GradientDescent(0.1), conditional=mode)
    return optimizer.minimize(amp.value(model, "loss"))


def kinds_of(step: Step, *fetches: str) -> Counter[str]:
    """Return how often each operator occurs in what a session runs for some fetches."""
    model, info = step.cut(fetches, defaults=False)
    before = Counter(node.op_type for node in model.graph)
    assert before["ReduceSumSquare"] == 4
    check_by_sums(model, {state.output for state in info.states})
    onnx.checker.check_model(ir.to_proto(model))
    after = Counter(node.op_type for node in model.graph)
    after.subtract({kind: before[kind] for kind in ("Concat", "ReduceSum")})
    return after


def test_a_norm_that_is_only_checked_is_not_computed(four_variables: Make) -> None:
    kinds = kinds_of(whole_step(op_of(four_variables())), "loss", "grads_finite")
    assert not kinds["ReduceSumSquare"]
    assert not kinds["Sqrt"]
    assert kinds["ReduceSum"] == 4 + 1  # one per gradient, and their sum
    assert kinds["Concat"] == kinds["Abs"] == 1


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_a_step_file_is_checked_by_sums_too(precision: str, four_variables: Make) -> None:
    made = amp.build_step(op_of(four_variables()), precision=precision)
    loaded = read_step(ir.to_proto(made).SerializeToString())
    kinds = kinds_of(loaded, "loss", "grads_finite")
    assert not kinds["ReduceSumSquare"]
    assert kinds["ReduceSum"] == 4 + 1


@pytest.mark.parametrize("mode", ["if", "select"])
def test_an_injected_loss_scale_is_checked_by_sums_too(mode: str, four_variables: Make) -> None:
    op = optimizers.Adam().minimize(amp.value(four_variables(), "loss"))
    injected = amp.inject_loss_scaling(amp.build_step(op), conditional=mode)
    kinds = kinds_of(read_step(injected), "loss", "grads_finite")
    assert not kinds["ReduceSumSquare"]
    assert kinds["ReduceSum"] == 4 + 1


def test_sums_are_computed_besides_a_norm_only_if_that_is_not_finite(
    four_variables: Make,
) -> None:
    kinds = kinds_of(whole_step(op_of(four_variables())), "loss", "gradient_norm")
    assert kinds["ReduceSumSquare"] == 4
    assert not kinds["ReduceSum"]  # one pass over the gradients; the sums are in a branch
    assert kinds["If"] == 2


def test_a_step_without_control_flow_stays_so(four_variables: Make) -> None:
    kinds = kinds_of(whole_step(op_of(four_variables(), "select")), "loss", "gradient_norm")
    assert not kinds["If"]
    assert kinds["ReduceSumSquare"] == 4
    assert kinds["ReduceSum"] == 4 + 1


def test_a_norm_that_clips_is_the_check(four_variables: Make) -> None:
    optimizer = LossScaleOptimizer(optimizers.GradientDescent(0.1))
    pairs = optimizer.compute_gradients(amp.value(four_variables(), "loss"))
    clipped = optimizers.clip_by_global_norm([g for g, _ in pairs], 0.5)[0]
    op = optimizer.apply_gradients(zip(clipped, [v for _, v in pairs], strict=True))
    kinds = kinds_of(whole_step(op), "loss", "grads_finite")
    assert kinds["ReduceSumSquare"] == 4
    assert not kinds["ReduceSum"]


FETCHES = [("loss",), ("gradient_norm",), ("gradient_norm", "grads_finite", "matrix")]


@pytest.mark.share(4)
@pytest.mark.parametrize("fetches", FETCHES, ids=", ".join)
@pytest.mark.parametrize("mode", ["if", "select"])
@pytest.mark.parametrize(
    ("large", "finite"),
    [(1e18, True), (1e30, True), (3e38, True), (np.inf, False), (np.nan, False)],
)
def test_whether_a_step_is_skipped_does_not_depend_on_what_is_fetched(
    fetches: tuple[str, ...],
    mode: str,
    large: float,
    finite: bool,
    four_variables: Make,
    feeds_of: FeedsOf,
) -> None:
    feeds = feeds_of(np.random.default_rng(0))
    feeds["g2"][0, 0] = large  # from 1.8e19 on its square overflows in float32
    optimizer = LossScaleOptimizer(
        optimizers.GradientDescent(0.1), amp.DynamicLossScale(1.0), conditional=mode
    )
    op = optimizer.minimize(amp.value(four_variables(), "loss"))
    with amp.TrainingSession(op) as session:
        session.run(feeds, fetches)
        state = session.state_dict()
    assert state["loss_scale/skipped_steps"] == (0 if finite else 1)
    assert state["global_step"] == (1 if finite else 0)
    if finite:
        assert state["matrix"][0, 0] == pytest.approx(-0.1 * large)


def test_clipping_by_a_norm_that_overflows_skips_the_step_whatever_is_fetched(
    four_variables: Make, feeds_of: FeedsOf
) -> None:
    feeds = feeds_of(np.random.default_rng(0))
    feeds["g2"][0, 0] = 1e30
    for fetches in FETCHES:
        optimizer = LossScaleOptimizer(optimizers.GradientDescent(0.1), amp.DynamicLossScale(1.0))
        pairs = optimizer.compute_gradients(amp.value(four_variables(), "loss"))
        clipped = optimizers.clip_by_global_norm([g for g, _ in pairs], 0.5)[0]
        op = optimizer.apply_gradients(zip(clipped, [v for _, v in pairs], strict=True))
        with amp.TrainingSession(op) as session:
            session.run(feeds, fetches)
            assert session.state_dict()["loss_scale/skipped_steps"] == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_gradients_of_two_types_are_added_in_the_wider_one(bad: float) -> None:
    graph = onnx.parser.parse_graph(
        """two (float[2, 2] f, double[3] d) => (double loss) {
            pf = Mul(w, f)
            wide = Cast<to=11>(pf)
            pd = Mul(v, d)
            sf = ReduceSum<keepdims=0>(wide)
            sd = ReduceSum<keepdims=0>(pd)
            loss = Add(sf, sd)
        }"""
    )
    graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((2, 2), np.float32), "w"))
    graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(3), "v"))
    opsets = [onnx.helper.make_opsetid("", 17)]
    model = amp.load(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8))
    good = {"f": np.ones((2, 2), np.float32), "d": np.array([1e300, 1e299, 1.0])}
    with amp.TrainingSession(op_of(model)) as session:
        assert session.run(good)["grads_finite"]
        for name, index in (("f", 3), ("d", 0)):
            feeds = {key: array.copy() for key, array in good.items()}
            feeds[name].reshape(-1)[index] = bad
            assert not session.run(feeds)["grads_finite"]
        assert session.global_step == 1


@pytest.mark.parametrize("shape", [(), (3,), (1, 5), (5, 1), (2, 3, 4), (2, 1, 2, 2), (0,), (3, 0)])
def test_a_number_at_the_end_of_any_shape_is_found(shape: tuple[int, ...]) -> None:
    lengths = ",".join(map(str, shape))
    kind = f"float[{lengths}]" if shape else "float"
    graph = onnx.parser.parse_graph(
        f"""one ({kind} g, float[2, 2] h) => (float loss) {{
            p = Mul(w, g)
            q = Mul(v, h)
            sp = ReduceSum<keepdims=0>(p)
            sq = ReduceSum<keepdims=0>(q)
            loss = Add(sp, sq)
        }}"""
    )
    for name, lengths in (("w", shape), ("v", (2, 2))):
        graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(lengths, np.float32), name))
    opsets = [onnx.helper.make_opsetid("", 17)]
    model = amp.load(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8))
    with amp.TrainingSession(op_of(model)) as session:
        for key in ("g", "h"):
            feeds = {"g": np.ones(shape, np.float32), "h": np.ones((2, 2), np.float32)}
            assert session.run(feeds)["grads_finite"]
            feeds[key].reshape(-1)[-1:] = np.nan
            assert bool(session.run(feeds)["grads_finite"]) is (feeds[key].size == 0)
