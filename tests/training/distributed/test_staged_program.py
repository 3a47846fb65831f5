"""Steps in stages, with a third engine behind the protocol that tests can see through."""

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import train_models
from digits_file import all_digits
from shard_models import LINEAR, loaded, plain_cnn
from twin import Twin

import amp_rewrite as amp
from amp_rewrite.distributed import (
    CrossShardOptimizer,
    ShardError,
    Shards,
    shard_context,
)
from amp_rewrite.errors import FetchError
from amp_rewrite.training.graph.replicas import SUM, replica_nodes

FEEDS = {"x": np.ones((4, 3), np.float32), "t": np.zeros((4, 1), np.float32)}


def text_model():
    return train_models.transformer(20, length=8, size=16, heads=2, layers=1)


def text_feeds():
    rng = np.random.default_rng(0)
    return {name: rng.integers(0, 20, (4, 8)) for name in ("x", "t")}


def image_feeds():
    return next(all_digits().epoch(8))


MODELS = {
    "linear": (lambda: LINEAR, lambda: FEEDS),
    "cnn": (plain_cnn, image_feeds),
    "normalised": (lambda: train_models.digits_cnn(dropout=0.0), image_feeds),
    "transformer": (text_model, text_feeds),
}


def op_of(model, wrap: Callable[..., Any] = CrossShardOptimizer, rule=None):
    with shard_context():
        loss = amp.value(loaded(model), "loss")
        return wrap(rule or amp.optimizers.Adam(0.01)).minimize(loss)


def run(op, feeds, fetches=("loss",), steps=3, **options):
    """Return what the last step gives, and the states."""
    with amp.TrainingSession(op, threads=1, **options) as session:
        for _ in range(steps - 1):
            session.run(feeds, list(fetches))
        return session.run(feeds, list(fetches)), session.state_dict()


@pytest.mark.share(5)
@pytest.mark.parametrize("name", MODELS)
def test_equal_shards_compute_what_one_does(name):
    model, feeds = (make() for make in MODELS[name])
    rule = amp.optimizers.Momentum(0.01, 0.9)
    expected, states = run(op_of(model, lambda o: o, rule), feeds)
    rule = amp.optimizers.Momentum(0.01, 0.9)
    found, own = run(op_of(model, rule=rule), feeds, shards=Shards(Twin()))
    np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-6)
    assert own.keys() == states.keys()
    for key, array in own.items():
        # Nodes that a cut keeps apart are not fused, which may round otherwise.
        np.testing.assert_allclose(array, states[key], rtol=1e-5, atol=1e-6)


@pytest.mark.share(7)
@pytest.mark.parametrize("conditional", ["if", "select"])
@pytest.mark.parametrize("precision", ["float32", "float16", "bfloat16"])
def test_loss_scales_and_low_precision_are_those_of_one(conditional, precision):
    def scaled(optimizer):
        scale = amp.DynamicLossScale(2.0**8)
        return amp.LossScaleOptimizer(optimizer, scale, conditional=conditional)

    options = {"precision": precision, "emulate": precision != "float32"}
    expected, states = run(op_of(plain_cnn(), scaled), image_feeds(), **options)
    op = op_of(plain_cnn(), lambda o: scaled(CrossShardOptimizer(o)))
    found, own = run(op, image_feeds(), shards=Shards(Twin()), **options)
    # Halving the loss is exact but where a half is subnormal in the low type.
    np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-3)
    assert own.keys() == states.keys()
    assert own["loss_scale/skipped_steps"] == states["loss_scale/skipped_steps"] == 0
    if precision == "float32":
        for key, array in own.items():
            # One shard's convolutions are computed in blocks of channels, which adds up otherwise,
            # and Adam divides by the root of what it adds up: a small gradient's digits count.
            distance = np.linalg.norm(array - states[key])
            assert distance <= 1e-5 * np.linalg.norm(states[key]) + 1e-6, key


def test_local_gradients_and_sums_can_be_fetched():
    op = op_of(LINEAR)
    sums = [str(n.outputs[0].name) for n in replica_nodes(op.graph.model) if n.op_type == SUM]
    local = next(
        str(n.inputs[0].name) for n in replica_nodes(op.graph.model) if n.outputs[0].name == sums[0]
    )
    shards = Shards(Twin())
    found, _ = run(op, FEEDS, ("loss", local, sums[0]), steps=1, shards=shards)
    np.testing.assert_array_equal(found[sums[0]], 2 * found[local])


WAYS: dict[str, Callable[..., Any]] = {
    "mean of means": lambda o: CrossShardOptimizer(CrossShardOptimizer(o)),
    "three": lambda o: CrossShardOptimizer(CrossShardOptimizer(CrossShardOptimizer(o))),
    "groups": lambda o: CrossShardOptimizer(
        CrossShardOptimizer(o, group_assignment=[[0, 1]]), group_assignment=[[1, 0]]
    ),
    "scaled inside": lambda o: CrossShardOptimizer(
        amp.LossScaleOptimizer(CrossShardOptimizer(o), 8.0)
    ),
}


@pytest.mark.share(5)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["linear", "normalised", "transformer"])
def test_a_sum_of_sums_of_equal_shards_is_what_one_computes(name, way):
    model, feeds = (make() for make in MODELS[name])
    expected, states = run(op_of(model, lambda o: o, amp.optimizers.Momentum(0.01, 0.9)), feeds)
    rule = amp.optimizers.Momentum(0.01, 0.9)
    found, own = run(op_of(model, WAYS[way], rule), feeds, shards=Shards(Twin()))
    np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-6)
    assert {key for key in own if not key.startswith("loss_scale/")} == states.keys()
    for key, array in states.items():
        np.testing.assert_allclose(own[key], array, rtol=1e-5, atol=1e-6)
    assert all((array != 0).any() for key, array in own.items() if key.endswith("/Momentum"))


def test_a_step_that_failed_between_sums_is_the_last():
    class Broken(Twin):
        def sum(self, buffer):
            raise ArithmeticError("no more")

    shards = Shards(Broken())
    with amp.TrainingSession(op_of(plain_cnn()), threads=1, shards=shards) as session:
        with pytest.raises(ArithmeticError):
            session.run(image_feeds())
        with pytest.raises(ShardError, match=r"failed between two sums.*ArithmeticError: no more"):
            session.run(image_feeds())


def test_sums_of_another_step_of_the_graph_are_not_fetched():
    with shard_context():
        loss = amp.value(loaded(LINEAR), "loss")
        other = CrossShardOptimizer(amp.optimizers.Adam(0.1)).minimize(loss)
        op = CrossShardOptimizer(amp.optimizers.GradientDescent(0.1)).minimize(loss)
    name = other.fetches["loss"].name
    with amp.TrainingSession(op, shards=Shards(Twin())) as session:
        assert op.fetches["loss"].name != name
        with pytest.raises(FetchError, match="not a part of this step"):
            session.run(FEEDS, name)


@pytest.mark.parametrize("name", ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"])
def test_an_mpiexec_of_another_mpi_library_is_an_error(monkeypatch, name):
    library = SimpleNamespace(COMM_WORLD=SimpleNamespace(size=1))
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", library)
    monkeypatch.setenv(name, "2")
    with pytest.raises(ShardError, match=f"another MPI library.*found one shard, and {name}=2"):
        amp.distributed.mpi()


def test_an_error_inside_the_block_ends_the_other_shards(caplog):
    def fail():
        with Shards(Twin()) as shards:
            assert shards.is_first
            raise ArithmeticError("no more")

    with pytest.raises(SystemExit) as caught:
        fail()
    assert caught.value.code == 1
    assert "shard 0 of 2 has failed" in caplog.text
    assert "ArithmeticError: no more" in caplog.text


def test_sessions_inside_the_block_find_the_shards():
    twin = Twin()
    with Shards(twin):
        op = CrossShardOptimizer(amp.optimizers.Adam(0.1)).minimize(
            amp.value(loaded(LINEAR), "loss")
        )
        run(op, FEEDS, steps=2)
        assert len(twin.sums) == 2
        run(op_of(LINEAR, lambda o: o), FEEDS, steps=2)
        assert len(twin.sums) == 2


def test_batches_of_data_are_parts_of_the_global_ones():
    data = {"x": np.arange(11), "scalar": np.array(3)}
    parts = []
    for rank in range(2):
        shards = Shards(Twin())
        shards.rank = rank
        own = shards.data(data)
        assert own.steps(4) == 3
        assert own.steps(4, drop_last=True) == 2
        parts.append([b["x"].tolist() for b in own.epoch(4)])
        assert [len(b["x"]) for b in shards.held_out(data).epoch(4)] == [4, 4, 3]
    assert parts == [[[0, 1], [4, 5], [8]], [[2, 3], [6, 7], [9]]]


@pytest.mark.parametrize("fetches", [("grads_finite",), ("grads_finite", "gradient_norm")])
def test_whether_a_step_counts_does_not_depend_on_what_one_shard_fetches(fetches):
    op = op_of(LINEAR, lambda o: amp.LossScaleOptimizer(CrossShardOptimizer(o)))
    large = {name: array * np.float32(1e10) for name, array in FEEDS.items()}
    found, _ = run(op, large, fetches, steps=1, shards=Shards(Twin()))
    assert not found["grads_finite"]  # the gradients are, but their norm overflows
