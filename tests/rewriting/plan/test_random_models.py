"""Generated models, rewritten with random lists and options: invariants, stability, numbers."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
import random_models
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from rewrite_text import assert_close, feeds_of, rewritten

import amp_rewrite as amp
from amp_rewrite.graph.elements import element
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.io.read_object import infer_types

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
CLOSE = 32.0
"""How many times the type's tolerance a chain of up to 30 bounded operators may drift."""


def options() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "keep_io_types": st.sampled_from([True, False, ["x"]]),
            "weights": st.sampled_from(["convert", "cast"]),
            "infer_after_allow": st.booleans(),
            "level": st.sampled_from(
                ["default", "default", "TREAT_INFER_AS_DENY", "TENSOR_CORES_ONLY"]
            ),
            "target": st.sampled_from(["schema", "schema", "cuda"]),
        }
    )


ARGUMENTS = {
    "steps": random_models.steps(),
    "assigned": random_models.assignments(),
    "chosen": options(),
    "seed": st.integers(0, 9),
    "n_outputs": st.integers(1, 3),
}


def check(
    steps: Any, assigned: dict[str, str], chosen: dict[str, Any], seed: int, n_outputs: int
) -> None:
    model = random_models.build(steps, seed, n_outputs)
    onnx.checker.check_model(model, full_check=True)
    result = rewritten(model, lists=random_models.lists_from(assigned), **chosen)
    event("changed" if result.changed else "unchanged")
    check_ports(result)
    if chosen["keep_io_types"] is True and runs(model):
        assert_close(result, model, factor=CLOSE)


def runs(model: onnx.ModelProto) -> bool:
    """Tell whether ONNX Runtime runs a model: it loses some Casts that a Loop captures."""
    try:
        amp.evaluate(model, feeds_of(model))
    except amp.AmpError:
        event("ONNX Runtime fails on the original")
        return False
    return True


def check_ports(result: amp.RewriteResult) -> None:
    """Check that every port of every node of the original has the type that it was painted."""
    types, low = infer_types(result.model), result.options.low.number
    graph, flat = result.context.type_graph, result.context.type_graph.flat
    rewritten_nodes = {node.name: node for node in result.model.graph.all_nodes()}
    for number, name in enumerate(flat.node_names):
        if number in result.removed or flat.called(number).op_type == "Constant":
            continue
        node = rewritten_nodes[name]
        reads = graph.reads[flat.input_start[number] : flat.input_start[number + 1]]
        writes = graph.writes[flat.output_start[number] : flat.output_start[number + 1]]
        inputs = () if node.op_type == "Cast" else zip(node.inputs, reads, strict=True)
        for value, vertex in (*inputs, *zip(node.outputs, writes, strict=True)):
            if vertex != ABSENT and value is not None:
                is_low = element(types[value]) == low
                assert is_low == result.painting.is_allow(vertex), f"{graph.name(vertex)} {value}"


@given(**ARGUMENTS)
@settings(max_examples=20, suppress_health_check=QUIET, derandomize=True)
def test_a_random_model_stays_valid_stable_and_close(**arguments: Any) -> None:
    check(**arguments)


@pytest.mark.slow
@given(**ARGUMENTS)
@settings(max_examples=3000, suppress_health_check=QUIET, derandomize=True)
def test_many_random_models_stay_valid_stable_and_close(**arguments: Any) -> None:
    check(**arguments)
