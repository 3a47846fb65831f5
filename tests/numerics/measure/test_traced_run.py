"""What an engine runs, told in nodes of the float32 model."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.kernels.costs import UNKNOWN
from amp_rewrite.numerics.measure.measured_costs import as_ran, table_of
from amp_rewrite.numerics.measure.traced_run import (
    TracedRun,
    counted_behind,
    traced_original,
    traced_result,
)
from amp_rewrite.numerics.measured_conversion import computed_otherwise
from amp_rewrite.rewriting.api import RewriteResult
from amp_rewrite.runtimes.session import RanNode
from amp_rewrite.targets import CPU

ONES = "{" + ", ".join(["1"] * 64) + "}"
BIAS = "{1, 1, 1, 1, 1, 1, 1, 1}"
MODEL = f"""g (float[4,8] x) => (float[4,8] y) <float[8,8] w = {ONES}, float[8] b = {BIAS}> {{
    h = MatMul(x, w) a = Add(h, b) c = Identity(a) s = Softmax(c) t = Tanh(s) y = MatMul(t, w) }}"""
IMAGES = f"""g (float[1,8,6,6] x) => (float[1,8,6,6] y) <float[8,8,1,1] w = {ONES}> {{
    h = Conv(x, w) a = Relu(h) y = Conv(a, w) }}"""


def rewritten(text: str = MODEL) -> RewriteResult:
    return amp.rewrite(parse(text), target="schema", costs=UNKNOWN)


def runs_of(result: RewriteResult, shape: tuple[int, ...] = (4, 8)) -> list[TracedRun]:
    feeds = {"x": np.ones(shape, np.float32)}
    found: list[TracedRun] = []
    for make in (traced_original, traced_result):
        model = make(result, CPU)
        for _ in range(3):
            model.run(feeds)
        found.append(model.traced())
        assert model.evaluator.run(feeds)["y"].shape == shape  # it still runs as a whole
    return found


def owned(run: TracedRun) -> dict[str, str]:
    """Return first result -> the engine's operator that computes its node."""
    flat = run.flat
    return {
        flat.value_names[flat.outputs_of(node)[0]]: run.nodes[owner].op
        for node, owner in run.owners.items()
    }


def test_fused_and_dropped_nodes_belong_to_what_computes_them() -> None:
    full, low = runs_of(rewritten())
    assert owned(full) == {
        "h": "FusedGemm",
        "a": "FusedGemm",
        "c": "Softmax",
        "s": "Softmax",
        "t": "Tanh",
        "y": "MatMul",
    } or owned(full)["h"] in ("Gemm", "MatMul")
    assert owned(full).keys() == owned(low).keys() == {*"hacsty"}
    for run in (full, low):
        taken = sum(run.microseconds[owner] for owner in run.groups)
        taken += sum(run.around.values())
        assert sum(run.times.values()) == pytest.approx(taken)


def test_what_an_engine_adds_counts_for_the_node_behind_it() -> None:
    own = parse("g (float[2] x) => (float[2] y) { h = Exp(x) y = Tanh(h) }")
    flat = amp.rewrite(own, target="schema").flat
    ran = [RanNode(name, "", "", 0) for name in ("change", "n0", "change", "cast", "n1", "change")]
    taken = (1.0, 10.0, 2.0, 4.0, 20.0, 8.0)
    owners = {0: 1, 1: 4}
    around = counted_behind([1.0, None, 2.0, None, None, 8.0], {1, 4})
    run = TracedRun(flat, tuple(ran), taken, owners, {"cast": 4.0}, around)
    assert run.times == {0: 11.0, 1: 30.0}
    assert counted_behind([3.0], set()) == {}


def test_nodes_of_another_layout_are_found_by_what_they_stand_for() -> None:
    full, _ = runs_of(rewritten(IMAGES), (1, 8, 6, 6))
    assert owned(full) == {"h": "Conv", "a": "Conv", "y": "Conv"}
    assert len(full.groups) == 2


def test_casts_that_were_added_are_told_apart_from_nodes_of_the_model() -> None:
    _, low = runs_of(rewritten())
    assert all(low.flat.value_names.count(name) == 0 or name == "y" for name in low.casts)


def test_a_table_has_what_nodes_took_and_which_ran_as_one() -> None:
    result = rewritten()
    full, low = runs_of(result)
    table = table_of(CPU, result, None, full, low)
    assert table.nodes.keys() == {*"hacsty"}
    assert all({"float32", "float16"} == taken.keys() for taken in table.nodes.values())
    assert {row.to for row in table.casts} == {"float32", "float16"}
    assert all(row.rate.call > 0 or row.rate.element > 0 for row in table.casts)
    assert table.runtime.startswith("onnxruntime ")
    again = as_ran(table, result, low)
    for name, taken in again.nodes.items():  # the low run is where its times in float16 are from
        assert taken["float16"] == table.nodes[name]["float16"], name


def test_what_is_computed_in_another_type_than_the_file_says_is_told() -> None:
    result = rewritten()
    [line] = computed_otherwise(result, runs_of(result)[1])
    assert line.startswith("the file says float16, the engine computed in float32: 1 MatMul (")
    full = amp.rewrite(parse(MODEL), target="cpu")
    assert not computed_otherwise(full, runs_of(full)[1])


def test_the_model_that_is_traced_is_not_changed() -> None:
    model = parse(MODEL)
    before = onnx.ModelProto()
    before.CopyFrom(model)
    result = amp.rewrite(model, target="schema", costs=UNKNOWN)
    names = [node.name for node in result.model.graph]
    runs_of(result)
    assert [node.name for node in result.model.graph] == names
    assert model == before
