"""What cannot be loaded is refused in one line that says what, where and what to do."""

import os
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, parser

from amp_rewrite.errors import AmpError, GraphError, LoadError
from amp_rewrite.graph.io.load import load

BODY = """g (float[4] x) => (float[4] y) <float[4] w = {1, 2, 3, 4}>
          { h = Add (x, w)  y = Relu (h) }"""


def model(body: str = BODY, opsets: str = '"": 17', ir_version: int = 8) -> onnx.ModelProto:
    return parser.parse_model(f"<ir_version: {ir_version}, opset_import: [{opsets}]> {body}")


def refused(source, kind: type[AmpError], **kwargs) -> AmpError:
    with pytest.raises(AmpError) as caught:
        load(source, **kwargs)
    assert type(caught.value) is kind
    assert "\n" not in str(caught.value)
    return caught.value


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


CONTENTS = {
    "empty": (b"", "the file is empty"),
    "text": (b"hello, this is a text file\n", "found a text file"),
    "zip": (b"PK\x03\x04\x00\x00rest", "found a zip archive"),
    "safetensors": (b"\x40\0\0\0\0\0\0\0" + b'{"a":1}', "found a safetensors file"),
    "html": (b"<!DOCTYPE html><html>", "found an HTML page"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    "pickle": (b"\x80\x04\x95\x00", "found a Python pickle"),
    "noise": (bytes(range(255, 100, -1)), "not a protobuf message of ONNX"),
    "truncated": (model().SerializeToString()[:-20], "truncated, damaged or nested too deeply"),
    "cut before the graph": (model().SerializeToString()[:2], "holds no graph"),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_a_file_that_is_no_model_is_named_with_what_it_looks_like(name, tmp_path):
    content, expected = CONTENTS[name]
    path = write(tmp_path / "m.onnx", content)
    error = refused(path, LoadError)
    assert expected in str(error)
    assert str(path) in str(error)
    assert path.read_bytes() == content


def test_a_missing_file_is_named(tmp_path):
    error = refused(tmp_path / "no.onnx", LoadError)
    assert "no.onnx: the file cannot be read; found No such file or directory" in str(error)


def test_a_folder_is_refused(tmp_path):
    assert "a folder, not a model" in str(refused(tmp_path, LoadError))


def test_a_path_with_a_null_byte_is_refused():
    assert "cannot hold a null character" in str(refused("a\0b", LoadError))


@pytest.mark.parametrize("source", [3.5, 3, None, [b"model"]])
def test_what_is_neither_a_model_nor_a_path_is_refused(source):
    error = refused(source, LoadError)
    expected = f"must be a string or a path object; found an object of type {type(source).__name__}"
    assert expected in str(error)


def test_a_file_over_two_gibibytes_is_refused_unread(tmp_path):
    path = tmp_path / "m.onnx"
    with path.open("wb") as file:
        file.truncate(1 << 31)
    assert "protobuf cannot read a file of 2 GiB" in str(refused(path, LoadError))


def test_a_model_without_a_graph_is_refused():
    error = refused(onnx.ModelProto(ir_version=8), LoadError)
    assert "the model holds no graph" in str(error)


def without_opsets() -> onnx.ModelProto:
    proto = model()
    del proto.opset_import[:]
    return proto


NEWEST = onnx.defs.onnx_opset_version()


@pytest.mark.parametrize(
    ("make", "kind", "expected"),
    [
        (without_opsets, GraphError, "the model imports no opset"),
        (
            lambda: model(opsets=f'"": {NEWEST + 1}'),
            GraphError,
            f"found {NEWEST + 1}; expected 1 to {NEWEST}",
        ),
        (
            lambda: model(opsets='"": 17, "ai.onnx.ml": 99'),
            GraphError,
            "unknown opset of ai.onnx.ml",
        ),
        (
            lambda: model(opsets='"": 0'),
            GraphError,
            "unknown opset of ai.onnx; found 0; expected 1 to",
        ),
        (
            lambda: model(opsets='"": 17, "ai.onnx": 18'),
            GraphError,
            "imported twice; found versions 17 and 18",
        ),
        (lambda: model(opsets='"own": 0, "": 17'), GraphError, "unknown opset of own; found 0"),
        (lambda: model(ir_version=onnx.IR_VERSION + 1), LoadError, "unknown IR version"),
        (lambda: model(ir_version=2), LoadError, "the IR version is missing or too old; found 2"),
    ],
)
def test_versions_out_of_range_are_refused(make, kind, expected):
    assert expected in str(refused(make(), kind))


def test_an_unknown_operator_is_no_error():
    assert load(model("g (float[4] x) => (float[4] y) { y = NoSuchOperator (x) }")).graph[0]


GRAPHS = {
    "undefined": (
        "{ y = Add (x, nowhere) }",
        "node #0 (Add): undefined value 'nowhere'",
    ),
    "cyclic": (
        "{ a = Add (x, b)  b = Relu (a)  y = Exp (b) }",
        "the graph has a cycle; found value 'a' is used before it is made",
    ),
    "own input": (
        "{ y = Add (x, y) }",
        "the graph has a cycle; found value 'y' is used before it is made",
    ),
    "two producers": ("{ y = Relu (x)  y = Exp (x) }", "value 'y' has two producers"),
    "producer of an input": ("{ x = Relu (x)  y = Exp (x) }", "value 'x' has two producers"),
    "no output": ("{ z = Relu (x) }", "graph output 'y' is not produced in the graph"),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_that_is_wrong_is_refused_with_the_place(name):
    body, expected = GRAPHS[name]
    error = str(refused(model(f"g (float[4] x) => (float[4] y) {body}"), GraphError))
    assert expected in error
    assert "main graph" in error


def test_a_cycle_through_a_subgraph_is_found():
    body = """g (float[4] x, bool c) => (float[4] y) {
        a = If (c) <then_branch = t () => (float[4] p) { p = Relu (b) },
                    else_branch = e () => (float[4] q) { q = Exp (x) }>
        b = Relu (a)
        y = Exp (b) }"""
    error = str(refused(model(body), GraphError))
    assert "the graph has a cycle; found value 'a' is used" in error


def test_a_branch_that_returns_an_outer_value_is_refused():
    proto = model("""g (float[4] x, bool c) => (float[4] y) {
        y = If (c) <then_branch = t () => (float[4] p) { p = Relu (x) },
                    else_branch = e () => (float[4] q) { q = Exp (x) }> }""")
    branch = proto.graph.node[0].attribute[0].g
    branch.output[0].name = "x"
    error = str(refused(proto, GraphError))
    assert "pass an outer value through an Identity node" in error


def nested(depth: int) -> onnx.ModelProto:
    proto = model("g (float[4] x, bool c) => (float[4] y) { y = Relu (x) }")
    leaf = onnx.GraphProto(name="leaf", output=[onnx.ValueInfoProto(name="v")])
    leaf.node.add(op_type="Relu", input=["x"], output=["v"])
    graph = proto.graph
    for level in range(depth):
        node = graph.node.add(op_type="If", input=["c"], output=[f"v{level}"])
        node.attribute.add(name="else_branch", type=5, g=leaf)
        graph = node.attribute.add(name="then_branch", type=5).g
        graph.output.add(name=f"v{level + 1}")
    graph.CopyFrom(leaf)
    return proto


def test_graphs_nested_without_end_are_refused():
    assert load(nested(20))
    assert "graphs are nested too deep" in str(refused(nested(60), GraphError))


def test_types_nested_without_end_are_refused():
    proto = model()
    type_ = proto.graph.input[0].type
    type_.Clear()
    for _ in range(90):
        type_ = type_.sequence_type.elem_type
    type_.tensor_type.elem_type = TensorProto.FLOAT
    assert "the type is nested too deep" in str(refused(proto, GraphError))


def broken(change) -> onnx.ModelProto:
    proto = model()
    change(proto.graph)
    return proto


def set_(message, **fields):
    for name, value in fields.items():
        setattr(message, name, value)


def twice(graph):
    graph.node[0].attribute.extend([helper.make_attribute("k", 1)] * 2)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda g: set_(g.initializer[0], data_type=99), "unknown element type; found 99"),
        (lambda g: set_(g.initializer[0], data_type=0), "the tensor has no element type"),
        (lambda g: g.initializer[0].dims.append(3), "found 4 entries of float_data; expected 12"),
        (lambda g: set_(g.initializer[0], raw_data=b"abc"), "found 3 bytes; expected 16"),
        (lambda g: g.initializer[0].dims.append(-1), "has a negative dimension"),
        (lambda g: g.initializer[0].dims.extend([2**40, 2**40]), "impossibly large"),
        (lambda g: g.initializer[0].segment.SetInParent(), "stored in segments"),
        (lambda g: g.initializer.append(g.initializer[0]), "initializer 'w' is twice"),
        (lambda g: set_(g.initializer[0], name=""), "an initializer has no name"),
        (lambda g: set_(g.input[0], name=""), "a graph input has no name"),
        (
            lambda g: set_(g.input[0].type.tensor_type, elem_type=77),
            "value 'x': unknown element type",
        ),
        (lambda g: set_(g.node[0], op_type=""), "a node needs an operator"),
        (twice, "two attributes of one name"),
        (lambda g: g.sparse_initializer.add(), "sparse initializers are not supported"),
    ],
)
def test_a_malformed_part_is_refused(change, expected):
    assert expected in str(refused(broken(change), GraphError))


def test_a_name_that_is_not_utf8_is_refused():
    content = model().SerializeToString().replace(b"\x01h", b"\x01\xff")
    assert "is not UTF-8" in str(refused(content, GraphError))


def external(location: str, **numbers: object) -> onnx.ModelProto:
    proto = model()
    tensor = proto.graph.initializer[0]
    tensor.ClearField("float_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **numbers}.items():
        tensor.external_data.add(key=key, value=str(value))
    return proto


@pytest.fixture
def folder(tmp_path):
    inside = tmp_path / "in"
    inside.mkdir()
    (inside / "w.data").write_bytes(np.arange(8, dtype=np.float32).tobytes())
    (tmp_path / "secret").write_bytes(bytes(64))
    (inside / "link").symlink_to(tmp_path / "secret")
    (inside / "sub").mkdir()
    os.mkfifo(inside / "pipe")
    return inside


@pytest.mark.parametrize(
    ("location", "numbers", "expected"),
    [
        ("no.data", {}, "cannot be read; found"),
        ("w.data", {"offset": 17}, "too short; found 32 bytes"),
        ("w.data", {"length": 12}, "does not match type and dimensions; found 12 bytes"),
        ("w.data", {"length": "x"}, "a malformed length; found 'x'"),
        ("w.data", {"offset": -4}, "a malformed offset; found '-4'"),
        ("", {}, "without a location"),
        ("../secret", {}, "outside the model's folder; found '../secret'"),
        ("sub/../../secret", {}, "outside the model's folder"),
        ("/etc/passwd", {}, "outside the model's folder"),
        (
            "link",
            {},
            "a symbolic link that leads out of the model's folder; found 'link', which is",
        ),
        (".", {}, "outside the model's folder"),
        ("sub", {}, "must be a regular file"),
        ("pipe", {}, "must be a regular file"),
    ],
)
def test_unusable_external_data_are_refused(location, numbers, expected, folder):
    path = folder / "m.onnx"
    onnx.save(external(location, **numbers), path)
    error = str(refused(path, LoadError))
    assert expected in error
    assert "initializer 'w'" in error
    assert str(path) in error


def test_external_data_without_a_folder_are_refused():
    error = refused(external("w.data"), LoadError)
    assert "unknown of which folder" in str(error)


def test_external_data_are_measured_but_not_read(folder):
    (folder / "w.data").chmod(0)
    loaded = load(external("w.data", offset=16, length=16), base_dir=folder)
    tensor = loaded.graph.initializers["w"].const_value
    assert isinstance(tensor, ir.ExternalTensor)
    (folder / "w.data").chmod(0o600)
    np.testing.assert_array_equal(tensor.numpy(), np.arange(4, 8, dtype=np.float32))


FUNCTIONS = """g (float[4] x) => (float[4] y) { y = own.f (x) }
    <domain: "own", opset_import: ["": 17, "own": 1]> f (a) => (b) { b = own.g (a) }
    <domain: "own", opset_import: ["": 17, "own": 1]> g (a) => (b) { b = own.h (a) }"""


def test_functions_that_call_each_other_without_end_are_refused():
    assert len(load(model(FUNCTIONS, '"": 17, "own": 1')).functions) == 2
    endless = FUNCTIONS.replace("own.h", "own.f")
    error = str(refused(model(endless, '"": 17, "own": 1'), GraphError))
    assert "function own::f: a function calls itself; found a call in own::g" in error


def test_two_functions_of_one_name_are_refused():
    proto = model(FUNCTIONS, '"": 17, "own": 1')
    proto.functions.append(proto.functions[0])
    assert "function own::f: two functions of one name" in str(refused(proto, GraphError))


def test_an_onnx_ir_model_with_a_cycle_is_refused():
    x = ir.val("x", dtype=ir.DataType.FLOAT, shape=[4])
    first = ir.node("Add", [x, x])
    second = ir.node("Exp", first.outputs)
    first.replace_input_with(1, second.outputs[0])
    graph = ir.Graph([x], second.outputs, nodes=[first, second], opset_imports={"": 17})
    assert "the graph has a cycle" in str(refused(ir.Model(graph, ir_version=8), GraphError))
