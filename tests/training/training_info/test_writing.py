from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import training_models as models
from onnx import numpy_helper

from amp_rewrite import optimizers
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.io.save import save, to_proto
from amp_rewrite.training.grad import gradients
from amp_rewrite.training.graph.training_graph import training_graph, value
from amp_rewrite.training.graph.training_mode import turn_on_training_mode
from amp_rewrite.training.optimizers.train_op import TrainOp
from amp_rewrite.training.session.training_session import TrainingSession
from amp_rewrite.training.training_info import (
    TrainingInfoError,
    read_training_info,
    write_training_info,
)

Feeds = dict[str, np.ndarray]

NETWORK = """
network (float[N, 6] x, float[N, 2] t) => (float loss, float[N, 2] y)
<float[6, 4] w, float[4] scale, float[4] bias, float[4] mean, float[4] var, float[4, 2] u>
{
    a = MatMul(x, w)
    n = BatchNormalization(a, scale, bias, mean, var)
    r = Relu(n)
    half = Constant<value = float {0.25}>()
    d = Dropout(r, half)
    y = MatMul(d, u)
    e = Sub(y, t)
    q = Mul(e, e)
    loss = ReduceMean<keepdims = 0>(q)
}
"""


def network() -> onnx.ModelProto:
    """Return a model with BatchNormalization and Dropout, which differ while training."""
    rng = np.random.default_rng(5)
    model = onnx.ModelProto(ir_version=8, producer_name="by hand")
    model.opset_import.add(domain="", version=18)
    graph = models.graph(
        NETWORK,
        w=rng.standard_normal((6, 4)).astype(np.float32),
        scale=np.ones(4, np.float32),
        bias=np.zeros(4, np.float32),
        mean=np.zeros(4, np.float32),
        var=np.ones(4, np.float32),
        u=rng.standard_normal((4, 2)).astype(np.float32),
    )
    model.graph.CopyFrom(graph)
    return model


def batch(seed: int) -> Feeds:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((8, 6)).astype(np.float32)
    return {"x": x, "t": x[:, :2] * x[:, 2:4]}


def momentum(model: onnx.ModelProto) -> TrainOp:
    """Return a training step whose learning rate is a state, and which counts steps."""
    graph = training_graph(load(model))
    loss, b = graph.value("loss"), graph.builder
    variables = graph.variables(loss.value)
    turn_on_training_mode(graph, [variable.value for variable in variables])
    found = gradients(b, {loss.value: b.ones_like(loss.value)}, [v.value for v in variables])
    rate = graph.state("learning_rate", np.array(0.05, np.float32), "learning_rate")
    step = graph.global_step()
    updates = {step.name: b.add(step.value, b.constant(1))} | graph.statistics(loss.value)
    for variable, gradient in zip(variables, found, strict=True):
        assert isinstance(gradient, ir.Value)
        slot = graph.state(f"{variable.name}/m", np.zeros(variable.shape, np.float32), "slot")
        updates[slot.name] = b.add(b.mul(slot.value, 0.9), gradient)
        updates[variable.name] = b.sub(variable.value, b.mul(rate.value, updates[slot.name]))
    return TrainOp(graph, loss, updates, step.name, {"loss": loss.value})


def combined(model: onnx.ModelProto) -> onnx.ModelProto:
    """Concatenate the inference graph and the algorithm as the standard defines it."""
    result = onnx.ModelProto.FromString(model.SerializeToString())
    algorithm = result.training_info[0].algorithm
    for field in ("input", "initializer", "sparse_initializer", "node", "output", "value_info"):
        getattr(result.graph, field).extend(getattr(algorithm, field))
    del result.training_info[:]
    return result


def losses(session: TrainingSession, make: Any, first: int, last: int) -> list[float]:
    return [float(session.run(make(seed))["loss"]) for seed in range(first, last)]


def minimized(optimizer: optimizers.Optimizer) -> TrainOp:
    """Return the step of an optimizer of the package on a model loaded from its file's bytes."""
    return optimizer.minimize(value(load(network()), "loss"))


def scheduled() -> optimizers.LinearWarmUp:
    return optimizers.LinearWarmUp(optimizers.CosineSchedule(0.1, 20), 3)


STEPS = {
    "of GradientDescent": (lambda: minimized(optimizers.GradientDescent(0.1)), batch),
    "of Adam": (lambda: minimized(optimizers.Adam(0.1)), batch),
    "of RMSProp": (lambda: minimized(optimizers.RMSProp(0.1, centered=True)), batch),
    "of LAMB with a schedule and clipping": (
        lambda: minimized(optimizers.LAMB(scheduled(), global_clipnorm=0.5)),
        batch,
    ),
    "with training in other ways than inference": (lambda: momentum(network()), batch),
    "that was read": (lambda: read_training_info(models.adam_mlp()), models.batch),
}


@pytest.mark.share(4)
@pytest.mark.parametrize("name", STEPS)
def test_a_step_that_is_written_and_read_trains_bit_for_bit_the_same(name: str):
    build, make = STEPS[name]
    train_op = build()
    again = read_training_info(write_training_info(train_op))
    with TrainingSession(train_op) as first, TrainingSession(again) as second:
        assert losses(first, make, 0, 20) == losses(second, make, 0, 20)
        assert first.global_step == second.global_step == 20
        assert first.learning_rate == second.learning_rate
        before, after = first.state_dict(), second.state_dict()
    assert before.keys() == after.keys()
    for state in before:
        np.testing.assert_array_equal(before[state], after[state])
    roles = {key: (state.role, state.trainable) for key, state in train_op.graph.states.items()}
    found = {key: (state.role, state.trainable) for key, state in again.graph.states.items()}
    assert roles == found


@pytest.mark.parametrize("name", STEPS)
def test_what_is_written_is_valid_onnx(name: str):
    proto = write_training_info(STEPS[name][0]())
    onnx.checker.check_model(proto, full_check=True)
    onnx.checker.check_model(combined(proto), full_check=True)
    info = proto.training_info[0]
    held = {t.name for t in (*proto.graph.initializer, *info.algorithm.initializer)}
    outputs = {v.name for v in (*proto.graph.output, *info.algorithm.output)}
    keys = [binding.key for binding in info.update_binding]
    assert len(keys) == len(set(keys))
    assert held.issuperset(keys)
    assert outputs.issuperset(binding.value for binding in info.update_binding)
    called = {n.domain for n in info.algorithm.node} - {""}
    assert called <= {function.domain for function in proto.functions}


def test_who_follows_the_words_of_the_standard_trains_the_same():
    train_op = read_training_info(models.adam_mlp())
    proto = write_training_info(train_op)
    bindings = {b.key: b.value for b in proto.training_info[0].update_binding}
    plain = combined(proto)
    held = {t.name: t for t in plain.graph.initializer}
    with TrainingSession(train_op) as session:
        for seed in range(3):
            feeds = models.batch(seed)
            runner: Any = onnxruntime.InferenceSession(plain.SerializeToString())
            found = dict(zip(bindings, runner.run([*bindings.values()], feeds), strict=True))
            loss = session.run(feeds)["loss"]
            assert runner.run(["L"], feeds)[0] == pytest.approx(float(loss), rel=1e-6)
            for name, value in session.state_dict().items():
                if name in bindings:
                    np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-7)
                    held[name].CopyFrom(numpy_helper.from_array(found[name], name))


def test_the_inference_graph_is_as_it_was():
    source = network()
    proto = write_training_info(momentum(source))
    assert proto.graph.node == source.graph.node
    assert proto.graph.initializer == source.graph.initializer
    assert proto.graph.input == source.graph.input
    assert proto.graph.output == source.graph.output


def test_nodes_that_the_inference_graph_computes_are_not_repeated():
    proto = write_training_info(read_training_info(models.adam_mlp()))
    operators = [node.op_type for node in proto.training_info[0].algorithm.node]
    assert "Relu" not in operators
    assert "MatMul" not in operators
    assert operators.count("Gemm") == 3


def test_a_file_keeps_the_training_info(tmp_path: Path):
    train_op = momentum(network())
    path = tmp_path / "model.onnx"
    save(load(write_training_info(train_op)), path)
    with TrainingSession(read_training_info(path)) as read, TrainingSession(train_op) as made:
        assert losses(read, batch, 0, 3) == losses(made, batch, 0, 3)


def test_training_goes_on_from_given_values():
    train_op = read_training_info(models.adam_mlp())
    with TrainingSession(train_op) as first:
        losses(first, models.batch, 0, 5)
        proto = write_training_info(train_op, first.state_dict())
        assert not proto.training_info[0].initialization_binding
        with TrainingSession(read_training_info(proto)) as second:
            assert second.global_step == 5
            assert losses(first, models.batch, 5, 10) == losses(second, models.batch, 5, 10)


def test_the_counter_of_random_numbers_has_no_place_and_is_left_out():
    train_op = momentum(network())
    with TrainingSession(train_op) as session:
        session.run(batch(0))
        state = session.state_dict()
    assert "random/counter" in state
    states = read_training_info(write_training_info(train_op, state)).graph.states
    for name in states:
        np.testing.assert_array_equal(states[name].read(), state[name])


def test_the_initialization_sets_slots_and_counters_back():
    train_op = read_training_info(models.adam_mlp())
    fresh = write_training_info(train_op)
    with TrainingSession(train_op) as session:
        losses(session, models.batch, 0, 5)
        used = write_training_info(train_op, session.state_dict())
    used.training_info[0].initialization.CopyFrom(fresh.training_info[0].initialization)
    used.training_info[0].initialization_binding.extend(
        fresh.training_info[0].initialization_binding
    )
    states = read_training_info(used).graph.states
    before = read_training_info(fresh).graph.states
    for name, state in states.items():
        changed = not (state.read() == before[name].read()).all()
        assert changed == (state.role == "variable")


def test_a_model_of_an_old_opset_is_written_in_the_opset_that_it_trains_in():
    source = network()
    source.opset_import[0].version = 13
    proto = write_training_info(momentum(source))
    onnx.checker.check_model(combined(proto), full_check=True)
    with TrainingSession(read_training_info(proto)) as read:
        found = losses(read, batch, 0, 5)
    with TrainingSession(momentum(source)) as made:
        assert found == losses(made, batch, 0, 5)


def test_writing_leaves_the_step_alone():
    train_op = momentum(network())
    model, forward = train_op.graph.model, train_op.graph.source
    before = [to_proto(m).SerializeToString(deterministic=True) for m in (model, forward)]
    assert write_training_info(train_op) == write_training_info(train_op)
    after = [to_proto(m).SerializeToString(deterministic=True) for m in (model, forward)]
    assert before == after


def test_a_value_of_no_state_is_an_error():
    with pytest.raises(
        TrainingInfoError, match="v: no state has this name; expected one of w, scale, bias"
    ):
        write_training_info(momentum(network()), {"v": np.zeros(3)})


def test_a_value_of_another_shape_is_an_error():
    with pytest.raises(
        TrainingInfoError, match=r"w: the value does not fit .* found \(3,\); expected \(6, 4\)"
    ):
        write_training_info(momentum(network()), {"w": np.zeros(3)})
