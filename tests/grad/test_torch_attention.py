from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gradient_table import NEWEST, Array, Constant, Row
from torch_table import TorchRow, check_torch

SHAPES = ((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 4))
SOME = np.array([[True, False, True, True, False], [True] * 5, [False, True, False, False, True]])
NONE = SOME & np.array([[True], [False], [True]])


def _attention(mask: Array | None, *, opset: int = 23, **options: Any) -> TorchRow:
    causal = {"is_causal": 1} if options.get("is_causal") else {}
    scale = {"scale": options["scale"]} if "scale" in options else {}
    inputs = SHAPES if mask is None else (*SHAPES, Constant(mask))
    row = Row("Attention", inputs, {**causal, **scale}, opset=opset, reference=True)

    def function(t: Any, q: Any, k: Any, v: Any) -> Any:
        given = None if mask is None else t.tensor(mask)
        return t.nn.functional.scaled_dot_product_attention(q, k, v, given, **options)

    return TorchRow(row, function)


def _rotated(t: Any, x: Any, cosine: Any, sine: Any) -> Any:
    """Return x (N, heads, T, size) rotated by angles (N, T, size / 2), halves paired."""
    first, second = x.chunk(2, -1)
    c, s = cosine.unsqueeze(1), sine.unsqueeze(1)
    return t.cat([first * c - second * s, first * s + second * c], -1)


ROWS = [
    _attention(None),
    _attention(None, opset=NEWEST, is_causal=True),
    _attention(None, scale=0.3),
    _attention(SOME),
    _attention(SOME, opset=NEWEST, scale=0.5),
    # Newer versions of PyTorch give 0 for what is masked altogether, as the standard does.
    _attention(NONE),
    _attention(NONE, opset=NEWEST),
    _attention(np.where(SOME, 0.0, -np.inf)),
    TorchRow(
        Row(
            "RotaryEmbedding",
            ((2, 3, 4, 6), (2, 4, 3), (2, 4, 3)),
            opset=23,
            reference=True,
        ),
        _rotated,
    ),
]


@pytest.mark.parametrize("case", ROWS, ids=str)
def test_the_gradient_of_attention_equals_that_of_torch(case: TorchRow) -> None:
    check_torch(case)
