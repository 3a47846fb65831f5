"""Running a model: what may be fed and fetched, and what is said when it may not."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from amp_rewrite.errors import DataError
from amp_rewrite.numerics.emulate import Evaluator, evaluate

MODEL = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 17]>
g (float16[2,N] x) => (float16[2,N] y) {
  h = Mul(x, x)
  y = Sqrt(h)
}""")
X = np.array([[1, 2, 300]] * 2, np.float16)


def test_any_value_of_the_main_graph_can_be_fetched() -> None:
    found = evaluate(MODEL, {"x": X}, outputs=["h", "x", "y"])
    assert list(found) == ["h", "x", "y"]
    assert found["h"][0].tolist() == [1, 4, np.inf]
    assert found["x"].tolist() == X.tolist()
    assert {v.dtype for v in found.values()} == {np.dtype(np.float16)}


def test_an_evaluator_runs_many_batches_of_any_size() -> None:
    evaluator = Evaluator(MODEL, outputs=["h", "y"])
    assert evaluator.outputs == ("h", "y")
    assert list(evaluator.inputs) == ["x"]
    for n in (1, 5):
        found = evaluator.run({"x": np.full((2, n), 3, np.float16)}, outputs=["y"])
        assert found["y"].tolist() == [[3] * n] * 2


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({}, "the data lack the input 'x'; found nothing; expected x"),
        ({"x": X, "z": X}, "unknown feed 'z'; expected 'x'"),
        ({"x": X > 1}, r"the input 'x' .*found bool; expected float16; .*astype\('float16'\)"),
        ({"x": X[0]}, r"the input 'x' .*shape; found \[3\]; expected \[2, N\]"),
        ({"x": X.T}, r"the input 'x' .*shape; found \[3, 2\]; expected \[2, N\]"),
    ],
)
def test_a_wrong_feed_is_refused_in_one_line(feeds: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        evaluate(MODEL, feeds)


@pytest.mark.parametrize("emulate", [True, False])
def test_bfloat16_is_fed_and_returned_as_ml_dtypes(emulate: bool) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17]>'
        "g (bfloat16[N] x) => (bfloat16[N] y) { y = Identity(x) }"
    )
    x = np.array([1.5, 3e38], ml_dtypes.bfloat16)
    y = evaluate(model, {"x": x}, emulate=emulate)["y"]
    assert y.dtype == ml_dtypes.bfloat16
    assert (y == x).all()


def test_weights_in_files_are_streamed_to_the_session(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17]>'
        "g (float16[2000] x) => (float16[2000] y) { y = Mul(x, w) }"
    )
    weight = np.random.default_rng(0).standard_normal(2000).astype(np.float16)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, size_threshold=0)
    x = np.full(2000, 0.3, np.float16)
    assert (evaluate(path, {"x": x})["y"] == x * weight).all()
    assert sorted(p.name for p in tmp_path.iterdir()) != ["m.onnx"]


@pytest.mark.parametrize("same", ["Identity(t)", "Cast<to = 1>(t)", "Dropout(t)"])
@pytest.mark.parametrize("product", ["Mul(h, i)", "Mul(i, h)"])
def test_a_product_with_one_over_something_runs(same: str, product: str) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x, float[2] d) => (float[2] y) '
        f"<float one = {{1}}> {{ t = Relu(x) h = {same} i = Div(one, d) y = {product} }}"
    )
    feeds = {"x": np.array([2, 4], np.float32), "d": np.array([4, 2], np.float32)}
    assert evaluate(model, feeds)["y"].tolist() == [0.5, 2.0]
