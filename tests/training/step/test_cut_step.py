"""A step that accumulates gradients, where it is known which batch of an update comes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import amp_rewrite as amp
from amp_rewrite.graph.clone import clone
from amp_rewrite.graph.io.load import load
from amp_rewrite.training.graph.replicas import is_collective, resolve
from amp_rewrite.training.step.cut_step import resolve_updates
from amp_rewrite.training.step.step import whole_step

MODEL = """<ir_version: 10, opset_import: ["" : 18]>
linear (float[N, 3] x) => (float loss) <float[3, 1] w = {1, 2, 3}> {
    y = MatMul(x, w)
    s = Mul(y, y)
    loss = ReduceMean<keepdims = 0>(s)
}"""


def step_of(mode: str) -> amp.optimizers.TrainOp:
    loss = amp.value(load(onnx.parser.parse_model(MODEL)), "loss")
    scale = amp.DynamicLossScale(8.0)
    with amp.distributed.shard_context():
        optimizer = amp.CrossShardOptimizer(amp.optimizers.Adam(0.1))
        return amp.LossScaleOptimizer(optimizer, scale, conditional=mode).minimize(
            loss, accumulate=2
        )


@pytest.mark.parametrize("mode", ["if", "select"])
@pytest.mark.parametrize("last", [False, True])
def test_a_decided_step_does_what_the_undecided_one_does(mode: str, last: bool) -> None:
    op = step_of(mode)
    step = whole_step(op)
    boundary = step.info.boundary
    assert boundary is not None
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    with amp.TrainingSession(op) as session:
        if last:
            session.run({"x": x})
        before = session.state_dict()
        expected = session.run({"x": x}, ["loss", "grads_finite"])
        after = session.state_dict()
    model = clone(step.model)
    resolve_updates(model, boundary, last=last)
    resolve(model)
    fetched = [step.info.fetches[name] for name in expected]
    values = {str(v.name): v for node in model.graph for v in node.outputs}
    model.graph.outputs[:] = [values[n] for n in (*fetched, *(s.output for s in step.info.states))]
    session = amp.Evaluator(model)
    found = session.run({"x": x, **before})
    for name, output in zip(expected, fetched, strict=True):
        np.testing.assert_array_equal(found[output], expected[name])
    for state in step.info.states:
        np.testing.assert_allclose(found[state.output], after[state.name], rtol=1e-6)


@pytest.mark.parametrize("mode", ["if", "select"])
def test_gradients_are_summed_with_the_last_batch_only(mode: str) -> None:
    step = whole_step(step_of(mode))
    sums = []
    for last in (False, True):
        model, _ = step.cut(("grads_finite",), defaults=False, applies=last)
        assert not any(node.op_type == "If" for node in model.graph) or last
        sums.append(sum(is_collective(node) for node in model.graph))
    assert sums == [0, 1]
