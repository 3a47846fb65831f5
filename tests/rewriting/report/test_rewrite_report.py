"""What a result is for notebooks and for other functions."""

from __future__ import annotations

from typing import Any

import pytest
from onnx import parser

import amp_rewrite as amp

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
agraph (float[2,4] x, int64[1] i) => (float[2,4] y, int64[1] j)
<float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}>
{ m = MatMul(x, w)
  e = Exp(m)
  y = MatMul(e, w)
  j = Identity(i) }
"""


@pytest.fixture(scope="module")
def result() -> Any:
    return amp.rewrite(parser.parse_model(MODEL))


def test_what_has_a_model_becomes_a_proto(result: Any) -> None:
    assert amp.to_proto(result) == amp.to_proto(result.model)
    with pytest.raises(amp.AmpError, match="not a model"):
        amp.to_proto(result.report)
