"""The data of the pictures."""

from __future__ import annotations

import math

from amp_rewrite.numerics.search.tolerance import Tolerance
from amp_rewrite.numerics.search.tuning import Tuning
from amp_rewrite.page.pictures import search_table
from amp_rewrite.rewriting.plan.options import RewriteOptions


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
