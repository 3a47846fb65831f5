"""What is exported infers as `evaluate` does, whatever mode Dropout and BatchNormalization had."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser

import amp_rewrite as amp

RNG = np.random.default_rng(0)
X = (RNG.standard_normal((8, 4)) * 2 + 1).astype(np.float32)
T = RNG.integers(0, 3, 8)

NORM = "BatchNormalization <training_mode = 1, momentum = 0.5>"

BODIES = {
    "dropout": "d = Dropout (h, half, tr) y = MatMul (d, v)",
    "dropout with a mask": "d, mask = Dropout (h, half, tr) y = MatMul (d, v)",
    "dropout, constant": "on = Constant <value = bool {1}> () d = Dropout (h, half, on) "
    "y = MatMul (d, v)",
    "dropout without a ratio": "d = Dropout (h, , tr) y = MatMul (d, v)",
    "dropout that infers": "d = Dropout (h, half) y = MatMul (d, v)",
    "two dropouts": "c = Dropout (h, half, tr) d = Dropout (c, half, tr) y = MatMul (d, v)",
    "norm": f"n, m1, v1 = {NORM} (h, one, zero, zero, one) y = MatMul (n, v)",
    "norm that infers": "n = BatchNormalization (h, one, zero, zero, one) y = MatMul (n, v)",
    "norm and its statistics": f"n, m1, v1 = {NORM} (h, one, zero, zero, one) k = Add (m1, v1) "
    "z = Mul (n, k) y = MatMul (z, v)",
    "norm and dropout": f"n, m1, v1 = {NORM} (h, one, zero, zero, one) r = Relu (n) "
    "d = Dropout (r, half, tr) y = MatMul (d, v)",
    "dropout in a branch": "yes = Constant <value = bool {1}> () b = If (yes) <"
    "then_branch = t () => (float[N, 4] d) { d = Dropout (x, half, tr) }, "
    "else_branch = e () => (float[N, 4] k) { k = Identity (x) }> z = MatMul (b, w) "
    "y = MatMul (z, v)",
    "norm in a branch": "yes = Constant <value = bool {1}> () b = If (yes) <"
    f"then_branch = t () => (float[N, 5] n) {{ n, m1, v1 = {NORM} (h, one, zero, zero, one) }}, "
    "else_branch = e () => (float[N, 5] k) { k = Identity (h) }> y = MatMul (b, v)",
    "dropout in a function": "d = own.thin (h) y = MatMul (d, v)",
    "norm in a function": "n = own.norm (h, one, zero) y = MatMul (n, v)",
}
FUNCTIONS = f"""
<domain: "own", opset_import: ["" : OPSET]> thin (x) => (y) {{
  half = Constant <value = float {{0.5}}> () on = Constant <value = bool {{1}}> ()
  y = Dropout (x, half, on) }}
<domain: "own", opset_import: ["" : OPSET]> norm (x, s, b) => (y) {{
  y, m, v = {NORM} (x, s, b, b, s) }}
"""


def model(body: str, opset: int = 17) -> onnx.ModelProto:
    text = f"""<ir_version: 8, opset_import: ["" : {opset}, "own" : 1]>
        g (float[N, 4] x) => (float[N, 3] y) {{ h = MatMul (x, w) {body} }}"""
    functions = FUNCTIONS.replace("OPSET", str(opset)) if "own" in body else ""
    made = parser.parse_model(text + functions)
    generator = np.random.default_rng(1)
    tensors: dict[str, Any] = {
        "w": generator.standard_normal((4, 5)).astype(np.float32),
        "v": generator.standard_normal((5, 3)).astype(np.float32),
        "one": np.ones(5, np.float32),
        "zero": np.zeros(5, np.float32),
        "half": np.float32(0.5),
        "tr": np.array(True),
    }
    made.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(array), name)
        for name, array in tensors.items()
        if name in body or name in "wv"
    )
    return made


def run(exported: Any, x: Any = X, names: Any = ("y",)) -> list[Any]:
    data = amp.to_proto(exported).SerializeToString()
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    return [np.asarray(each) for each in session.run(list(names), {"x": x})]


@pytest.mark.parametrize(
    ("kind", "opset"),
    [(kind, opset) for kind in BODIES for opset in (17 if "function" in kind else 15, 22)],
)
def test_an_exported_model_infers_as_evaluate_does(kind: str, opset: int, tmp_path: Any) -> None:
    loaded = amp.load(model(BODIES[kind], opset))
    loss = amp.losses.softmax_cross_entropy(loaded, "y", "t")
    step = amp.optimizers.Adam(1e-2).minimize(loss)
    with amp.TrainingSession(step, threads=1) as session:
        for _ in range(3):
            session.run({"x": X, "t": T})
        expected = session.evaluate({"x": X, "t": T}, ["y"])["y"]
        exported, kept = session.export(), session.export(training_mode=True)
        session.save(tmp_path / "c.safetensors")
    (found,) = run(exported)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(run(exported, X[:3])[0], found[:3], rtol=1e-5, atol=1e-5)
    given, same = (amp.to_proto(each).graph.node for each in (loaded, kept))
    assert [n.SerializeToString() for n in same] == [n.SerializeToString() for n in given]
    amp.save(amp.build_step(step), tmp_path / "step.onnx")
    with amp.TrainingSession(tmp_path / "step.onnx", threads=1) as session:
        session.restore(tmp_path / "c.safetensors")
        np.testing.assert_array_equal(run(session.export())[0], found)


def test_a_mode_with_a_default_is_off_by_default() -> None:
    made = model(BODIES["dropout"])
    made.graph.input.append(onnx.helper.make_tensor_value_info("tr", onnx.TensorProto.BOOL, []))
    loss = amp.losses.softmax_cross_entropy(amp.load(made), "y", "t")
    with amp.TrainingSession(amp.optimizers.SGD(0.1).minimize(loss)) as session:
        session.run({"x": X, "t": T})
        expected = session.evaluate({"x": X}, ["y"])["y"]
        exported = session.export()
    np.testing.assert_allclose(run(exported)[0], expected, rtol=1e-5)
    np.testing.assert_array_equal(run(exported)[0], run(exported)[0])


def test_a_mode_that_is_fed_stays_the_callers() -> None:
    made = model("d = Dropout (h, half, mode) y = MatMul (d, v)")
    made.graph.input.append(onnx.helper.make_tensor_value_info("mode", onnx.TensorProto.BOOL, []))
    loss = amp.losses.softmax_cross_entropy(amp.load(made), "y", "t")
    with amp.TrainingSession(amp.optimizers.SGD(0.1).minimize(loss)) as session:
        session.run({"x": X, "t": T, "mode": np.array(True)})
        exported = amp.to_proto(session.export())
    (dropout,) = (node for node in exported.graph.node if node.op_type == "Dropout")
    assert dropout.input[2] == "mode"
