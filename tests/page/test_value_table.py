"""What the page says of values: their types and shapes."""

from __future__ import annotations

import onnx
from page_models import BRANCHES, bare_evidence, result_of

import amp_rewrite as amp
from amp_rewrite.page.page_data import page_data
from amp_rewrite.page.value_table import types_of


def test_types_after_are_those_of_the_rewritten_model() -> None:
    result = result_of(BRANCHES)
    before, after = types_of(result)
    model = onnx.shape_inference.infer_shapes(amp.to_proto(result.model))
    found = {v.name: v.type.tensor_type.elem_type for v in model.graph.value_info}
    names = {int(onnx.TensorProto.FLOAT): "float32", int(onnx.TensorProto.FLOAT16): "float16"}
    checked = 0
    for value, name in enumerate(result.flat.value_names):
        if found.get(name) in names and before[value] == "float32":
            assert after[value] == names[found[name]], name
            checked += 1
    assert checked >= 5
    assert {"float16", "float32"} <= set(after)


def test_what_is_read_through_a_cast_has_the_type_of_the_cast() -> None:
    result = result_of(BRANCHES)
    ports = page_data(result, result.report, bare_evidence())["ports"]
    low = {slot for slot, is_low in ports["cast"] if is_low}
    for cast in result.plan.casts:
        for use in cast.uses:
            slot = result.flat.input_start[use.node] + use.index
            assert use.node == -1 or (slot in low) == (cast.to.name != "float32")
    assert ports["cast"]
