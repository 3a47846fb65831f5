"""Products of a transposed tensor load in ONNX Runtime, whose fusion of the two is not complete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

import amp_rewrite as amp

TURNED = "t = Transpose<perm = [1, 0, 2]>(x)"
PRODUCTS = {
    "weight": f"{TURNED} y = MatMul(t, w)",
    "rows last": "t = Transpose<perm = [1, 2, 0]>(x) y = MatMul(t, v)",
    "right": f"{TURNED} y = MatMul(v, t)",
    "identity": f"{TURNED} i = Identity(t) y = MatMul(i, w)",
    "own cast": f"{TURNED} i = Cast<to = 10>(t) j = Cast<to = 1>(i) y = MatMul(j, w)",
    "two products": f"{TURNED} a = MatMul(t, w) b = MatMul(t, w) y = Add(a, b)",
    "fed": f"{TURNED} y = MatMul(t, f)",
    "vector": f"{TURNED} y = MatMul(t, c)",
    "vector, rows last": "t = Transpose<perm = [1, 2, 0]>(x) y = MatMul(c, t)",
    "vector of a sum": f"{TURNED} p = MatMul(t, c) y = Add(p, p)",
    "branch": "y = If(k) <then_branch = yes () => (float[3,5,2] p) "
    "{ t = Transpose<perm = [1, 0, 2]>(x) p = MatMul(t, w) }, "
    "else_branch = no () => (float[3,5,2] q) { u = Transpose<perm = [1, 0, 2]>(x) "
    "q = MatMul(u, w) }>",
    "two transposes": "a = Transpose<perm = [0, 2, 1]>(x) b = Transpose<perm = [2, 0, 1]>(a) "
    "t = Transpose<perm = [0, 1, 2]>(b) y = MatMul(t, g)",
}
SAFE = {
    "equal ranks": f"{TURNED} y = MatMul(t, d)",
    "last axes": "t = Transpose<perm = [0, 2, 1]>(x) y = MatMul(t, h)",
    "matrix": "m = Reshape(x, s) t = Transpose<perm = [1, 0]>(m) y = MatMul(t, n)",
    "between": f"{TURNED} r = Relu(t) y = MatMul(r, w)",
}


def model(body: str, opset: int = 20, low: bool = False) -> onnx.ModelProto:
    text = (
        f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[5,3,4] x, bool k, float[4,2] f, '
        "float[3,4,2] d) => (float[_,_,_] y) <float[4,2] w = {1, 2, 3, 4, 5, 6, 7, 8}, "
        "float[5,5] v, float[4,2] g, float[3,2] h, float[15,2] n, float[4] c, "
        "int64[2] s = {15, 4}> "
        f"{{ {body} }}"
    )
    if low:
        text = text.replace("float[", "float16[")
    made = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    del made.graph.initializer[1:-1]
    for name, shape in (
        ("v", (5, 5)),
        ("g", (4, 2)),
        ("h", (3, 2)),
        ("n", (15, 2)),
        ("c", (4,)),
    ):
        array = rng.normal(size=shape).astype(np.float16 if low else np.float32)
        made.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    if any(read in body for read in ("perm = [1, 0]>", "(t, c)", "(c, t)")):
        del made.graph.output[0].type.tensor_type.shape.dim[0]
    return made


def computed(content: bytes, level: Any) -> Any:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level, options.log_severity_level = level, 4
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(1)
    feeds = {"x": (5, 3, 4), "f": (4, 2), "d": (3, 4, 2)}
    low = session.get_inputs()[0].type == "tensor(float16)"
    dtype = np.float16 if low else np.float32
    given: dict[str, Any] = {n: rng.normal(size=s).astype(dtype) for n, s in feeds.items()}
    given["k"] = np.array(True)
    return session.run(None, given)[0]


@pytest.mark.parametrize("name", PRODUCTS)
def test_operands_get_one_rank_and_the_file_loads(name: str, tmp_path: Path) -> None:
    path, again = tmp_path / "result.onnx", tmp_path / "again.onnx"
    result = amp.rewrite(model(PRODUCTS[name]), precision="float16", target="schema")
    result.save(path)
    assert result.plan.ranks
    levels = onnxruntime.GraphOptimizationLevel
    plain = computed(path.read_bytes(), levels.ORT_DISABLE_ALL)
    fused = computed(path.read_bytes(), levels.ORT_ENABLE_ALL)  # without it, the process ends here
    np.testing.assert_allclose(fused, plain, rtol=2e-3, atol=2e-2)
    onnx.checker.check_model(path, full_check=True)
    amp.rewrite(path, precision="float16", target="schema").save(again)
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.share(5, each="name")
@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("kept", [True, False], ids=["convert", "repair"])
def test_a_file_that_is_low_already_loads_too(name: str, kept: bool, tmp_path: Path) -> None:
    body = PRODUCTS[name].replace("= 10>", "= 0>").replace("= 1>", "= 10>").replace("= 0>", "= 1>")
    given, path = model(body, low=True), tmp_path / "result.onnx"
    if kept:
        made = amp.rewrite(given, precision="float16", target="webgpu")
        assert made.changed
        assert "of equal rank, which ONNX Runtime" in made.report.to_text()
    else:
        made = amp.repair(given, target="webgpu")
        assert "of equal rank, which ONNX Runtime" in made.to_text()
    amp.save(made, path)
    levels = onnxruntime.GraphOptimizationLevel
    plain = computed(path.read_bytes(), levels.ORT_DISABLE_ALL)
    fused = computed(path.read_bytes(), levels.ORT_ENABLE_ALL)  # without it, the process ends here
    np.testing.assert_allclose(fused, plain, rtol=2e-3, atol=2e-2)
    onnx.checker.check_model(onnx.load(path), full_check=True)


@pytest.mark.parametrize("function", ["MatMul", "com.microsoft.FusedMatMul"])
def test_what_no_rewrite_touches_loads(function: str) -> None:
    given = model(f"{TURNED} y = {function}(t, c)", low=True)
    given.opset_import.add(domain="com.microsoft", version=1)
    made = amp.to_proto(amp.rewrite(given, target="cuda").model)
    assert [n.op_type for n in made.graph.node if n.op_type.endswith("queeze")]
    computed(made.SerializeToString(), onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL)


@pytest.mark.parametrize("name", SAFE)
def test_other_products_stay_as_they_are(name: str) -> None:
    result = amp.rewrite(model(SAFE[name]), precision="float16", target="schema")
    assert result.plan.vertices
    assert not result.plan.ranks


def test_the_axes_are_an_attribute_before_opset_13() -> None:
    result = amp.rewrite(model(PRODUCTS["weight"], opset=12), precision="float16", target="schema")
    proto = amp.to_proto(result.model)
    (added,) = (n for n in proto.graph.node if n.op_type == "Unsqueeze")
    assert [*added.attribute[0].ints] == [0]
    onnx.checker.check_model(proto, full_check=True)


def test_two_types_with_no_cast_between_are_left_to_bfloat16() -> None:
    result = amp.rewrite(model(PRODUCTS["weight"]), precision="bfloat16", target="schema")
    assert not result.plan.ranks


def test_openvino_does_not_meet_the_defect() -> None:
    result = amp.rewrite(model(PRODUCTS["weight"]), precision="bfloat16", target="openvino")
    assert not result.plan.ranks
