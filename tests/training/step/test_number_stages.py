"""A step in three stages, numbers apart from tensors, computes what it computes as a whole."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from low_steps import NETWORKS, batch

import amp_rewrite as amp
from amp_rewrite import optimizers
from amp_rewrite.grad.prepare import record_types
from amp_rewrite.graph.clone import clone
from amp_rewrite.graph.io.functions import inline
from amp_rewrite.runtimes.ort.sessions import Session
from amp_rewrite.training.step.cut_step import Stage
from amp_rewrite.training.step.faster_forms import compute_random_in_32_bits
from amp_rewrite.training.step.number_stages import WIDE, number_stages
from amp_rewrite.training.step.step import whole_step


def scaled(mode: str, *, average: bool = False) -> Any:
    inner: Any = optimizers.Adam(optimizers.LinearWarmUp(1e-3, 5))
    inner = optimizers.WeightAverage(inner, decay=0.9) if average else inner
    scale = amp.DynamicLossScale(initial_loss_scale=2.0**8, increment_period=2)
    return amp.LossScaleOptimizer(inner, scale, conditional=mode)


STEPS: dict[str, Any] = {
    "plain": lambda loss: optimizers.Adam(1e-3).minimize(loss),
    "if": lambda loss: scaled("if").minimize(loss),
    "select": lambda loss: scaled("select").minimize(loss),
    "accumulated": lambda loss: scaled("if").minimize(loss, accumulate=2),
    "averaged": lambda loss: scaled("if", average=True).minimize(loss),
}


def in_stages(stages: Sequence[Stage | None], feeds: dict[str, Any]) -> dict[str, Any]:
    """Run stages one after the other; return all that leaves them."""
    known = dict(feeds)
    for stage in stages:
        if stage is not None:
            session = Session(stage.model)
            found = session.run({name: known[name] for name in session.inputs}, stage.leaves)
            known.update(zip(stage.leaves, found, strict=True))
    return known


@pytest.mark.share(4)
@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("network", ["mlp", "cnn"])
def test_stages_compute_the_step_bit_for_bit(network: str, kind: str) -> None:
    step = whole_step(STEPS[kind](amp.value(amp.load(NETWORKS[network]()), "loss")))
    model, info = step.cut(["loss"], defaults=False)
    inline(model)
    record_types(model)
    whole = Session(clone(model))
    compute_random_in_32_bits(model)
    stages = number_stages(model, info.names)
    states = {name: tensor.numpy() for name, tensor in step.initial().items()}
    for number in range(4):
        feeds = {**states, **batch(network, number)}
        if number == 2:
            feeds["x"] = feeds["x"] * np.float32(np.inf)
        expected = dict(zip(whole.outputs, whole.run(feeds), strict=True))
        found = in_stages(stages, feeds)
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array, err_msg=name)
        states = {state.name: expected[state.output] for state in info.states}
    assert states["global_step"] == {"plain": 4, "accumulated": 1}.get(kind, 3)


@pytest.mark.share(2)
@pytest.mark.parametrize("kind", ["plain", "if", "select"])
def test_no_state_of_a_single_wide_number_is_left_among_the_tensors(kind: str) -> None:
    step = whole_step(STEPS[kind](amp.value(amp.load(NETWORKS["cnn"]()), "loss")))
    model, info = step.cut(["loss"], defaults=False)
    inline(model)
    record_types(model)
    compute_random_in_32_bits(model)
    before, tensors, after = number_stages(model, info.names)
    assert before is not None
    assert tensors is not None
    assert (after is None) == (kind == "plain")
    states = [v for v in tensors.model.graph.inputs if v.name in info.names]
    assert states
    assert not [v.name for v in states if v.dtype in WIDE]
    doubles = [v for node in tensors.model.graph.all_nodes() for v in node.outputs]
    assert not [v.name for v in doubles if v.dtype is not None and v.dtype.name == "DOUBLE"]
    assert "loss" in tensors.leaves
