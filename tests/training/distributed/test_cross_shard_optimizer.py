"""CrossShardOptimizer as a graph construct, in one process."""

import contextvars
import sys
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from shard_models import LINEAR, TABLE, loaded

import amp_rewrite as amp
from amp_rewrite.distributed import CrossShardOptimizer, shard_context
from amp_rewrite.errors import AmpError, AmpWarning
from amp_rewrite.graph.step_part import Part, part_in
from amp_rewrite.training.graph.replicas import COUNT, GATHER, SUM, groups_of, replica_nodes
from amp_rewrite.training.step.precision import in_precision
from amp_rewrite.training.step.step import read_step, whole_step

FEEDS = {"x": np.ones((4, 3), np.float32), "t": np.zeros((4, 1), np.float32)}


def adam():
    return amp.optimizers.Adam(0.1)


def loss_of(text=LINEAR):
    return amp.value(loaded(text), "loss")


@pytest.fixture(autouse=True)
def context():
    """Build inside a shard context, so that there is no warning."""
    with shard_context():
        yield


def nodes_of(op, kind):
    return [node for node in replica_nodes(op.graph.model) if node.op_type == kind]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"opt": object()}, TypeError, "CrossShardOptimizer only works with Optimizer instances"),
        ({"opt": None}, TypeError, "found an object of type NoneType"),
        ({"reduction": "max"}, ValueError, "Unsupported reduction; found 'max'; expected SUM or"),
        ({"reduction": None}, ValueError, "Unsupported reduction; found None"),
        ({"name": ""}, ValueError, "Must specify the optimizer name."),
        ({"group_assignment": 2}, ValueError, "group_assignment must be a list of lists of"),
        (
            {"group_assignment": [[0, 1], [1, 2]]},
            ValueError,
            r"group_assignment must be a permutation of range(4); found [[0, 1], [1, 2]]",
        ),
        (
            {"group_assignment": [[0, 1], [2]]},
            ValueError,
            "the groups of group_assignment must be of equal size; found [[0, 1], [2]]",
        ),
        *(
            ({"group_assignment": groups}, ValueError, "must be a list of lists of numbers")
            for groups in ([[]], [["a"], [0]], [[False], [True]], [[0.0, 1.0]])
        ),
    ],
)
def test_impossible_arguments_are_errors(arguments, error, text):
    with pytest.raises(error) as caught:
        CrossShardOptimizer(**{"opt": adam(), **arguments})
    assert isinstance(caught.value, AmpError)
    assert text in str(caught.value)


def test_groups_must_be_a_permutation_of_the_shards_of_the_context():
    optimizer = CrossShardOptimizer(adam(), group_assignment=[[0, 1], [2, 3]])
    with (
        shard_context(8),
        pytest.raises(ValueError, match=r"must be a permutation of range\(8\)"),
    ):
        optimizer.compute_gradients(loss_of())


def test_outside_a_shard_context_one_shard_is_assumed_with_a_warning():
    def build():
        with pytest.warns(AmpWarning, match="outside a shard context; one shard is assumed"):
            return CrossShardOptimizer(adam()).minimize(loss_of())

    op = contextvars.Context().run(build)
    assert len(nodes_of(op, SUM)) == 2


@pytest.mark.parametrize("reduction", ["sum", "MEAN"])
def test_each_gradient_and_the_loss_are_summed_and_marked(reduction):
    optimizer = CrossShardOptimizer(adam(), reduction, group_assignment=[[2, 0], [1, 3]])
    op = optimizer.minimize(loss_of())
    sums = nodes_of(op, SUM)
    assert len(sums) == 2
    assert all(groups_of(node) == ((2, 0), (1, 3)) for node in sums)
    assert all(
        part_in(node.metadata_props) is Part.ALL_REDUCE for node in replica_nodes(op.graph.model)
    )
    assert bool(nodes_of(op, COUNT)) == (reduction == "MEAN")


def test_the_mean_scales_the_seed_and_adds_nothing_to_the_forward_pass():
    graph = loss_of().graph
    before = [node.op_type for node in graph.model.graph]
    loss = amp.value(graph.model, "loss")
    pairs = CrossShardOptimizer(adam()).compute_gradients(loss)
    assert [node.op_type for node in graph.model.graph][: len(before)] == before
    assert not any(use.node.op_type == "Mul" for use in loss.value.uses())
    assert [variable.name for _, variable in pairs] == ["w"]


def test_a_user_seed_is_scaled_too():
    found = {}
    for name, wrap in (("plain", lambda o: o), ("shards", CrossShardOptimizer)):
        model = loaded(LINEAR)
        loss = amp.value(model, "loss")
        op = wrap(amp.optimizers.GradientDescent(1.0)).minimize(loss, grad_loss=loss * 2)
        with amp.TrainingSession(op) as session:
            session.run(FEEDS)
            found[name] = session.state_dict()["w"]
    np.testing.assert_allclose(found["shards"], found["plain"], rtol=1e-6)


def test_none_stays_none_and_sparse_stays_sparse():
    loss = loss_of(TABLE)
    optimizer = CrossShardOptimizer(amp.optimizers.Adam(0.1, lazy=True))
    pairs = optimizer.compute_gradients(loss, var_list=["w", "unused"])
    reduced = optimizer.reduce_gradients(pairs)
    assert [gradient is None for gradient, _ in reduced] == [False, True]
    assert isinstance(reduced[0][0], amp.IndexedSlices)
    op = optimizer.apply_reduced(reduced)
    assert len(nodes_of(op, GATHER)) == 2
    assert "unused" not in op.updates


@pytest.mark.parametrize("gradient", ["g", 1.0])
def test_what_is_no_gradient_is_an_error(gradient):
    optimizer = CrossShardOptimizer(adam())
    loss = loss_of()
    [(_, variable)] = optimizer.compute_gradients(loss)
    with pytest.raises(TypeError, match="must be a value, IndexedSlices or None"):
        optimizer.apply_gradients([(gradient, variable)])


def test_the_members_are_those_of_the_wrapped_optimizer():
    inner = adam()
    optimizer = CrossShardOptimizer(inner, name="sums")
    op = optimizer.minimize(loss_of())
    assert optimizer.get_name() == optimizer.name == "sums"
    assert optimizer.get_slot_names() == inner.get_slot_names() == ["m", "v"]
    assert [s.name for s in optimizer.variables()] == [s.name for s in inner.variables()]
    w = op.graph.states["w"]
    assert optimizer.get_slot(w, "m") is inner.get_slot(w, "m")
    assert optimizer.get_slot(w, "none") is None
    assert optimizer.iterations is inner.iterations
    assert optimizer.beta1 == inner.beta1 == 0.9
    optimizer.learning_rate = 0.5
    assert inner.lr == optimizer.lr == 0.5
    assert len(optimizer.get_weights()) == len(inner.get_weights()) > 2


@pytest.mark.parametrize("wrap", [lambda o: o, amp.LossScaleOptimizer])
def test_the_configuration_makes_the_same_optimizer(wrap):
    optimizer = CrossShardOptimizer(wrap(adam()), "sum", "sums", [[0], [1]])
    config = optimizer.get_config()
    again = CrossShardOptimizer.from_config(config)
    assert again.get_config() == config
    assert type(again.inner_optimizer) is type(optimizer.inner_optimizer)
    assert again.reduction == "sum"


def run_alone(wrap, **options):
    """Return losses and weights of three steps in a session without shards."""
    op = wrap(adam()).minimize(loss_of())
    with amp.TrainingSession(op, **options) as session:
        losses = [float(session.run(FEEDS)["loss"]) for _ in range(3)]
        return losses, session.state_dict()


@pytest.mark.parametrize(
    ("wrap", "reference"),
    [
        (CrossShardOptimizer, lambda o: o),
        (lambda o: CrossShardOptimizer(o, "sum"), lambda o: o),
        (lambda o: CrossShardOptimizer(o, group_assignment=[[0, 1], [2, 3]]), lambda o: o),
        (lambda o: amp.LossScaleOptimizer(CrossShardOptimizer(o)), amp.LossScaleOptimizer),
        (lambda o: CrossShardOptimizer(amp.LossScaleOptimizer(o)), amp.LossScaleOptimizer),
    ],
)
def test_one_shard_computes_the_bits_of_a_step_without_shards(wrap, reference):
    losses, states = run_alone(wrap)
    expected, reference_states = run_alone(reference)
    assert losses == expected
    assert states.keys() == reference_states.keys()
    for name, array in states.items():
        np.testing.assert_array_equal(array, reference_states[name])


def step_file(tmp_path, wrap=CrossShardOptimizer, **options):
    path = tmp_path / "step.onnx"
    amp.save(amp.build_step(wrap(adam()).minimize(loss_of()), **options), path)
    return path


@pytest.mark.parametrize(
    "wrap", [CrossShardOptimizer, lambda o: amp.LossScaleOptimizer(CrossShardOptimizer(o))]
)
def test_a_step_file_runs_in_other_runtimes_as_on_one_shard(wrap, tmp_path):
    path = step_file(tmp_path, wrap)
    onnx.checker.check_model(path, full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    other: Any = onnxruntime.InferenceSession(path, options)
    with amp.TrainingSession(path) as session:
        out = session.run(FEEDS)
        next_w = session.state_dict()["w"]
    loss = other.run(None, FEEDS)[0]
    found = other.run(["w:next"], FEEDS)[0]
    np.testing.assert_allclose(loss, out["loss"], rtol=1e-6)
    np.testing.assert_allclose(found, next_w, rtol=1e-6)


def test_a_step_file_that_is_loaded_still_sums_over_shards(tmp_path):
    step = read_step(step_file(tmp_path))
    kinds = {node.op_type for node in replica_nodes(step.model)}
    assert kinds == {SUM, COUNT}


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_sums_stay_float32_in_a_low_precision_step_and_reports_show_them(precision, tmp_path):
    op = amp.LossScaleOptimizer(CrossShardOptimizer(adam())).minimize(loss_of())
    step = in_precision(whole_step(op), precision)
    sums = [node for node in replica_nodes(step.model) if node.op_type == SUM]
    assert len(sums) == 2
    assert all(v.type.dtype.name == "FLOAT" for node in sums for v in node.inputs)
    assert step.rewriting is not None
    report = step.rewriting.report
    shown = [node for node in report.nodes if node.op == SUM]
    assert len(shown) == 2
    assert SUM in amp.explain(step.rewriting, shown[0].name)


def test_a_session_told_to_use_a_context_for_building_runs_on_one_shard():
    op = CrossShardOptimizer(adam()).minimize(loss_of())
    with amp.TrainingSession(op, shards=shard_context(1)) as session:
        assert np.isfinite(session.run(FEEDS)["loss"])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"timeout": 0}, "impossible timeout; found 0; expected a positive number of seconds"),
        ({"timeout": float("nan")}, "impossible timeout; found nan"),
        ({"timeout": "60"}, "impossible timeout; found '60'"),
    ],
)
def test_impossible_options_are_errors(options, text):
    with pytest.raises(AmpError, match=text):
        amp.distributed.mpi(**options)


def test_an_engine_that_is_not_installed_is_an_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", None)
    text = "MPI is not installed; found .*; pip install mpi4py mpich"
    with pytest.raises(amp.distributed.ShardError, match=text):
        amp.distributed.mpi()
