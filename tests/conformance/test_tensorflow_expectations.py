"""What a careful reader of TensorFlow's documents expects besides their sentences."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorflow_model import FEEDS, INF, loss_of, states

import amp_rewrite as amp
from amp_rewrite import optimizers as opt
from amp_rewrite.distributed import shard_context
from amp_rewrite.errors import AmpError
from amp_rewrite.optimizers import Adam, GradientDescent, IndexedSlices, Momentum


def step_of(op: Any) -> bytes:
    return amp.to_proto(amp.build_step(op)).SerializeToString(deterministic=True)


def gradient_of(loss: amp.GraphValue, name: str = "w") -> Any:
    ((gradient, _),) = GradientDescent(1.0).compute_gradients(loss, [name])
    return gradient


# slots and weights that users add


def with_average(optimizer: Any, loss: amp.GraphValue) -> Any:
    """Return a step whose optimizer has a slot more, which is made before the rule's."""
    optimizer.add_slot(loss.graph.variable("w"), "avg", "ones")
    return optimizer.minimize(loss)


def test_slots_are_left_where_a_step_has_others(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    with amp.TrainingSession(Adam(0.1).minimize(loss_of())) as session:
        session.run(FEEDS)
        session.save(path)
    with amp.TrainingSession(with_average(Adam(0.1), loss_of())) as session:
        session.restore(path, strict=False)
        assert session.restored is not None
        assert set(session.restored.left) == {"w/Adam", "w/Adam_1"}
        assert "which slot of w/Adam this is cannot be told" in session.restored.left["w/Adam"]
        assert "table/Adam" in session.restored.taken


@pytest.mark.parametrize("wrap", [lambda o: o, amp.LossScaleOptimizer])
def test_added_slots_and_weights_are_in_steps_and_checkpoints(
    wrap: Callable[[Any], Any], tmp_path: Path
) -> None:
    def made() -> tuple[Any, Any]:
        optimizer = wrap(Momentum(0.1, 0.5))
        loss = loss_of()
        op = optimizer.minimize(loss)
        optimizer.add_slot("w", "avg", 2.0)
        optimizer.add_weight("extra", (3,), initializer="ones")
        return optimizer, op

    optimizer, op = made()
    names = {state.name for state in optimizer.weights}
    assert {"w/Momentum_1", "extra"} <= names
    assert {"w/Momentum_1", "extra"} <= {v.name for v in amp.build_step(op).graph.inputs}
    path = tmp_path / "c.safetensors"
    with amp.TrainingSession(op) as session:
        session.run(FEEDS)
        optimizer.get_slot("w", "avg").assign([5.0, 6.0])
        session.assign_state("extra", np.array([7, 8, 9], np.float32))
        assert names <= set(session.state_dict())
        session.save(path)
    again, op = made()
    with amp.TrainingSession(op) as session:
        session.restore(path)
        assert again.get_slot("w", "avg").read().tolist() == [5, 6]
        assert session.state_dict()["extra"].tolist() == [7, 8, 9]
    with amp.TrainingSession(amp.build_step(op)) as session:
        session.restore(path)
        session.run(FEEDS)
        assert session.state_dict()["extra"].tolist() == [7, 8, 9]


@pytest.mark.parametrize("initializer", [None, [None, 1.0], "random", [1, 2, 3], 1j, [[1], [1, 2]]])
def test_impossible_initializers_are_refused_by_slots_and_weights(initializer: Any) -> None:
    optimizer, loss = Adam(), loss_of()
    variable = loss.graph.variable("w")
    with pytest.raises(ValueError, match=r"initializer|a slot must have the shape") as slot:
        optimizer.add_slot(variable, "s", initializer)
    with pytest.raises(ValueError, match="initializer") as weight:
        optimizer.add_weight("extra", (2,), initializer=initializer)
    assert all(isinstance(error.value, AmpError) for error in (slot, weight))
    assert optimizer.weights == []


def test_slots_and_weights_begin_with_what_a_function_returns() -> None:
    optimizer, loss = Adam(), loss_of()

    def initializer(shape: Any, dtype: Any) -> np.ndarray:
        return np.arange(np.prod(shape), dtype=dtype).reshape(shape)

    slot = optimizer.add_slot(loss.graph.variable("table"), "s", initializer)
    assert slot.read().tolist() == [[0, 1], [2, 3], [4, 5]]
    assert optimizer.add_weight("extra", (2,), initializer=initializer).read().tolist() == [0, 1]


# errors at the call


@pytest.mark.share(7)
@pytest.mark.parametrize(
    "call",
    [
        lambda o, a, b: o.get_unscaled_gradients([a, b]),
        lambda o, a, b: o.apply_gradients([(a, "w"), (b, "table")]),
        lambda o, a, b: opt.clip_by_global_norm([a, b], 1.0),
        lambda o, a, b: opt.clip_by_global_norm([a], 1.0, use_norm=b),
        lambda o, a, b: opt.global_norm([a, b]),
        lambda o, a, b: o.apply_gradients([(a, b.graph.variable("w"))]),
        lambda o, a, b: o.compute_gradients(a.graph.value("loss"), [b.graph.variable("w")]),
        lambda o, a, b: o.minimize(a.graph.value("loss"), b.graph.global_step()),
        lambda o, a, b: o.minimize(a.graph.value("loss"), grad_loss=b),
        lambda o, a, b: o.apply_gradients([(a, "w")], b.graph.global_step()),
    ],
)
def test_what_mixes_two_models_is_refused_and_leaves_both(call: Callable[..., Any]) -> None:
    first, second = loss_of(), loss_of()
    ops = [Momentum(0.1).minimize(loss) for loss in (first, second)]
    a, b = gradient_of(first), gradient_of(second)
    before = [step_of(op) for op in ops]
    nodes = [len(loss.graph.model.graph) for loss in (first, second)]
    optimizer = amp.LossScaleOptimizer(GradientDescent(1.0), 8.0)
    with pytest.raises(AmpError, match=r"two models|of another model|of this model"):
        call(optimizer, a, b)
    assert [step_of(op) for op in ops] == before
    assert [len(loss.graph.model.graph) for loss in (first, second)] == nodes
    assert states(optimizer.minimize(first))["w"].tolist() == [-2, 6]


def slices(loss: amp.GraphValue, values: Any, indices: Any, *shape: Any) -> Any:
    b = loss.graph.builder
    made = (b.constant(np.asarray(array)) for array in (values, indices, *shape))
    return IndexedSlices(*(amp.GraphValue(loss.graph, value) for value in made))  # type: ignore[arg-type]


ROWS = np.ones((2, 2), np.float32)
THINNED = """half = Constant<value = float {0.5}>() yes = Constant<value = bool {1}>()
    thin = Dropout(p, half, yes) thinned = ReduceSum<keepdims=0>(thin)"""


@pytest.mark.parametrize(
    ("variable", "given"),
    [
        ("table", (np.ones((2, 3), np.float32), [0, 1])),
        ("table", (np.ones(2, np.float32), [0, 1])),
        ("table", (ROWS, [0, 1, 2])),
        ("table", (ROWS, [[0], [1]])),
        ("table", (ROWS, np.array([0, 1], np.float32))),
        ("table", (ROWS, [0, 1], [4, 2])),
        ("w", (ROWS, [0, 1])),
    ],
)
def test_sparse_gradients_that_do_not_fit_are_refused_when_they_are_applied(
    variable: str, given: Any
) -> None:
    loss = loss_of()
    with pytest.raises(ValueError, match=f"{variable}: ") as raised:
        GradientDescent().apply_gradients([(slices(loss, *given), variable)])
    assert isinstance(raised.value, AmpError)


def test_gradients_of_integers_are_refused_when_they_are_applied() -> None:
    loss = loss_of()
    gradient = amp.GraphValue(loss.graph, loss.graph.builder.constant(np.array([1, 2])))
    with pytest.raises(ValueError, match="Invalid type int64 for the gradient of 'w'"):
        GradientDescent().apply_gradients([(gradient, "w")])


def test_sparse_gradients_need_no_dense_shape() -> None:
    loss = loss_of()
    pairs = [(slices(loss, ROWS, [0, 2]), "table")]
    scaled = amp.LossScaleOptimizer(GradientDescent(1.0), 1.0)
    (gradient,) = scaled.get_unscaled_gradients([pairs[0][0]])
    (clipped,), _ = opt.clip_by_global_norm([gradient], 100.0)
    expected = [[0, 1], [3, 4], [4, 5]]
    assert states(scaled.apply_gradients([(clipped, "table")]))["table"].tolist() == expected
    dense = Momentum(1.0).apply_gradients(pairs)
    assert states(dense)["table"].tolist() == expected


@pytest.mark.parametrize(
    ("make", "name", "value"),
    [
        (lambda: amp.FixedLossScale(8.0), "loss_scale_value", 0),
        (lambda: amp.FixedLossScale(8.0), "loss_scale_value", -3),
        (lambda: amp.DynamicLossScale(8.0), "initial_loss_scale", 0.0),
        (lambda: amp.DynamicLossScale(8.0), "increment_period", 2**63),
        (lambda: amp.DynamicLossScale(8.0), "floor", 16.0),
        (lambda: amp.DynamicLossScale(8.0), "multiplier", 1.0),
        (lambda: Adam(), "clipnorm", -1.0),
        (lambda: Adam(clipnorm=1.0), "clipvalue", 1.0),
        (lambda: Adam(), "beta1", 1.0),
        (lambda: Adam(), "learning_rate", -1.0),
        (lambda: Adam(), "rule", 3),
        (lambda: amp.LossScaleOptimizer(Adam()), "clipnorm", 1.0),
        (lambda: amp.LossScaleOptimizer(amp.CrossShardOptimizer(Adam())), "beta1", 1.0),
    ],
)
def test_what_a_constructor_refuses_cannot_be_set(
    make: Callable[[], Any], name: str, value: Any
) -> None:
    made = make()
    before = made.get_config()
    with pytest.raises(AmpError, match=r"impossible|must|unknown|one way|support|not a rule"):
        setattr(made, name, value)
    assert made.get_config() == before


def test_what_a_constructor_takes_can_be_set() -> None:
    fixed, dynamic = amp.FixedLossScale(8.0), amp.DynamicLossScale(8.0)
    fixed.loss_scale_value = 4
    dynamic.increment_period = 7
    assert (fixed.loss_scale_value, dynamic.increment_period) == (4.0, 7)
    optimizer = Adam(clipnorm=1.0)
    optimizer.clipnorm = None
    optimizer.clipvalue = 2.0
    assert optimizer.clipvalue == 2.0
    assert optimizer.member(clipnorm=3.0).clipnorm == 3.0


def test_a_limit_that_is_set_inside_is_refused_when_gradients_are_applied() -> None:
    inner = Adam()
    optimizer = amp.LossScaleOptimizer(inner)
    inner.clipnorm = 1.0
    with pytest.raises(ValueError, match="does not support wrapping optimizers with a clipnorm"):
        optimizer.minimize(loss_of())


def test_a_period_beyond_int64_is_refused_when_it_is_given() -> None:
    with pytest.raises(ValueError, match=r"impossible increment_period.*at most") as raised:
        amp.DynamicLossScale(8.0, 2**63)
    assert isinstance(raised.value, AmpError)
    built = amp.LossScaleOptimizer(Adam(), amp.DynamicLossScale(8.0, 2**63 - 1)).minimize(loss_of())
    assert states(built)["loss_scale/current_loss_scale"] == 8.0


@pytest.mark.parametrize("wrong", [np.zeros(3), [["a", "b"], ["c", "d"], ["e", "f"]]])
def test_weights_that_do_not_fit_replace_nothing(wrong: Any) -> None:
    optimizer = Momentum(0.1)
    optimizer.minimize(loss_of())
    before = optimizer.get_weights()
    given = [before[0] + 1, before[1] + 1, wrong]
    with pytest.raises(AmpError):
        optimizer.set_weights(given)
    for old, new in zip(before, optimizer.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


# forms of arguments


@pytest.mark.parametrize(
    "variables", [["w"], ("w",), lambda: ["w"]], ids=["list", "tuple", "function"]
)
def test_variables_may_stand_behind_the_loss_as_in_version_2(variables: Any) -> None:
    op = opt.SGD(1.0).minimize(lambda: loss_of(), variables)
    assert [name for name in op.updates if op.graph.states[name].trainable] == ["w"]
    assert states(op)["w"].tolist() == [-2, 6]
    with pytest.raises(TypeError, match="two lists of variables"):
        opt.SGD(1.0).minimize(loss_of(), ["w"], ["table"])


@pytest.mark.parametrize("name", ["counter", "mine"])
@pytest.mark.parametrize("known", [False, True])
def test_iterations_may_be_named(name: str, known: bool) -> None:
    optimizer, loss = amp.LossScaleOptimizer(GradientDescent(1.0), 8.0), loss_of()
    pairs = optimizer.compute_gradients(loss) if known else []
    optimizer.iterations = name
    op = optimizer.apply_gradients(pairs) if known else optimizer.minimize(loss)
    assert op.global_step == name
    assert optimizer.iterations.name == name
    assert states(op)[name] == (41 if name == "counter" else 1)


def test_iterations_that_are_no_counter_are_refused_when_they_are_set() -> None:
    optimizer = GradientDescent(1.0)
    optimizer.compute_gradients(loss_of())
    with pytest.raises(ValueError, match="Invalid type float32 for global_step 'w'"):
        optimizer.iterations = "w"
    assert optimizer.iterations is None


@pytest.mark.parametrize(
    "wrap",
    [lambda o: o, lambda o: amp.LossScaleOptimizer(o, 8.0), lambda o: opt.ParameterGroups(o)],
)
def test_get_slot_takes_the_keywords_of_both_versions(wrap: Callable[[Any], Any]) -> None:
    optimizer = wrap(Adam())
    optimizer.minimize(loss_of())
    assert optimizer.get_slot(var="w", slot_name="m") is optimizer.get_slot("w", "m")
    assert optimizer.get_slot(var="w", name="m") is optimizer.get_slot("w", "m")
    with pytest.raises(TypeError, match="get_slot takes one of name and slot_name"):
        optimizer.get_slot("w")
    with pytest.raises(TypeError, match="get_slot takes one of name and slot_name"):
        optimizer.get_slot("w", "m", slot_name="m")


@pytest.mark.parametrize(
    "option", [{"experimental_aggregate_gradients": False}, {"skip_gradients_aggregation": True}]
)
def test_aggregation_can_be_left_out_of_apply_gradients(option: Any) -> None:
    def sums(optimizer: Any, **options: Any) -> int:
        loss = loss_of()
        op = optimizer.apply_gradients(optimizer.compute_gradients(loss, ["w"]), **options)
        assert states(op)["w"].tolist() == [-2, 6]
        nodes = amp.build_step(op).graph
        return sum(node.op_type == "CrossReplicaSum" for node in nodes)

    with shard_context():
        makes = [
            lambda: amp.CrossShardOptimizer(GradientDescent(1.0)),
            lambda: amp.LossScaleOptimizer(amp.CrossShardOptimizer(GradientDescent(1.0)), 8.0),
        ]
        for make in makes:
            assert sums(make()) == sums(make(), **option) + 1  # the loss is summed in any case
        assert sums(GradientDescent(1.0), **option) == 0


def test_a_loss_scale_can_be_called() -> None:
    scale = amp.DynamicLossScale(8.0, 1)
    assert scale() == 8.0
    op = amp.LossScaleOptimizer(GradientDescent(1.0), scale).minimize(loss_of())
    with amp.TrainingSession(op) as session:
        session.run(FEEDS)
        assert scale() == 16.0
    assert amp.FixedLossScale(4)() == 4.0


def test_no_groups_are_one_group_and_the_reduction_is_looked_at_first() -> None:
    for groups in ([], (), None):
        optimizer = amp.CrossShardOptimizer(Adam(), group_assignment=groups)
        assert optimizer.get_config()["group_assignment"] is None
    wrong: Any = None
    with pytest.raises(ValueError, match="Unsupported reduction"):
        amp.CrossShardOptimizer(wrong, "max")


def test_a_gradient_without_a_variable_is_a_type_error() -> None:
    lonely: Any = [(gradient_of(loss_of()),)]
    with shard_context(), pytest.raises(TypeError, match=r"not a .gradient, variable. pair"):
        amp.CrossShardOptimizer(Adam()).apply_gradients(lonely)


@pytest.mark.parametrize("conditional", ["if", "select"])
def test_random_numbers_go_on_in_a_skipped_step_and_nothing_else_but_the_scale(
    conditional: str,
) -> None:
    scaled = amp.LossScaleOptimizer(Adam(0.1), amp.DynamicLossScale(8.0), conditional=conditional)
    with amp.TrainingSession(scaled.minimize(loss_of("thinned", THINNED))) as session:
        before = session.state_dict()
        session.run({"g": INF["g"]})
        after = session.state_dict()
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    numbers = {f"loss_scale/{n}" for n in ("current_loss_scale", "consecutive_skips")}
    assert changed == numbers | {"loss_scale/skipped_steps", "random/counter"}


# copies

COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda o: pickle.loads(pickle.dumps(o)),
}
MADE: dict[str, Callable[[], Any]] = {
    "plain": lambda: Adam(0.5, clipnorm=1.0),
    "scaled": lambda: amp.LossScaleOptimizer(Adam(0.5), amp.DynamicLossScale(8.0, 3)),
    "two deep": lambda: amp.LossScaleOptimizer(amp.CrossShardOptimizer(Adam(0.5), "sum"), 8.0),
    "averaged": lambda: opt.WeightAverage(Adam(opt.CosineSchedule(0.1, 10)), 0.9),
    "groups": lambda: opt.ParameterGroups(Adam(), [{"variables": "w", "rate_multiplier": 0.1}]),
}


@pytest.mark.share(5)
@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_optimizers_are_copied_before_they_build_a_step(
    make: Callable[[], Any], copied: Callable[[Any], Any]
) -> None:
    optimizer = make()
    again = copied(optimizer)
    assert type(again) is type(optimizer)
    assert again.get_config() == optimizer.get_config()
    steps = []
    for each in (optimizer, again):
        loss = loss_of()
        with shard_context():
            steps.append(step_of(each.minimize(loss)))
    assert steps[0] == steps[1]


@pytest.mark.share(5)
@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_what_has_built_a_step_says_that_it_cannot_be_copied(
    make: Callable[[], Any], copied: Callable[[Any], Any]
) -> None:
    optimizer, loss = make(), loss_of()
    with shard_context():
        op = optimizer.minimize(loss)
    before = step_of(op)
    for what in (optimizer, op, loss, optimizer.iterations):
        with pytest.raises(TypeError, match=r"cannot be copied or pickled.*from_config") as raised:
            copied(what)
        assert isinstance(raised.value, AmpError)
    assert step_of(op) == before
