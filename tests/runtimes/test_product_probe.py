"""Products in a low type, which an engine may make wrong on a machine."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from amp_rewrite.dtypes import BFLOAT16, FLOAT16, DType
from amp_rewrite.runtimes import engines
from amp_rewrite.runtimes.product_probe import product_note
from amp_rewrite.targets import CPU, OPENVINO


def right(model: Any, x: Any) -> Any:
    return x @ model.graph.initializers["w"].const_value.numpy()


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (right, None),
        (lambda m, x: right(m, x).astype(ml_dtypes.bfloat16), None),
        (lambda m, x: 5.5 * right(m, x), "has an error of 450% of its norm"),
        (lambda m, x: right(m, x)[:, ::-1], r"has an error of 1\d\d% of its norm"),
        (lambda m, x: np.full_like(right(m, x), np.nan), "has an error of infinity or NaN"),
    ],
)
def test_a_product_that_is_far_off_is_told(
    made: Callable[[Any, Any], Any], said: str | None
) -> None:
    found = product_note("P", BFLOAT16, made)
    if said is None:
        assert found is None
    else:
        assert found is not None
        assert found.startswith("P computes wrong bfloat16 matrix products on this machine")
        assert re.search(said, found)


def test_this_machine_multiplies_right_on_a_cpu() -> None:
    pytest.importorskip("onnxruntime")
    assert engines.notes_on(CPU, ("float16",)) == ()


@pytest.mark.openvino
@pytest.mark.parametrize("low", [FLOAT16, BFLOAT16], ids=lambda low: low.name)
def test_openvino_is_asked_where_the_processor_has_the_type(
    low: DType, openvino: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines.wrong_products.cache_clear()
    monkeypatch.setattr(engines, "computes_in", lambda _: True)
    assert engines.notes_on(OPENVINO, (low.name,)) == ()
