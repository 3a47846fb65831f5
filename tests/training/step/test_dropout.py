"""Dropout from a counter: right share, independent, resumable, gone in inference."""

from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import parser

from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.io.save import to_proto
from amp_rewrite.optimizers import GradientDescent
from amp_rewrite.training.graph.training_graph import value
from amp_rewrite.training.session.training_session import TrainingSession
from amp_rewrite.training.step.dropout import (
    COUNTER,
    remove_dropouts,
    replace_dropouts,
)

TEXT = """<ir_version: 8, opset_import: ["": 17]>
    g (float[N, M] x) => (float[N, M] y, bool[N, M] mask)
    <float ratio = {%s}, bool training = {1}> { y, mask = Dropout (x, ratio, training) }"""


def runner(ratio=0.25, seed=0):
    model = load(parser.parse_model(TEXT % ratio))
    states = replace_dropouts(model, seed)
    assert [s.name for s in states] == [COUNTER]
    run: Any = onnxruntime.InferenceSession(to_proto(model).SerializeToString()).run
    return lambda x, step: run(["y", "mask"], {"x": x, COUNTER: np.array(step, np.int64)})


@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.25, 0.5, 0.9])
def test_the_share_that_is_dropped_is_the_ratio(ratio):
    x = np.ones((512, 512), np.float32)
    y, mask = runner(ratio)(x, 3)
    assert abs(1 - mask.mean() - ratio) < 8 * np.sqrt(ratio * (1 - ratio) / x.size) + 1e-12
    np.testing.assert_allclose(y, mask / np.float32(1 - ratio), rtol=1e-6)


def test_masks_depend_on_the_step_and_on_nothing_else():
    x, run = np.ones((64, 64), np.float32), runner()
    first = run(x, 1)[1]
    np.testing.assert_array_equal(first, run(2 * x, 1)[1])
    np.testing.assert_array_equal(first, runner()(x, 1)[1])
    assert (first != run(x, 2)[1]).mean() == pytest.approx(2 * 0.25 * 0.75, abs=0.05)


def test_neighbours_rows_and_steps_are_uncorrelated():
    run, x = runner(0.5), np.ones((256, 1024), np.float32)
    masks = np.stack([run(x, step)[1] for step in range(8)]).astype(np.float64) * 2 - 1
    limit = 6 / np.sqrt(x.size)
    for axis in (0, 1, 2):
        for shift in (1, 2, 3, 5):
            product = (masks * np.roll(masks, shift, axis)).mean(axis=(1, 2))
            assert np.abs(product).max() < limit, (axis, shift)
    assert np.abs(masks.mean(axis=2)).max() < 6 / np.sqrt(1024)
    assert np.abs(masks.mean(axis=1)).max() < 6 / np.sqrt(256)


def test_two_dropouts_and_two_seeds_draw_different_masks():
    text = """<ir_version: 8, opset_import: ["": 17]>
        g (float[N] x) => (bool[N] a, bool[N] b) <float ratio = {0.5}, bool training = {1}> {
            y, a = Dropout (x, ratio, training)
            z, b = Dropout (y, ratio, training)
        }"""
    x, masks = np.ones(4096, np.float32), []
    for seed in (0, 1):
        model = load(parser.parse_model(text))
        replace_dropouts(model, seed)
        run: Any = onnxruntime.InferenceSession(to_proto(model).SerializeToString()).run
        masks += run(["a", "b"], {"x": x})
    for i in range(4):
        for j in range(i):
            assert (masks[i] != masks[j]).mean() == pytest.approx(0.5, abs=0.06)


def test_dropout_that_does_not_train_stays():
    model = load(parser.parse_model(TEXT.replace("{1}", "{0}") % 0.5))
    assert replace_dropouts(model) == []
    assert [node.op_type for node in model.graph] == ["Dropout"]


def test_inference_lets_the_data_through():
    model = load(parser.parse_model(TEXT.replace(", bool[N, M] mask)", ")") % 0.5))
    model.graph.append(ir.node("Neg", [model.graph.outputs[0]], name="after"))
    replace_dropouts(model)
    remove_dropouts(model)
    after = next(node for node in model.graph if node.name == "after")
    through = after.inputs[0].producer()
    assert through.op_type == "Identity"
    assert through.inputs[0] is model.graph.inputs[0]


CHAIN = """<ir_version: 8, opset_import: ["": 17]>
    g (float[N] x) => (float loss) <float[4] w = {1, 1, 1, 1}, float[4] frozen = {1, 1, 1, 1}> {
        a = Mul (x, w)
        b = Dropout (a)
        c = Dropout (b)
        d = Dropout (frozen)
        y = Mul (c, d)
        loss = ReduceSum<keepdims = 0> (y)
    }"""


def test_evaluation_drops_nothing_whatever_dropout_reads_and_whatever_is_fetched():
    model = load(parser.parse_model(CHAIN))
    op = GradientDescent(0.0).minimize(value(model, "loss"), var_list=["w"])
    feeds = {"x": np.arange(1, 5, dtype=np.float32)}
    with TrainingSession(op) as session:
        dropped = [session.run(feeds, ["c"])["c"] for _ in range(5)]
        found = session.evaluate(feeds, ["b", "c", "d", "y", "loss"])
    assert all((c == 0).any() for c in dropped)
    for name in ("b", "c", "y"):
        np.testing.assert_array_equal(found[name], feeds["x"])
    np.testing.assert_array_equal(found["d"], np.ones(4))
    assert found["loss"] == 10
