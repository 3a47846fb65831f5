"""Newer opsets by onnx's converter: what it would lose stays, what it cannot keep is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from decorations import add_note
from onnx import helper, numpy_helper
from rewrite_text import parse
from training_models import adam_mlp

import amp_rewrite as amp
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.io.convert_opset import convert_opset

HEADER = '<ir_version: 8, opset_import: ["" : 11, "com.microsoft" : 1]>'
NESTED = f"""{HEADER} g (float[2,3] x, bool b) => (float[3] y) {{
  [if] y = If(b) <then_branch = t () => (float[3] p) {{ [inner] p = ReduceSum<axes = [0], keepdims = 0>(x) }},
                  else_branch = e () => (float[3] q) {{
                    r = ReduceMax<axes = [0], keepdims = 0>(x) q = com.microsoft.Gelu(r) }}> }}"""  # noqa: E501


def raised(model: onnx.ModelProto, opset: int = 22) -> onnx.ModelProto:
    result = amp.to_proto(convert_opset(amp.load(model), opset))
    onnx.checker.check_model(result, full_check=True)
    return result


def test_operators_change_at_any_depth_and_domains_stay() -> None:
    result = raised(parse(NESTED))
    assert {e.domain: e.version for e in result.opset_import} == {"": 22, "com.microsoft": 1}
    then, other = (a.g for a in result.graph.node[0].attribute)
    if then.name != "t":
        then, other = other, then
    assert [n.op_type for n in then.node] == ["Constant", "ReduceSum"]
    assert [n.op_type for n in other.node] == ["Constant", "ReduceMax", "Gelu"]


def test_what_the_converter_drops_stays() -> None:
    model = parse(NESTED)
    branch = next(a.g for a in model.graph.node[0].attribute if a.g.name == "t")
    for described in (model.graph.node[0], branch.node[0], model.graph, branch):
        add_note(described, "key", described.name)
    model.graph.node[0].doc_string = "which"
    model.graph.initializer.append(numpy_helper.from_array(np.ones(3, np.float32), "unused"))
    model.graph.initializer[0].doc_string = "kept"
    result = raised(model)
    node = result.graph.node[0]
    inner = next(a.g for a in node.attribute if a.g.name == "t")
    notes = [x.metadata_props[0].value for x in (node, inner.node[-1], result.graph, inner)]
    assert notes == ["if", "inner", "g", "t"]
    assert (node.doc_string, result.graph.initializer[0].doc_string) == ("which", "kept")
    assert (result.graph.input, result.graph.output) == (model.graph.input, model.graph.output)


def test_nodes_that_are_put_around_another_take_no_name_from_it() -> None:
    text = '<ir_version: 8, opset_import: ["" : 11]> g (float[2,3,4] x) => (float[2,3,4] y) {'
    result = raised(parse(f"{text} [soft] y = Softmax<axis = 1>(x) }}"))
    names = [node.name for node in result.graph.node if node.name]
    assert len(names) == len(set(names))
    assert next(n.name for n in result.graph.node if n.op_type == "Softmax") == "soft"


@pytest.mark.parametrize("external", [False, True], ids=["inside", "external data"])
@pytest.mark.parametrize("ir_version", [3, 8])
def test_large_weights_are_not_shown_to_the_converter(
    ir_version: int, external: bool, tmp_path: Path
) -> None:
    model = parse(
        f'<ir_version: {ir_version}, opset_import: ["" : 9]>'
        "g (float[1,100] x) => (float[1,300] y) { h = MatMul(x, w) y = Add(h, b) }"
    )
    rng = np.random.default_rng(0)
    arrays = {"w": rng.normal(size=(100, 300)), "b": rng.normal(size=300)}
    for name, array in arrays.items():
        tensor = numpy_helper.from_array(array.astype(np.float32), name)
        model.graph.initializer.append(tensor)
        if ir_version == 3:
            info = helper.make_tensor_value_info(name, tensor.data_type, tensor.dims)
            model.graph.input.append(info)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=external, size_threshold=0)
    result = convert_opset(amp.load(tmp_path / "m.onnx"), 22)
    found = amp.to_proto(result)
    assert [v.name for v in found.graph.input] == [v.name for v in model.graph.input]
    contents = {t.name: numpy_helper.to_array(t, str(tmp_path)) for t in found.graph.initializer}
    assert contents.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(contents[name], array.astype(np.float32))


def test_the_opset_that_a_model_has_changes_nothing() -> None:
    model = parse(NESTED)
    assert [n.op_type for n in raised(model, 11).graph.node] == [
        n.op_type for n in model.graph.node
    ]


@pytest.mark.parametrize("opset", [10, onnx.defs.onnx_opset_version() + 1])
def test_older_and_unknown_opsets_are_refused(opset: int) -> None:
    with pytest.raises(OptionError, match=f"to this opset; found {opset}; expected 11, which it h"):
        raised(parse(NESTED), opset)


def test_what_the_converter_would_lose_is_refused() -> None:
    function = """<ir_version: 8, opset_import: ["" : 17, "l" : 1]> g (float[2] x) => (float[2] y)
      { y = l.f(x) } <domain: "l", opset_import: ["" : 17]> f (a) => (b) { b = Relu(a) }"""
    parts = {
        "model-local functions": parse(function),
        "training_info": adam_mlp(),
    }
    for part, model in parts.items():
        with pytest.raises(OptionError, match=f"does not take a model with {part}; found 1"):
            raised(model)


def test_a_model_without_operators_of_onnx_has_no_opset_to_raise() -> None:
    text = '<ir_version: 8, opset_import: ["custom" : 1]> g (float x) => (y) { y = custom.Own(x) }'
    with pytest.raises(OptionError, match=r"imports no opset of ai\.onnx"):
        raised(parse(text))


def test_what_the_converter_cannot_do_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise onnx.version_converter.ConvertError("no adapter\nfor Own")

    monkeypatch.setattr(onnx.version_converter, "convert_version", fail)
    with pytest.raises(OptionError, match=r"to opset 22; found no adapter for Own; export the"):
        raised(parse(NESTED))
