"""The table of what ONNX Runtime fuses."""

from __future__ import annotations

import json

import pytest

from amp_rewrite import fusions, targets
from amp_rewrite.dtypes import BFLOAT16, FLOAT16, FLOAT32, DType
from amp_rewrite.errors import KernelTableError
from amp_rewrite.graph.patterns import scaled_products
from amp_rewrite.graph.patterns.library import PATTERNS
from amp_rewrite.kernels import KernelTable

CUDA = KernelTable.load(targets.CUDA)
TABLE = fusions.load(targets.ONNX_RUNTIME)


def test_every_row_has_a_pattern_and_every_target_a_table_that_is_there() -> None:
    assert set(TABLE) <= {scaled_products.NAME, *(pattern.name for pattern in PATTERNS)}
    for target in targets.TARGETS:
        assert fusions.load(target.fusions) == (TABLE if target.fusions else {})


@pytest.mark.parametrize(
    ("pattern", "opset", "given", "result", "runs"),
    [
        ("LayerNormalization", 13, FLOAT16, FLOAT32, True),
        ("LayerNormalization", 13, BFLOAT16, FLOAT32, False),
        ("LayerNormalization", 13, BFLOAT16, BFLOAT16, True),
        ("LayerNormalization", 17, FLOAT16, FLOAT32, False),
        ("LayerNormalization", 17, FLOAT16, FLOAT16, True),
        ("RMSNormalization", 17, FLOAT16, FLOAT32, True),
        ("RMSNormalization", 23, BFLOAT16, FLOAT32, False),
        ("Gelu", 17, FLOAT16, FLOAT16, True),
        ("BiasGelu", 17, BFLOAT16, BFLOAT16, True),
        ("ScaledMatMul", 17, BFLOAT16, BFLOAT16, True),
    ],
)
def test_the_kernel_table_decides(
    pattern: str, opset: int, given: DType, result: DType, runs: bool
) -> None:
    assert TABLE[pattern].runs(CUDA, opset, given, result) is runs


def test_without_a_kernel_table_one_type_runs_and_two_do_not() -> None:
    assert TABLE["RMSNormalization"].runs(None, 17, FLOAT16, FLOAT16)
    assert not TABLE["RMSNormalization"].runs(None, 17, FLOAT16, FLOAT32)


def test_a_table_of_another_format_is_refused() -> None:
    with pytest.raises(KernelTableError, match="unknown format of a table of fusions; found 2"):
        fusions.parse({"version": 2, "fusions": []})


def test_a_table_that_is_not_there_is_an_error() -> None:
    with pytest.raises(KernelTableError, match="the table of fusions cannot be read"):
        fusions.load("nothing_1.0")


def test_the_file_says_where_it_is_from() -> None:
    path = targets.DATA.joinpath("fusions", f"{targets.ONNX_RUNTIME}.json")
    assert {"runtime", "source"} <= json.loads(path.read_text("utf-8")).keys()
