"""What names a type: the spellings that users of numpy, onnx and PyTorch have."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest

import amp_rewrite as amp
from amp_rewrite.dtypes import low_dtype, type_name
from amp_rewrite.errors import OptionError


class TorchDtype:
    """What torch.float16 and torch.half are to those who do not know PyTorch."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"


FLOAT16 = [
    *("float16", "FP16", " half "),
    *(np.float16, np.dtype("float16"), onnx.TensorProto.FLOAT16, ir.DataType.FLOAT16),
    *(TorchDtype("float16"), TorchDtype("half")),
]
BFLOAT16 = [
    *("bfloat16", "bf16"),
    *(ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16), onnx.TensorProto.BFLOAT16),
    *(ir.DataType.BFLOAT16, TorchDtype("bfloat16")),
]
FLOAT32 = [np.float32, "fp32", onnx.TensorProto.FLOAT, TorchDtype("float32")]
NEITHER = [
    *(None, True, 3.5, "", "float8", np.int8, np.dtype("float64"), onnx.TensorProto.INT64, 99),
    *(TorchDtype("int8"), object(), [("a", "f2")], float, "torch"),
]


@pytest.mark.parametrize("given", FLOAT16)
def test_float16_has_many_names(given: Any) -> None:
    assert low_dtype(given).name == "float16"
    assert amp.RewriteOptions(precision=given).precision == "float16"


@pytest.mark.parametrize("given", BFLOAT16)
def test_bfloat16_has_many_names(given: Any) -> None:
    assert low_dtype(given).name == "bfloat16"


@pytest.mark.parametrize("given", FLOAT32)
def test_float32_is_a_type_but_no_low_one(given: Any) -> None:
    assert type_name(given) == "float32"
    with pytest.raises(OptionError, match="unknown precision"):
        low_dtype(given)


@pytest.mark.parametrize("given", NEITHER)
def test_what_is_no_low_type_is_an_error_in_one_line(given: Any) -> None:
    with pytest.raises(OptionError, match="unknown precision"):
        low_dtype(given)


def test_training_and_the_policy_take_them_too() -> None:
    amp.enable_mixed_precision_graph_rewrite(amp.optimizers.Adam(), precision=np.float16)
    with pytest.raises(OptionError, match="unknown precision"):
        amp.enable_mixed_precision_graph_rewrite(amp.optimizers.Adam(), precision=np.int8)
