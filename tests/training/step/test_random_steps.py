"""Training steps of generated models, rewritten with random lists."""

from typing import Any

import numpy as np
import pytest
import random_models
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st
from low_steps import low_nodes
from rewrite_text import feeds_of, rewritten

import amp_rewrite as amp
from amp_rewrite.errors import OptimizerValueError
from amp_rewrite.graph.io.save import to_proto
from amp_rewrite.graph.step_part import Part, part_in
from amp_rewrite.training.session.training_session import TrainingSession
from amp_rewrite.training.step.build_step import build_step

pytestmark = pytest.mark.filterwarnings("ignore:a float16 step without a loss scale")
QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
WITHOUT_RULE = frozenset({"Loop", "Scan", "SequenceConstruct", "SequenceAt"})
ARGUMENTS = {
    "steps": random_models.steps(),
    "assigned": random_models.assignments(),
    "conditional": st.sampled_from(["if", "select", None]),
    "target": st.sampled_from(["schema", "cuda"]),
    "seed": st.integers(0, 9),
}


def differentiable(steps: Any) -> list[Any]:
    """Replace operators that have no gradient rule."""
    return [
        ("MatMul" if op in WITHOUT_RULE else op, first, second, tuple(differentiable(body)))
        for op, first, second, body in steps
    ]


def train_op(proto: Any, conditional: str | None) -> Any:
    model = amp.load(proto)
    loss = amp.losses.mean_squared_error(model, proto.graph.output[0].name, "target")
    optimizer = amp.optimizers.GradientDescent(0.1)
    if conditional is not None:
        optimizer = amp.LossScaleOptimizer(optimizer, conditional=conditional)
    try:
        return optimizer.minimize(loss, var_list=["w"])
    except OptimizerValueError:
        return None  # the output does not depend on the weight


def check(
    steps: Any, assigned: dict[str, str], conditional: str | None, target: str, seed: int
) -> None:
    proto = random_models.build([("MatMul", 0, 0, ()), *differentiable(steps)], seed, 1)
    op = train_op(proto, conditional)
    assume(op is not None)
    step = to_proto(build_step(op))
    lists = random_models.lists_from(assigned)
    result = rewritten(step, lists=lists, target=target)
    event("changed" if result.changed else "unchanged")
    float32 = {part for part in Part if part.stays_float32}
    own = {node.name for node in amp.load(proto).graph.all_nodes() if node.op_type == "Cast"}
    low = [node for node in low_nodes(result.model, "float16") if node.name not in own]
    assert not {part_in(node.metadata_props) for node in low} & float32
    feeds = {name: array for name, array in feeds_of(proto).items() if name in ("x", "z")}
    feeds["target"] = np.ones(random_models.SHAPE, np.float32)
    with TrainingSession(result.model, emulate=True) as session:
        known = {name: feeds[name] for name in session.info.inputs}
        found = session.run(known)
    assert np.isfinite(found["loss"])


@given(**ARGUMENTS)
@settings(max_examples=12, suppress_health_check=QUIET, derandomize=True)
def test_the_step_of_a_random_model_stays_valid_and_runs(**arguments: Any) -> None:
    check(**arguments)


@pytest.mark.slow
@given(**ARGUMENTS)
@settings(max_examples=1000, suppress_health_check=QUIET, derandomize=True)
def test_the_steps_of_many_random_models_stay_valid_and_run(**arguments: Any) -> None:
    check(**arguments)
