"""Texts, types and declarations as protobuf messages have them."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, TypeProto, ValueInfoProto, helper

from amp_rewrite.errors import GraphError
from amp_rewrite.graph.proto.messages import (
    declare,
    props,
    shape_of,
    text,
    type_string,
    varint,
)

SEQUENCE = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2]))


def test_text_that_is_not_utf8_is_replaced() -> None:
    assert text("é") == "é"
    assert text(b"a\xff") == "a�"


def test_of_two_entries_of_metadata_the_last_counts() -> None:
    model = onnx.ModelProto()
    for value in ("first", "second"):
        model.metadata_props.add(key="key", value=value)
    assert props(model.metadata_props) == {"key": "second"}


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, (1 << 31) - 1])
def test_varint_is_what_protobuf_writes(number: int) -> None:
    tag = varint(onnx.ModelProto.DESCRIPTOR.fields_by_name["ir_version"].number << 3)
    assert onnx.ModelProto.FromString(tag + varint(number)).ir_version == number


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        (helper.make_tensor_type_proto(TensorProto.BFLOAT16, None), "tensor(bfloat16)"),
        (helper.make_sparse_tensor_type_proto(TensorProto.FLOAT, [2]), "sparse_tensor(float)"),
        (helper.make_optional_type_proto(SEQUENCE), "optional(seq(tensor(float)))"),
        (helper.make_map_type_proto(TensorProto.INT64, SEQUENCE), None),
        (helper.make_tensor_type_proto(TensorProto.UNDEFINED, None), None),
        (TypeProto(), None),
    ],
)
def test_types_are_spelled_as_schemas_do(type_: TypeProto, expected: str | None) -> None:
    assert type_string(type_, "here") == expected


def test_an_element_type_that_onnx_lacks_is_refused() -> None:
    with pytest.raises(GraphError, match="here: unknown element type; found 99"):
        type_string(helper.make_tensor_type_proto(99, None), "here")


def test_a_type_that_is_nested_too_deep_is_refused() -> None:
    type_ = SEQUENCE
    for _ in range(65):
        type_ = helper.make_sequence_type_proto(type_)
    with pytest.raises(GraphError, match="the type is nested too deep"):
        type_string(type_, "here")


def test_a_dimension_without_a_number_is_free() -> None:
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, "N", -1, None])
    assert shape_of(info) == [2, None, None, None]
    assert shape_of(helper.make_tensor_value_info("x", TensorProto.FLOAT, [])) == []
    assert shape_of(helper.make_tensor_value_info("x", TensorProto.FLOAT, None)) is None
    assert shape_of(ValueInfoProto(name="x")) is None


def declarations() -> list[ValueInfoProto]:
    first = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2], doc_string="first")
    second = helper.make_tensor_value_info("x", TensorProto.FLOAT, [-1], doc_string="second")
    first.metadata_props.add(key="a", value="1")
    second.metadata_props.add(key="b", value="2")
    return [first, second, ValueInfoProto(name="x")]


def test_of_several_declarations_the_later_counts() -> None:
    info = ValueInfoProto(name="y")
    declare(info, declarations(), TensorProto.FLOAT16, notes=True)
    expected = helper.make_tensor_value_info("y", TensorProto.FLOAT16, [None], "second")
    for key, value in ("a1", "b2"):
        expected.metadata_props.add(key=key, value=value)
    assert info == expected


def test_a_declaration_may_leave_notes_out() -> None:
    info = ValueInfoProto(name="y")
    declare(info, declarations(), None, notes=False)
    assert info == helper.make_tensor_value_info("y", TensorProto.FLOAT, [None])


def test_the_element_of_a_container_is_declared() -> None:
    info = ValueInfoProto(name="y")
    declare(info, [ValueInfoProto(type=SEQUENCE)], TensorProto.FLOAT16, notes=True)
    assert type_string(info.type, "here") == "seq(tensor(float16))"
    assert type_string(SEQUENCE, "here") == "seq(tensor(float))"
