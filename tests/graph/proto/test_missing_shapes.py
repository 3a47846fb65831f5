"""Shapes that a file does not record are inferred, once, and without its weights."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.shape_inference
import pytest
from onnx import numpy_helper
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.graph.flat import FlatGraph
from amp_rewrite.graph.io.read_flat import read_flat


def shapes(flat: FlatGraph) -> dict[str, list[int | None] | None]:
    """Return the shapes of a model's values by name."""
    found = ((name, flat.shape(v)) for v, name in enumerate(flat.value_names))
    return {name: None if shape is None else list(shape) for name, shape in found}


SOURCE = """g (float[N,6] x, bool c) => (float[N,2,3] y) {
    h = Add(x, x)
    r = Reshape(h, shape)
    z = If (c) <
        then_branch = t () => (float[N,2,3] a) { u = Relu(r) a = Neg(u) },
        else_branch = e () => (float[N,2,3] b) { u = Abs(r) w = Softmax(u) b = Neg(w) }
    >
    y = Mul(z, z)
}"""


def model() -> onnx.ModelProto:
    source = parse(SOURCE)
    source.graph.initializer.append(numpy_helper.from_array(np.array([-1, 2, 3]), "shape"))
    return source


def test_shapes_are_inferred_in_every_graph() -> None:
    flat = read_flat(model())
    assert "inferred_shapes" not in vars(flat)
    found = shapes(flat)
    assert found["h"] == [None, 6]
    assert [found[name] for name in ("r", "u", "w", "z")] == [[None, 2, 3]] * 4
    assert flat.recorded_shape(flat.value_names.index("h")) is None


def test_lengths_that_the_user_says_count() -> None:
    flat = read_flat(model())
    flat.lengths = {"N": 5}
    assert (shapes(flat)["x"], shapes(flat)["h"]) == ([5, 6], [5, 6])


def test_a_file_that_records_every_shape_is_not_inferred() -> None:
    flat = read_flat(parse("g (float[N,6] x) => (float[N,6] y) { y = Relu(x) }"))
    assert shapes(flat) == {"x": [None, 6], "y": [None, 6]}
    assert "inferred_shapes" not in vars(flat)


@pytest.mark.parametrize("held", ["initializer", "Constant"])
def test_weights_are_not_read(held: str) -> None:
    source = parse("g (float[N,600] x) => (float[N,m] y) { h = MatMul(x, w) y = Relu(h) }")
    weight = numpy_helper.from_array(np.zeros((600, 300), np.float32), "w")
    if held == "Constant":
        source.graph.node.insert(0, onnx.helper.make_node("Constant", [], ["w"], value=weight))
    else:
        source.graph.initializer.append(weight)
    flat = read_flat(source)
    assert shapes(flat)["h"] == [None, 300]


def test_a_model_that_onnx_cannot_infer_has_the_shapes_that_it_records() -> None:
    source = parse("g (float[2,3] x) => (float[2,3] y) { h = MatMul(x, x) y = Add(h, x) }")
    flat = read_flat(source)
    assert shapes(flat)["x"] == [2, 3]


def test_a_model_is_painted_as_with_its_shapes() -> None:
    """A mean over 1,000 elements is a long sum for WebGPU, and one over 4 is none."""
    source = parse(
        """g (float[1,n] x) => (float[1,8] y)
        { a = MatMul(x, w) b = Reshape(a, shape) m = ReduceMean(b, axis) y = MatMul(m, v) }"""
    )
    rng = np.random.default_rng(0)
    for name, array in {
        "w": rng.standard_normal((64, 256)).astype(np.float32) / 8,
        "v": rng.standard_normal((64, 8)).astype(np.float32) / 8,
        "shape": np.array([1, 4, 64]),
        "axis": np.array([1]),
    }.items():
        source.graph.initializer.append(numpy_helper.from_array(array, name))
    with_shapes = onnx.shape_inference.infer_shapes(source)
    for target in ("webgpu", "cuda"):
        marks = [
            {n.name: {k: (v.dtype, v.reason) for k, v in n.variables.items()} for n in r.nodes}
            for r in (amp.rewrite(m, target=target).report for m in (source, with_shapes))
        ]
        assert marks[0] == marks[1]
