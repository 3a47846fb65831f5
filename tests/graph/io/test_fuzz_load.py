"""Whatever is loaded, only AmpError comes out; what loads can be copied and written."""

import logging
import random
import warnings

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper, parser

from amp_rewrite.errors import AmpError
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.io.save import to_proto

TEXTS = (
    """<ir_version: 8, opset_import: ["": 17]>
    g (float[N, 4] x, bool c) => (float[N, 4] y)
    <float[4] w = {1, 2, 3, 4}, float[N, 4] h> {
        h = Add (x, w)
        y = If (c) <
            then_branch = t () => (float[N, 4] a) { b = Mul (h, w)  a = Relu (b) },
            else_branch = e () => (float[N, 4] a) { a = Softmax <axis: int = 1> (h) }>
    }""",
    """<ir_version: 9, opset_import: ["": 18, "local": 1], producer_name: "p">
    g (float[4] x) => (float[4] y) { t = local.twice <k: float = 2.0> (x)  y = Identity (t) }
    <domain: "local", opset_import: ["": 18]>
    twice <k> (a) => (b) { c = Constant <value_float: float = @k> ()  b = Mul (a, c) }""",
    """<ir_version: 8, opset_import: ["": 17]>
    g (int64 n, bool c, float[2] s) => (float[2] last, float[K, 2] all) {
        last, all = Loop (n, c, s) <body = b (int64 i, bool k, float[2] v)
            => (bool k2, float[2] v2, float[2] o) {
                k2 = Identity (k)  v2 = Add (v, s)  o = Exp (v2) }>
    }""",
)
NUMBERS = (0, 1, -1, 2, 3, 7, 16, 22, 99, 127, 2**31 - 1, -(2**31))


def sparse(name: str) -> onnx.SparseTensorProto:
    values = numpy_helper.from_array(np.array([1.5, 2.5], np.float32), name)
    return helper.make_sparse_tensor(
        values, numpy_helper.from_array(np.array([0, 3], np.int64), ""), [4]
    )


def rich_model() -> onnx.ModelProto:
    """A model with about every message of ONNX in it."""
    model = parser.parse_model(TEXTS[0])
    graph = model.graph
    graph.sparse_initializer.append(sparse("s"))
    graph.node.append(helper.make_node("Constant", [], ["k"], sparse_value=sparse("")))
    graph.node.append(helper.make_node("Other", ["s", "k"], ["z"], domain="own", strings=["a"]))
    graph.quantization_annotation.add(tensor_name="h").quant_parameter_tensor_names.add(
        key="SCALE_TENSOR", value="w"
    )
    info = model.training_info.add()
    info.algorithm.CopyFrom(graph)
    info.update_binding.add(key="w", value="h")
    outside = graph.initializer.add(name="e", data_type=TensorProto.FLOAT, dims=[4])
    outside.data_location = TensorProto.EXTERNAL
    outside.external_data.add(key="location", value="e.data")
    outside.external_data.add(key="offset", value="0")
    outside.external_data.add(key="length", value="16")
    zip_map = graph.output.add(name="z").type.sequence_type.elem_type.map_type
    zip_map.key_type = TensorProto.INT64
    zip_map.value_type.tensor_type.elem_type = TensorProto.FLOAT
    strings = graph.initializer.add(name="str", data_type=TensorProto.STRING, dims=[2])
    strings.string_data.extend([b"a", b"\xff"])
    graph.initializer.append(helper.make_tensor("nibbles", TensorProto.INT4, [3], [1, 2, -3]))
    return model


SEEDS = [rich_model(), *(parser.parse_model(text) for text in TEXTS)]


def mutate_bytes(rng: random.Random, content: bytes) -> bytes:
    """Change, insert, remove or repeat a few bytes, or cut the end off."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                data[at:at] = rng.randbytes(rng.randrange(1, 5))
            case 2:
                del data[at : at + rng.randrange(1, 9)]
            case 3:
                data[at:at] = data[at : at + rng.randrange(1, 40)]
            case _:
                del data[rng.randrange(len(data) // 2, len(data) + 1) :]
    return bytes(data)


def messages(message: object, found: list) -> list:
    found.append(message)
    for field, value in message.ListFields():
        if field.message_type is not None:
            for entry in value if field.is_repeated else [value]:
                messages(entry, found)
    return found


def names_of(model: onnx.ModelProto) -> list[str]:
    return ["", "nowhere", *(v.name for v in model.graph.input), "h", "y", "a", "w", "own"]


def mutate_message(rng: random.Random, model: onnx.ModelProto) -> None:
    """Set, clear, repeat, reorder or remove one field somewhere in the model."""
    message = rng.choice(messages(model, []))
    field = rng.choice(message.DESCRIPTOR.fields)
    name = field.name
    if field.is_repeated:
        mutate_list(rng, getattr(message, name), field, model)
    elif rng.random() < 0.3:
        message.ClearField(name)
    elif field.message_type is not None:
        getattr(message, name).SetInParent()
    else:
        setattr(message, name, scalar(rng, field, model))


def mutate_list(rng: random.Random, entries, field, model: onnx.ModelProto) -> None:
    if len(entries) and rng.random() < 0.4:
        del entries[rng.randrange(len(entries))]
    elif field.message_type is None:
        entries.insert(rng.randrange(len(entries) + 1), scalar(rng, field, model))
    elif len(entries):
        copied = [type(entry).FromString(entry.SerializeToString()) for entry in entries]
        rng.shuffle(copied)
        if rng.random() < 0.5:
            del entries[:]
        entries.extend(copied)
    else:
        entries.add()


def scalar(rng: random.Random, field, model: onnx.ModelProto) -> object:
    match field.cpp_type:
        case field.CPPTYPE_STRING:
            text = rng.choice(names_of(model))
            return text.encode() + b"\xff" * (rng.random() < 0.2) if field.type == 12 else text
        case field.CPPTYPE_ENUM:
            return rng.choice(field.enum_type.values).number
        case field.CPPTYPE_FLOAT | field.CPPTYPE_DOUBLE:
            return rng.choice((0.0, -1.5, float("nan")))
        case field.CPPTYPE_UINT64:
            return abs(rng.choice(NUMBERS))
        case _:
            return rng.choice(NUMBERS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz")
    (path / "e.data").write_bytes(bytes(16))
    return str(path)


def survives(source: bytes | onnx.ModelProto, folder: str) -> bool:
    """Load; what loads must also copy and write. Anything but AmpError is a failure."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            model = load(source, base_dir=folder)
        except AmpError:
            return False
        again = to_proto(load(model))
    assert again.SerializeToString(deterministic=True) == to_proto(model).SerializeToString(
        deterministic=True
    )
    return True


def check_bytes(seed: int, folder: str) -> None:
    rng = random.Random(seed)
    survives(mutate_bytes(rng, rng.choice(SEEDS).SerializeToString()), folder)


def check_message(seed: int, folder: str) -> None:
    rng = random.Random(seed)
    model = onnx.ModelProto()
    model.CopyFrom(rng.choice(SEEDS))
    for _ in range(rng.choice((1, 1, 2, 5))):
        mutate_message(rng, model)
    survives(model, folder)


SEED = st.integers(0, 2**48)
QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck), "derandomize": True}


@pytest.mark.parametrize("index", range(len(SEEDS)))
def test_the_unchanged_models_load(index, folder):
    assert survives(SEEDS[index], folder)


@settings(max_examples=300, **QUIET)
@given(seed=SEED)
def test_changed_bytes_give_nothing_but_amp_errors(seed, folder):
    check_bytes(seed, folder)


@settings(max_examples=300, **QUIET)
@given(seed=SEED)
def test_changed_messages_give_nothing_but_amp_errors(seed, folder):
    check_message(seed, folder)


@pytest.mark.slow
@settings(max_examples=6000, **QUIET)
@given(seed=SEED)
def test_thousands_of_changed_bytes_give_nothing_but_amp_errors(seed, folder):
    check_bytes(seed, folder)


@pytest.mark.slow
@settings(max_examples=6000, **QUIET)
@given(seed=SEED)
def test_thousands_of_changed_messages_give_nothing_but_amp_errors(seed, folder):
    check_message(seed, folder)


def test_broken_models_leave_no_noise_in_the_log(folder, caplog, capfd):
    with caplog.at_level(logging.DEBUG):
        for seed in range(200):
            check_message(seed, folder)
    assert not [record for record in caplog.records if record.name.startswith("onnx")]
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""
