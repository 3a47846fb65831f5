"""onnx's checker decides about a rewritten model before its file appears."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.errors import InvariantError
from amp_rewrite.graph.io.checker import checker_fault, type_fault

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


@pytest.mark.parametrize("many", [2_000, 0], ids=["all nodes", "one of each kind"])
@pytest.mark.parametrize("text", [GRAPH, CALLING], ids=["file", "with functions"])
@pytest.mark.parametrize("outside", [False, True], ids=["inline", "external"])
def test_an_invalid_result_is_not_written(
    text: str, outside: bool, many: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amp_rewrite.rewriting.apply.save_rewritten.MANY_NODES", many)
    source, output = tmp_path / "m.onnx", tmp_path / "out.onnx"
    onnx.save(model(text), source, save_as_external_data=outside, size_threshold=0)
    amp.rewrite(source, target="schema").save(output)
    onnx.checker.check_model(onnx.load(output), full_check=True)
    before, files = output.read_bytes(), sorted(tmp_path.iterdir())
    with pytest.raises(InvariantError, match=r"the rewritten model is not valid: .*MatMul"):
        spoiled(source).save(output)
    assert output.read_bytes() == before
    assert sorted(tmp_path.iterdir()) == files


HOLDING = """g (float[2,32] x) => (float[2,32] y, float[32,32] k) {{
    k = Constant<value = float[32,32] {{{numbers}}}>()
    w = Constant<value = float[32,32] {{{numbers}}}>()
    a = MatMul(x, w) b = Relu(a) y = MatMul(b, k) }}"""


@pytest.mark.parametrize("many", [2_000, 0], ids=["all nodes", "one of each kind"])
def test_long_constants_are_inputs_for_the_checker(
    many: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = list[int]()

    def fault(content: bytes, **_: bool) -> str | None:
        sizes.append(len(content))
        return checker_fault(content, **_)

    monkeypatch.setattr("amp_rewrite.rewriting.apply.checked.checker_fault", fault)
    monkeypatch.setattr("amp_rewrite.rewriting.apply.save_rewritten.MANY_NODES", many)
    source, output = tmp_path / "m.onnx", tmp_path / "out.onnx"
    onnx.save(parse(HOLDING.format(numbers=", ".join(["0.5"] * 1024))), source)
    amp.rewrite(source, target="schema").save(output)
    assert sizes[-1] < 1024 * 4 + 1000  # the output k stays
    onnx.checker.check_model(onnx.load(output), full_check=True)
    with pytest.raises(InvariantError, match=r"the rewritten model is not valid: .*MatMul"):
        spoiled(source).save(output)


def test_the_fault_of_the_source_is_no_fault_of_the_result(tmp_path: Path) -> None:
    source, output = tmp_path / "m.onnx", tmp_path / "out.onnx"
    made = model()
    made.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 3
    onnx.save(made, source)
    amp.rewrite(source, target="schema").save(output)
    assert amp.load(output).graph.all_nodes()


def test_what_nothing_changes_is_not_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault_of(*_: object) -> str:
        raise AssertionError("nothing has changed")

    monkeypatch.setattr("amp_rewrite.rewriting.apply.save_rewritten.fault_of", fault_of)
    source, output = tmp_path / "m.onnx", tmp_path / "out.onnx"
    onnx.save(model(), source)
    amp.rewrite(source, target="schema", deny_nodes=["*"]).save(output)
    assert output.is_file()


MANY = """<ir_version: 10, opset_import: ["" : 21]>
g (float[4, 8] x, float[4, 4] keep, int64[4] i) => (float[4, 8] y, float[4, 4] p) {{
{layers}
    n = Sub (keep, one)  far = Mul (n, lowest)  t = Transpose (x{end})  s = MatMul (x{end}, t)
    m = Add (s, far)  p = Softmax (m)  y = MatMul (p, x{end})
}}"""
LAYER = (
    "l{i} = LayerNormalization (x{j}, g, b)  h{i} = MatMul (l{i}, w)  c{i} = Cast<to = 1> (h{i})"
)
NEXT = "  r{i} = Relu (c{i})  q{i} = Gather (r{i}, i)  x{i} = Add (q{i}, x{j})"


@pytest.mark.share(3)
@pytest.mark.parametrize("declared", [False, True], ids=["no shapes", "shapes"])
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_of_many_nodes_inference_gets_one_of_each_kind(
    precision: Literal["float16", "bfloat16"],
    declared: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layers = LAYER + NEXT
    lines = [layers.format(i=k + 1, j=k) for k in range(400)]
    made = parse(MANY.format(layers="\n".join(lines), end=400).replace("x0", "x"))
    numbers = {"w": np.eye(8) / 4, "g": np.ones(8), "b": np.zeros(8), "one": 1.0, "lowest": 3.4e38}
    tensors = [numpy_helper.from_array(np.asarray(v, np.float32), k) for k, v in numbers.items()]
    made.graph.initializer.extend(tensors)
    source, output = tmp_path / "m.onnx", tmp_path / "out.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(made) if declared else made, source)
    sizes = list[int]()

    def seen(content: bytes) -> str | None:
        sizes.append(len(onnx.load_from_string(content).graph.node))
        return type_fault(content)

    monkeypatch.setattr("amp_rewrite.rewriting.apply.checked.type_fault", seen)
    amp.rewrite(source, precision=precision, target="schema").save(output)
    assert 3 < sizes[0] < 30
    onnx.checker.check_model(onnx.load(output), full_check=True)
