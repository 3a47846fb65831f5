"""Loading builds the whole model and loses nothing on the way back."""

import os
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from backend_cases import all_cases
from onnx import TensorProto, helper, numpy_helper, parser
from thinned import every

import amp_rewrite as amp
from amp_rewrite.errors import GraphError, LoadError
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.io.save import save, to_proto

OLD_OPSET = {"test_not_2d", "test_not_3d", "test_not_4d"}  # opset 1: refused by design
CORPUS = os.environ.get("AMP_CORPUS")
MODELS = sorted(Path(CORPUS).glob("**/*.onnx")) if CORPUS else []


def entries(message, name) -> list:
    """Return a list of a message; value_info without what repeats an end, in some order."""
    found = list(getattr(message, name))
    if name == "value_info" and isinstance(message, onnx.GraphProto):
        made = {output for node in message.node for output in node.output}
        made -= {info.name for info in message.output}
        found = [info for info in found if info.name in made]
    if name == "value_info":
        found.sort(key=lambda entry: entry.SerializeToString(deterministic=True))
    return found


def same(name, left, right) -> bool:
    """Tell whether two fields mean the same: one that is not set, and one that says nothing."""
    if name == "domain":
        return {left, right} <= {"", "ai.onnx"} or left == right
    return left == right or (name == "dim_value" and right < 0)


def differences(found, expected, where="") -> list[str]:
    """Compare messages field by field; the order of value_info does not matter."""
    result = []
    for field in expected.DESCRIPTOR.fields:
        name, place = field.name, f"{where}.{field.name}"
        left, right = getattr(found, name), getattr(expected, name)
        if field.is_repeated:
            left, right = entries(found, name), entries(expected, name)
            if len(left) != len(right):
                result.append(f"{place}: {len(left)} entries, not {len(right)}")
        elif same(name, left, right):
            continue
        elif found.HasField(name) != expected.HasField(name):
            result.append(f"{place}: set {found.HasField(name)}")
            continue
        else:
            left, right = [left], [right]
        for index, (a, b) in enumerate(zip(left, right, strict=False)):
            if field.message_type is not None:
                result += differences(a, b, f"{place}[{index}]")
            elif a != b and not (a != a and b != b):  # both NaN
                result.append(f"{place}[{index}]: {str(a)[:40]} != {str(b)[:40]}")
    return result


def model_of(text: str) -> onnx.ModelProto:
    return parser.parse_model(text)


def chain(opsets: str = '"": 17') -> onnx.ModelProto:
    return model_of(f"""<ir_version: 8, opset_import: [{opsets}]>
        g (float[N, 4] x) => (float[N, 4] y) <float[4] w = {{1, 2, 3, 4}}> {{
            h = Add (x, w)
            y = Relu (h)
        }}""")


def sparse(name: str, indices: list) -> onnx.SparseTensorProto:
    values = numpy_helper.from_array(np.array([1.5, 2.5], np.float32), name)
    return helper.make_sparse_tensor(
        values, numpy_helper.from_array(np.array(indices, np.int64), ""), [2, 3]
    )


def with_training_info() -> onnx.ModelProto:
    proto = chain()
    info = proto.training_info.add()
    info.algorithm.CopyFrom(proto.graph)
    info.initialization_binding.add(key="w", value="y")
    info.update_binding.add(key="w", value="h")
    return proto


def with_branches() -> onnx.ModelProto:
    proto = model_of("""<ir_version: 8, opset_import: ["": 17]>
        g (bool c, float[2, 3] x) => (float[2, 3] y) {
            y = If (c) <then_branch = t () => (float[2, 3] a) { a = Relu (x) },
                        else_branch = e () => (float[2, 3] a) { a = Identity (x) }>
        }""")
    proto.graph.initializer.append(numpy_helper.from_array(np.ones((2, 3), np.float32), "s"))
    inner = proto.graph.node[0].attribute[0].g
    inner.initializer.append(numpy_helper.from_array(np.ones((2, 3), np.float32), "u"))
    inner.node[0].CopyFrom(helper.make_node("Add", ["u", "s"], ["a"]))
    return proto


def with_sparse_constant() -> onnx.ModelProto:
    proto = chain()
    proto.graph.node.append(
        helper.make_node("Constant", [], ["k"], sparse_value=sparse("", [0, 5]))
    )
    return proto


def with_map_output() -> onnx.ModelProto:
    proto = chain('"": 17, "ai.onnx.ml": 3')
    node = helper.make_node("ZipMap", ["h"], ["z"], domain="ai.onnx.ml", classlabels_int64s=[1, 2])
    proto.graph.node.append(node)
    zipped = proto.graph.output.add(name="z").type.sequence_type.elem_type.map_type
    zipped.key_type = TensorProto.INT64
    zipped.value_type.tensor_type.elem_type = TensorProto.FLOAT
    opaque = proto.graph.input.add(name="o").type.opaque_type
    opaque.domain, opaque.name = "d", "n"
    proto.graph.input.add(name="any").type.sequence_type.SetInParent()
    kind = proto.graph.node.add(op_type="Own", domain="own", output=["t"])
    attribute = kind.attribute.add(name="type", type=onnx.AttributeProto.TYPE_PROTO)
    attribute.tp.map_type.key_type = TensorProto.STRING
    return proto


def with_every_note() -> onnx.ModelProto:
    """Doc strings, metadata, device configurations, odd strings."""
    proto = chain()
    proto.ir_version = 11
    graph, node = proto.graph, proto.graph.node[0]
    for message in (proto, graph, node, graph.input[0], graph.initializer[0]):
        message.doc_string = f"about {type(message).__name__}"
        message.metadata_props.add(key="b", value="1")
        message.metadata_props.add(key="a", value="2")
    for name in ("h",):
        info = graph.value_info.add(name=name, doc_string=f"info {name}")
        info.type.tensor_type.elem_type = TensorProto.FLOAT
    graph.value_info[0].type.tensor_type.shape.dim.add(dim_param="N", denotation="DATA_BATCH")
    graph.value_info[0].type.tensor_type.shape.dim.add(dim_value=-1)
    proto.configuration.add(name="c", num_devices=2, device=["a", "b"])
    own = graph.node.add(op_type="Own", domain="own", overload="v2", output=["p", "", "q", ""])
    own.attribute.add(name="bytes", type=onnx.AttributeProto.STRING, s=b"\xff\xfe")
    own.attribute.add(name="list", type=onnx.AttributeProto.STRINGS, strings=[b"a", b"\xff"])
    own.attribute.add(name="nothing")
    own.input.extend(["", "x", ""])
    graph.initializer.append(helper.make_tensor("four", TensorProto.INT4, [3], [1, -2, 3]))
    graph.initializer.append(helper.make_tensor("text", TensorProto.STRING, [1], [b"\xff"]))  # pyright: ignore[reportArgumentType] bytes are right
    graph.initializer.append(helper.make_tensor("empty", TensorProto.FLOAT, [0, 3], []))
    graph.initializer.append(helper.make_tensor("x", TensorProto.FLOAT, [1, 4], [1, 2, 3, 4]))
    return proto


def with_functions() -> onnx.ModelProto:
    proto = model_of("""<ir_version: 10, opset_import: ["": 18, "local": 1]>
        g (float[4] x) => (float[4] y) { t = local.twice <k: float = 2.0> (x)  y = Identity (t) }
        <domain: "local", opset_import: ["": 18]>
        twice <k, m: int = 3> (a) => (b)
            { c = Constant <value_float: float = @k> ()  b = Mul (a, c) }""")
    function = proto.functions[0]
    function.doc_string = "doubles"
    function.overload = "o"
    function.metadata_props.add(key="k", value="v")
    info = function.value_info.add(name="c")
    info.type.tensor_type.elem_type = TensorProto.FLOAT
    function.value_info.add(name="a").CopyFrom(info)
    function.value_info[1].name = "a"
    return proto


def with_names_left_out() -> onnx.ModelProto:
    proto = chain('"ai.onnx": 17')
    proto.graph.ClearField("name")
    proto.graph.node[1].name = "Add_0"
    proto.graph.node[1].domain = "ai.onnx"
    return proto


HAND_MADE = [
    chain,
    with_training_info,
    with_branches,
    with_sparse_constant,
    with_map_output,
    with_every_note,
    with_functions,
    with_names_left_out,
]


@pytest.mark.parametrize("make", HAND_MADE)
def test_a_hand_made_model_comes_back_field_by_field(make, tmp_path):
    proto = make()
    before = proto.SerializeToString(deterministic=True)
    model = load(proto)
    assert differences(to_proto(model), proto) == []
    assert differences(to_proto(load(model)), proto) == []
    save(model, tmp_path / "m.onnx")
    assert differences(onnx.load(tmp_path / "m.onnx"), proto) == []
    assert proto.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize("step", every([4, 1], 2), ids=["some", "all"])
def test_every_node_test_model_of_onnx_comes_back_field_by_field(step: int):
    wrong, count = [], 0
    for case in all_cases()[::step]:
        if case.model is None or case.name in OLD_OPSET:
            continue
        count += 1
        model = load(case.model)
        for copy in (model, load(model)):
            wrong += [f"{case.name}{line}" for line in differences(to_proto(copy), case.model)]
    assert wrong == []
    assert count > 1000 // step


@pytest.mark.skipif(not MODELS, reason="AMP_CORPUS names no folder of models")
@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_a_real_model_comes_back_field_by_field(path, tmp_path):
    proto = onnx.load(path, load_external_data=False)
    model = load(path)
    assert differences(to_proto(model), proto) == []
    if not any(
        isinstance(v.const_value, ir.ExternalTensor) for v in model.graph.initializers.values()
    ):
        save(model, tmp_path / "m.onnx")
        assert differences(onnx.load(tmp_path / "m.onnx"), proto) == []


def test_a_path_bytes_a_proto_and_a_model_load_alike(tmp_path):
    proto = chain()
    path = tmp_path / "m.onnx"
    onnx.save(proto, path)
    for source in (path, str(path), path.read_bytes(), proto, load(proto), ir.from_proto(proto)):
        model = load(source)
        assert [node.op_type for node in model.graph] == ["Add", "Relu"]
        assert model.opset_imports == {"": 17}


def test_unnamed_nodes_get_unique_names_that_saving_leaves_out():
    model = load(with_names_left_out())
    assert [node.name for node in model.graph] == ["Add_0_2", "Add_0"]
    assert [node.name for node in to_proto(model).graph.node] == ["", "Add_0"]


@pytest.mark.parametrize("source", [lambda: load(chain()), lambda: ir.from_proto(chain())])
def test_changing_the_copy_of_a_model_leaves_the_model_alone(source):
    original = source()
    before = to_proto(original).SerializeToString(deterministic=True)
    copy = load(original)
    copy.graph.initializers["w"].name = "v"
    copy.graph.inputs[0].dtype = ir.DataType.DOUBLE
    copy.graph[1].attributes.add(ir.AttrInt64("k", 1))
    copy.graph[0].name = "renamed"
    copy.opset_imports["own"] = 1
    copy.metadata_props["k"] = "v"
    assert to_proto(original).SerializeToString(deterministic=True) == before
    assert original.graph.initializers["w"].const_value.name == "w"
    assert {tensor.name for tensor in to_proto(copy).graph.initializer} == {"v"}


def test_a_subgraph_may_shadow_an_outer_name():
    proto = with_branches()
    branch = proto.graph.node[0].attribute[1].g
    branch.node.insert(0, helper.make_node("Identity", ["c"], ["s"]))
    branch.node[1].input[0] = "s"
    model = load(proto)
    inner = model.graph[0].attributes["else_branch"].as_graph()
    assert inner[1].inputs[0] is inner[0].outputs[0]
    assert differences(to_proto(model), proto) == []


def test_a_name_that_changes_its_meaning_inside_a_subgraph_is_refused():
    proto = with_branches()
    branch = proto.graph.node[0].attribute[1].g
    branch.node.insert(0, helper.make_node("Relu", ["s"], ["r"]))
    branch.node.insert(1, helper.make_node("Relu", ["r"], ["s"]))
    with pytest.raises(GraphError, match="value 's' is defined after an outer value of that name"):
        load(proto)


def test_negative_dimensions_of_values_are_unknown_dimensions():
    model = load(with_every_note())
    assert str(model.graph[0].outputs[0].shape[1]) == "None"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Return a model as Hugging Face keeps it: links beside each other to files beside each other.

    It has float and int4 weights as external data.
    """
    blobs, folder = tmp_path / "blobs", tmp_path / "snapshots" / "main" / "onnx"
    blobs.mkdir()
    folder.mkdir(parents=True)
    proto = parser.parse_model(
        '<ir_version: 11, opset_import: ["": 21]> g (float[N,2] x) => (float[N,2] y)'
        "<float[2,2] w = {1, 2, 3, 4}> { d = DequantizeLinear(q, s) e = Squeeze(d) "
        "m = MatMul(x, w) y = Add(m, e) }"
    )
    four = helper.make_tensor("q", TensorProto.INT4, [1, 2], b"\x21", raw=True)
    scale = numpy_helper.from_array(np.array(0.5, np.float32), "s")
    weight = numpy_helper.from_array(np.array([[1, 2], [3, 4]], np.float32), "w")
    del proto.graph.initializer[:]
    proto.graph.initializer.extend([weight, four, scale])
    beside = {"location": "model.onnx_data", "size_threshold": 0}
    onnx.save(proto, blobs / "m", save_as_external_data=True, **beside)
    (blobs / "m").rename(blobs / "aaa")
    (blobs / "model.onnx_data").rename(blobs / "bbb")
    (folder / "model.onnx").symlink_to("../../../blobs/aaa")
    (folder / "model.onnx_data").symlink_to("../../../blobs/bbb")
    return folder / "model.onnx"


def test_a_model_of_links_with_its_data_beside_it_is_loaded(cache: Path, tmp_path: Path) -> None:
    found = load(cache)
    values = {n: v.const_value for n, v in found.graph.initializers.items()}
    assert {n: np.asarray(t.numpy(), np.float32).tolist() for n, t in values.items() if t} == {
        "w": [[1, 2], [3, 4]],
        "q": [[1, 2]],
        "s": 0.5,
    }
    save(found, tmp_path / "copy.onnx")
    onnx.checker.check_model(str(tmp_path / "copy.onnx"), full_check=True)
    before, after = onnx.load(tmp_path / "copy.onnx"), amp.rewrite(cache)
    amp.save(after, tmp_path / "low.onnx")
    assert amp.verify(before, tmp_path / "low.onnx", stress=False).ok


def test_links_to_data_elsewhere_are_refused_with_what_to_do(cache: Path, tmp_path: Path) -> None:
    data = cache.with_name("model.onnx_data")
    (tmp_path / "elsewhere").write_bytes(data.read_bytes())
    data.unlink()
    data.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(
        LoadError, match=r"a symbolic link that leads out of .*; .* cp -rL"
    ) as error:
        load(cache)
    assert "\n" not in str(error.value)
    data.unlink()
    data.symlink_to(tmp_path / "blobs" / "bbb")
    cache.unlink()
    cache.write_bytes((tmp_path / "blobs" / "aaa").read_bytes())
    with pytest.raises(LoadError, match="a symbolic link"):  # the model itself is no link
        load(cache)
