"""The CUDA provider, on libraries that compute nothing: rewritten models load and stay fused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from cuda_stub import needs_stub, placed
from group_models import FORMS, model_around, reshaped_gelu
from onnx import TensorProto, helper

import amp_rewrite as amp
from amp_rewrite.dtypes import Precision

pytestmark = needs_stub

PRECISIONS: tuple[Precision, ...] = ("float16", "bfloat16")

NOT_FUSED = {("fast-gelu-power", "bfloat16")}
"""What ONNX Runtime fuses neither in bfloat16 nor behind a Cast to float32."""


def operators_of(models: dict[str, onnx.ModelProto], folder: Path) -> dict[str, Counter[str]]:
    """Return the operators of each model's optimised graph on the CUDA provider, without Casts."""
    paths = {name: folder / f"{number}.onnx" for number, name in enumerate(models)}
    for name, path in paths.items():
        onnx.save(models[name], path)
    found = placed(paths.values())
    return {name: found[path] for name, path in paths.items()}


def rewritten(model: onnx.ModelProto, precision: Precision) -> onnx.ModelProto:
    return amp.to_proto(amp.rewrite(model, precision=precision).model)


@pytest.mark.parametrize("opset", [13, 17, 18, 21])
def test_groups_stay_fused(opset: int, tmp_path: Path) -> None:
    models: dict[str, onnx.ModelProto] = {}
    for name, form in FORMS.items():
        models[name] = model_around(form, opset)
        for precision in PRECISIONS:
            models[f"{name} {precision}"] = rewritten(models[name], precision)
    found = operators_of(models, tmp_path)
    for name, form in FORMS.items():
        assert found[name][form.operator] == 1, (name, found[name])
        for precision in PRECISIONS:
            if (name, precision) not in NOT_FUSED:
                assert found[f"{name} {precision}"] == found[name], (name, precision)


def test_a_moved_input_of_a_gelu_by_a_power_leaves_it_fused(tmp_path: Path) -> None:
    models = {"float32": reshaped_gelu()}
    for precision in PRECISIONS:
        models[precision] = rewritten(models["float32"], precision)
    found = operators_of(models, tmp_path)
    assert {name: operators["FastGelu"] for name, operators in found.items()} == dict.fromkeys(
        models, 1
    )


@pytest.mark.parametrize("name", ["layer-normalization", "layer-normalization-one-over"])
def test_a_residual_in_front_of_a_normalization_stays_part_of_it(name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    residual = f"g = MatMul(f, w)\nh = Add(f, g)\n{form.body}"
    models = {"float32": model_around(form._replace(body=residual), made="f")}
    for precision in PRECISIONS:
        models[precision] = rewritten(models["float32"], precision)
    found = operators_of(models, tmp_path)
    assert found["float32"]["SkipLayerNormalization"] == 1
    assert found["float16"] == found["bfloat16"] == found["float32"]


@pytest.mark.parametrize("bits", [4, 8])
def test_products_with_weights_of_a_few_bits_are_one_operator_in_float16(
    bits: int, tmp_path: Path
) -> None:
    size, block, stored = 64, 32, {4: TensorProto.INT4, 8: TensorProto.INT8}[bits]
    numbers = [(i * 7 + i // size) % 15 - 7 for i in range(size * size)]
    scales = np.full((size // block, size), 0.02, np.float32)
    dequantize = helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=0, block_size=block)
    product, tanh = (
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Tanh", "m", "y"),
    )
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, size]) for name in "xy"]
    constants = [helper.make_tensor("q", stored, (size, size), numbers)]
    constants.append(onnx.numpy_helper.from_array(scales, "s"))
    graph = helper.make_graph([dequantize, product, tanh], "g", ends[:1], ends[1:], constants)
    opsets = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    models = {"float32": model, "float16": rewritten(model, "float16")}
    found = operators_of(models, tmp_path)
    assert found["float16"] == found["float32"] == {"MatMulNBits": 1, "Tanh": 1}


BEHIND = {
    "residual": "z = Add(h, o)\ny = MatMul(z, w)",
    "float32-residual": "k = Exp(h)\nz = Add(k, o)\ny = MatMul(z, w)",
    "output": "y = Identity(o)",
    "relu": "r = Relu(o)\ny = MatMul(r, w)",
}


@pytest.mark.parametrize("name", ["layer-normalization", "rms-normalization"])
def test_normalizations_stay_fused_whatever_is_around(name: str, tmp_path: Path) -> None:
    models: dict[str, onnx.ModelProto] = {}
    for opset in (13, 17):
        for kind, behind in BEHIND.items():
            model = model_around(FORMS[name], opset, behind)
            models[f"{opset} {kind}"] = model
            for precision in PRECISIONS:
                models[f"{opset} {kind} {precision}"] = rewritten(model, precision)
    found = operators_of(models, tmp_path)
    operator = FORMS[name].operator
    without = {n for n, operators in found.items() if not any(operator in o for o in operators)}
    assert without == set()
