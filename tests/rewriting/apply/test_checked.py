"""onnx's checker decides about a rewritten model before its file appears."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.errors import InvariantError

GRAPH = """g (float[2, 8] x) => (float[2, 8] y) {
    m = MatMul (x, w)
    s = Reshape (m, shape)
    r = Relu (s)
    y = MatMul (r, w)
}"""
CALLING = """<ir_version: 10, opset_import: ["" : 21, "own" : 1]>
g (float[2, 8] x) => (float[2, 8] y) { m = MatMul (x, w)  r = own.f (m)  y = MatMul (r, w) }
<domain: "own", opset_import: ["" : 21]> f (a) => (b) { b = Relu (a) }"""


def model(text: str = GRAPH) -> onnx.ModelProto:
    made = parse(text)
    weights = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    made.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    if "shape" in text:
        made.graph.initializer.append(numpy_helper.from_array(np.array([2, 8]), "shape"))
    return made


def spoiled(source: Path) -> amp.RewriteResult:
    """Return a rewrite whose casts were lost: float32 goes into products with float16."""
    result = amp.rewrite(source, target="schema")
    return replace(result, plan=replace(result.plan, casts=()))


@pytest.mark.parametrize("text", [GRAPH, CALLING], ids=["file", "with functions"])
@pytest.mark.parametrize("outside", [False, True], ids=["inline", "external"])
def test_an_invalid_result_is_not_written(text: str, outside: bool, tmp_path: Path) -> None:
    source, output = tmp_path / "m.onnx", tmp_path / "out.onnx"
    onnx.save(model(text), source, save_as_external_data=outside, size_threshold=0)
    amp.rewrite(source, target="schema").save(output)
    onnx.checker.check_model(onnx.load(output), full_check=True)
    before, files = output.read_bytes(), sorted(tmp_path.iterdir())
    with pytest.raises(InvariantError, match=r"the rewritten model is not valid: .*MatMul"):
        spoiled(source).save(output)
    assert output.read_bytes() == before
    assert sorted(tmp_path.iterdir()) == files


def test_the_fault_of_the_source_is_no_fault_of_the_result(tmp_path: Path) -> None:
    source, output = tmp_path / "m.onnx", tmp_path / "out.onnx"
    made = model()
    made.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 3
    onnx.save(made, source)
    amp.rewrite(source, target="schema").save(output)
    assert amp.load(output).graph.all_nodes()


def test_a_constant_node_moves_with_weights_that_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amp_rewrite.graph.io.content.INLINE_LIMIT", 2048)
    weights = np.random.default_rng(0).normal(size=(32, 32)).astype(np.float32)
    made = parse("g (float[2, 32] x) => (float[2, 32] y) { m = MatMul (x, w)  y = MatMul (m, c) }")
    made.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    constant = onnx.helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(weights))
    made.graph.node.insert(0, constant)
    amp.rewrite(made).save(tmp_path / "out.onnx")
    (data,) = tmp_path.glob("out.onnx.*.data")
    assert data.stat().st_size == 2 * 2048
    onnx.checker.check_model(tmp_path / "out.onnx", full_check=True)
    made.graph.node[-1].name = "last"  # what stays in a node takes room in the model file
    amp.rewrite(made, deny_nodes=["last"]).save(tmp_path / "kept.onnx")
    (data,) = tmp_path.glob("kept.onnx.*.data")
    assert data.stat().st_size == 2048
    onnx.checker.check_model(tmp_path / "kept.onnx", full_check=True)
