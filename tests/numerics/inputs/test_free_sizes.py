"""The sizes of free dimensions."""

from __future__ import annotations

from typing import Any

import pytest

from amp_rewrite.numerics.emulate.emulated_feeds import FeedSpec
from amp_rewrite.numerics.inputs.free_sizes import FreeSizes


def spec(*shape: Any, type_: str = "tensor(int64)") -> FeedSpec:
    return FeedSpec("x", type_, shape, optional=False)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("past_sequence_length + sequence_length", 32),
        ("past_sequence_length + 1", 17),
        ("2*seq", 32),
        ("seq // 4", 4),
        ("seq - 20", 0),
        ("total_sequence_length", 32),
        ("batch_size + 1", 2),
    ],
)
def test_a_sum_or_product_of_names_follows_from_them(name: str, size: int) -> None:
    assert FreeSizes().shape_of(spec("batch", name)) == (1, size)
