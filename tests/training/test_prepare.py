"""What becomes of a model that is prepared for gradients."""

import onnx
import onnx_ir as ir
import pytest

from amp_rewrite.errors import GradientError
from amp_rewrite.training.prepare import prepare


def exponential(opset: int, ir_version: int) -> ir.Model:
    header = f'<ir_version: {ir_version}, opset_import: ["": {opset}]>'
    return ir.from_proto(
        onnx.parser.parse_model(f"{header} g (float x) => (float y) {{ y = Exp(x) }}")
    )


def test_an_old_opset_is_refused_with_what_to_do() -> None:
    with pytest.raises(
        GradientError, match=r"ai\.onnx 12; expected ai\.onnx 13.*version_converter"
    ):
        prepare(exponential(12, 7))


def test_models_from_before_bare_initializers_are_brought_up() -> None:
    model = exponential(18, 3)
    prepare(model)
    assert model.ir_version == 4
