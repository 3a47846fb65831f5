"""Which targets take a model, from Python."""

from __future__ import annotations

import low_models

from amp_rewrite.numerics.safety_check import check
from amp_rewrite.numerics.target_table import check_targets


def test_a_row_says_what_check_says_of_its_target() -> None:
    model = low_models.t5_encoder()
    table = check_targets(model, run=False)
    for row in table.rows:
        if row.target == "openvino":
            continue
        alone = check(model, run=False, target=row.target)
        assert row.right == alone.ok
        assert row.share == alone.result.report.summary.compute_converted
    assert "Pow" in table.to_text()
    assert repr(table).count("\n") == 0
