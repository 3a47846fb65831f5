"""The data of the pictures."""

from __future__ import annotations

import json
import math

import pytest

from amp_rewrite.dtypes import BFLOAT16, FLOAT16, DType
from amp_rewrite.numerics.search.tolerance import Tolerance
from amp_rewrite.numerics.search.tuning import Tuning
from amp_rewrite.page.pictures import search_table, short, type_range
from amp_rewrite.rewriting.plan.options import RewriteOptions


def test_what_json_has_no_number_for_is_text() -> None:
    assert [short(n) for n in (0.0, 1 / 3, 12345.0)] == [0.0, 0.333, 12300.0]
    assert json.loads(json.dumps([short(math.inf), short(math.nan)])) == ["inf", "nan"]


def test_a_search_is_shown_with_all_that_it_tried() -> None:
    tuning = Tuning(
        keep=("a",),
        loss=0.01,
        before=math.inf,
        tolerance=Tolerance("max-relative", 0.02),
        minimal=True,
        smallest=True,
        trials=2,
        rules=(),
        options=RewriteOptions(),
        tried=((0, math.inf), (1, 0.01)),
    )
    assert search_table(tuning) == {
        "metric": "max-relative",
        "limit": 0.02,
        "kept": [0, 1],
        "loss": ["inf", 0.01],
        "chosen": 1,
    }
    assert search_table(None) is None


@pytest.mark.parametrize(
    ("low", "exponents"), [(FLOAT16, (16, -14, -24)), (BFLOAT16, (128, -126, -133))]
)
def test_the_range_of_a_type_is_told_in_powers_of_two(
    low: DType, exponents: tuple[int, int, int]
) -> None:
    found = type_range(low)
    assert (math.ceil(found["largest"]), found["normal"], found["smallest"]) == exponents
