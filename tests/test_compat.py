"""Other converters' arguments: what they mean here, against what the converters make of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.compat import convert_float_to_float16
from amp_rewrite.errors import AmpWarning, OptionError

TEXT = """g (float[2,4] x) => (float[2,4] y)
  <float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}> {
  [one] h = MatMul(x, w) [act] r = Relu(h) [two] y = MatMul(r, w) }"""
FLOAT, FLOAT16 = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16


def others() -> list[Callable[..., onnx.ModelProto]]:
    common = pytest.importorskip("onnxconverter_common.float16")
    return [common.convert_float_to_float16]


def ends(model: onnx.ModelProto) -> list[int]:
    return [v.type.tensor_type.elem_type for v in (*model.graph.input, *model.graph.output)]


def low_nodes(model: onnx.ModelProto) -> set[str]:
    types = amp.rewrite(model, deny_nodes=[]).context.type_graph.types
    flat = amp.rewrite(model).flat
    return {
        flat.node_names[n]
        for n in range(flat.n_nodes)
        if flat.called(n).op_type != "Cast" and types[flat.outputs_of(n)[0]] == "tensor(float16)"
    }


def test_every_argument_of_onnxconverter_common_is_one() -> None:
    ours = inspect.signature(convert_float_to_float16).parameters
    for function in others():
        assert set(inspect.signature(function).parameters) <= set(ours)
        assert list(inspect.signature(function).parameters) == list(ours)[:8]


def test_by_default_inputs_and_outputs_become_low_as_elsewhere() -> None:
    model = parse(TEXT)
    before = model.SerializeToString()
    found = convert_float_to_float16(model)
    assert ends(found) == [FLOAT16, FLOAT16]
    assert all(ends(f(parse(TEXT))) == [FLOAT16, FLOAT16] for f in others())
    assert model.SerializeToString() == before
    onnx.checker.check_model(found, full_check=True)


def test_inputs_and_outputs_are_kept_all_or_some() -> None:
    assert ends(convert_float_to_float16(parse(TEXT), keep_io_types=True)) == [FLOAT, FLOAT]
    assert ends(convert_float_to_float16(parse(TEXT), keep_io_types=["y"])) == [FLOAT16, FLOAT]


def test_blocked_nodes_and_operators_are_left_alone() -> None:
    assert low_nodes(convert_float_to_float16(parse(TEXT))) == {"one", "act", "two"}
    assert "two" not in low_nodes(convert_float_to_float16(parse(TEXT), node_block_list=["two"]))
    blocked = convert_float_to_float16(parse(TEXT), op_block_list=["Relu"])
    assert low_nodes(blocked) == {"one", "two"}


def test_a_file_and_options_of_a_rewrite_are_taken(tmp_path: Path) -> None:
    onnx.save(parse(TEXT), tmp_path / "m.onnx")
    found = convert_float_to_float16(tmp_path / "m.onnx", keep_io_types=True, target="cpu")
    expected = amp.rewrite(tmp_path / "m.onnx", target="cpu")
    assert found == amp.to_proto(expected.model)


def test_constants_of_float32_operators_stay_so_and_that_is_said() -> None:
    with pytest.warns(AmpWarning, match="constants of float32 operators stay float32"):
        made = convert_float_to_float16(parse(TEXT), force_fp16_initializers=True)
    assert made == convert_float_to_float16(parse(TEXT))


@pytest.mark.parametrize(
    "given", [{"force_fp16_inputs": {"MatMul": [0]}}, {"use_bfloat16_as_blocked_nodes_dtype": True}]
)
def test_what_cannot_be_followed_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="cannot be followed"):
        convert_float_to_float16(parse(TEXT), **given)


def test_another_limit_is_warned_of() -> None:
    with pytest.warns(AmpWarning, match="nothing is cut off"):
        convert_float_to_float16(parse(TEXT), max_finite_val=100.0)


def test_a_model_that_is_converted_is_refused_if_asked_for() -> None:
    once = convert_float_to_float16(parse(TEXT))
    assert convert_float_to_float16(once) == once
    with pytest.raises(OptionError, match="has float16 values already"):
        convert_float_to_float16(once, check_fp16_ready=True)


def test_a_node_that_is_not_there_is_an_error() -> None:
    with pytest.raises(OptionError, match="expected 'one'"):
        convert_float_to_float16(parse(TEXT), node_block_list=["on"])
