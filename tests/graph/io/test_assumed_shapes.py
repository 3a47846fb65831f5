"""Shapes of all values, with lengths in the place of free dimensions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper
from rewrite_text import parse

from amp_rewrite.graph.flat import FlatGraph
from amp_rewrite.graph.flat_model import FlatModel
from amp_rewrite.graph.io.assumed_shapes import BATCH, LENGTH, assumed_elements, assumed_shapes
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.graph.metadata_keys import BATCH_KEY
from amp_rewrite.rewriting.read_source import read_source


def shapes(flat: FlatGraph) -> dict[str, list[int | None]]:
    return {flat.value_names[v]: list(shape) for v, shape in assumed_shapes(flat).items()}


def elements(flat: FlatGraph) -> dict[str, int]:
    counts = assumed_elements(flat, assumed_shapes(flat)).tolist()
    return dict(zip(flat.value_names, counts, strict=True))


def model(text: str, **arrays: np.ndarray) -> onnx.ModelProto:
    made = parse(text)
    made.graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in arrays.items())
    return made


PRODUCT = "g (float[N,T,8] x) => (float[N,T,4] y) { h = MatMul(x, w) y = Reshape(h, s) }"
WEIGHT = np.ones((8, 4), np.float32)
SHAPE = np.array([0, -1, 4])


def test_free_dimensions_are_a_batch_and_lengths() -> None:
    found = shapes(read_flat(model(PRODUCT, w=WEIGHT, s=SHAPE)))
    assert found["x"] == [BATCH, LENGTH, 8]
    assert found["h"] == [BATCH, LENGTH, 4]
    assert found["y"] == [BATCH, LENGTH, 4]


@pytest.mark.parametrize(("said", "batch"), [("16", 16), ("many", BATCH), ("-1", BATCH)])
def test_a_model_may_say_what_a_batch_counts(said: str, batch: int) -> None:
    proto = model(PRODUCT, w=WEIGHT, s=SHAPE)
    proto.metadata_props.add(key=BATCH_KEY, value=said)
    for flat in (read_flat(proto), FlatModel.of(ir.from_proto(proto))):
        assert shapes(flat)["h"] == [batch, LENGTH, 4]


def test_recorded_shapes_without_a_free_dimension_count() -> None:
    text = "g (float[2,8] x) => (float[2,8] y) <float[2,8] h> { h = Custom(x) y = Relu(h) }"
    found = shapes(read_flat(parse(text.replace("Custom", "custom.Odd"))))
    assert found == {"x": [2, 8], "y": [2, 8], "h": [2, 8]}


def test_an_unknown_value_is_as_large_as_the_largest_that_its_node_reads() -> None:
    text = "g (float[2,8] x, float[3] z) => (y) { h = custom.Odd(x, z) y = Relu(h) }"
    flat = read_flat(parse(text))
    assert "h" not in shapes(flat)
    assert elements(flat) == {"x": 16, "z": 3, "h": 16, "y": 16}


def test_values_of_subgraphs_are_found() -> None:
    text = """g (bool c, float[4,N] x) => (y) { y = If(c) <
      then_branch = a () => (p) { p = Neg(x) }, else_branch = b () => (q) { q = Transpose(x) }> }"""
    found = shapes(read_flat(parse(text)))
    assert (found["p"], found["q"]) == ([4, LENGTH], [LENGTH, 4])


def test_what_is_computed_of_shapes_is_known() -> None:
    # Inference follows neither ConstantOfShape nor Cast.
    text = """g (float[N,8] x) => (y) <int64[1] one = {1}, int64[2] side = {0, 3}> {
      n = Shape(one) zeros = ConstantOfShape(n) first = Cast <to = 7> (zeros)
      pads = Concat <axis = 0> (first, side, one) h = Pad(x, pads) y = Relu(h) }"""
    assert shapes(read_flat(parse(text)))["y"] == [BATCH + 3, 8 + 1]


def test_a_free_dimension_is_no_shorter_than_a_window_on_it() -> None:
    text = "g (float[N,1,T] x) => (y) { y = Conv(x, w) }"
    proto = model(text, w=np.ones((4, 1, 512), np.float32))
    assert shapes(read_flat(proto))["y"] == [BATCH, 4, 8 * LENGTH - 511]


def test_graphs_inside_nodes_know_numbers_from_outside() -> None:
    text = """g (bool c, float[1,4] x) => (y) <int64[4] pads = {0, 1, 0, 1}> { y = If(c) <
      then_branch = a () => (p) { p = Pad(x, pads) },
      else_branch = b () => (q) { q = Concat <axis = 1> (x, x) }> }"""
    assert shapes(read_flat(parse(text)))["p"] == [1, 6]


def test_weights_say_how_large_an_unknown_product_is() -> None:
    text = """g (int64[1,4] i) => (y) {
      h = com.microsoft.EmbedLayerNormalization(i, table) y = MatMul(h, w) }"""
    proto = model(text, table=np.ones((99, 8), np.float32), w=np.ones((8, 16), np.float32))
    found = elements(read_flat(proto))
    assert (found["h"], found["y"]) == (4 * 8, 4 * 16)


def test_constants_of_functions_keep_their_numbers_when_they_are_inlined() -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17, "own": 1]>'
        "g (float[2,6] x) => (float[a,b] y) <int64[1] two = {2}> { y = own.f(x, two) }"
        '<domain: "own", opset_import: ["": 17]> f (i, n) => (o) {'
        "c = Constant<value = int64[1] {3}>() q = Mul(c, n) r = Concat<axis = 0>(n, q)"
        " o = Reshape(i, r) }"
    )
    found = shapes(read_source(proto, inline_functions=True))
    assert found["y"] == [2, 6]


def test_no_file_of_the_current_folder_is_read_for_a_constant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The data of a Constant lie in a file beside the model, which is not the current folder."""
    proto = parse("g (float[2,6] x) => (float[a,b] y) { y = Identity(x) }")
    del proto.graph.node[:]
    make = onnx.helper.make_node
    tensor = numpy_helper.from_array(np.array([3, 4]), "c")
    constant = make("Constant", [], ["c"], value=tensor)
    held = constant.attribute[0].t
    held.ClearField("raw_data")
    held.data_location = onnx.TensorProto.EXTERNAL
    held.external_data.add(key="location", value="c.bin")
    proto.graph.node.extend(
        [constant, make("Mul", ["c", "one"], ["r"]), make("Reshape", ["x", "r"], ["y"])]
    )
    proto.graph.initializer.append(numpy_helper.from_array(np.array([1, 1]), "one"))
    model_folder, current = tmp_path / "model", tmp_path / "current"
    for folder, numbers in ((model_folder, [3, 4]), (current, [6, 2])):
        folder.mkdir()
        (folder / "c.bin").write_bytes(np.array(numbers).tobytes())
    (model_folder / "m.onnx").write_bytes(proto.SerializeToString())
    monkeypatch.chdir(current)
    assert shapes(read_flat(model_folder / "m.onnx"))["y"] == [3, 4]
