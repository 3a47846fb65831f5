"""Numbers as people say them."""

from __future__ import annotations

import pytest

from amp_rewrite.rewriting.report.quantities import counted, in_bytes


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1_000, "1.0 kB"),
        (58_430_000, "58.4 MB"),
        (584_300_000, "584 MB"),
        (3_200_000_000_000_000, "3,200 TB"),
    ],
)
def test_bytes_have_a_unit(count: int, text: str) -> None:
    assert in_bytes(count) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 nodes"), (1, "1 node"), (2_000, "2,000 nodes")])
def test_one_is_singular(count: int, text: str) -> None:
    assert counted(count, "node") == text
