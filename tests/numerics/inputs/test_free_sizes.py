"""The sizes of free dimensions."""

from __future__ import annotations

from typing import Any

import pytest

from amp_rewrite.numerics.emulate.emulated_feeds import FeedSpec
from amp_rewrite.numerics.inputs.free_sizes import FreeSizes, has_length


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


@pytest.mark.parametrize(
    ("shape", "grows"),
    [
        (("batch", "seq"), True),
        ((1, 16), False),
        (("batch", 3, "height", "width"), False),
        (("batch", 8, "past_sequence_length", 64), True),
        ((None, 3), False),
    ],
)
def test_lengths_grow_and_batches_and_images_do_not(shape: tuple[Any, ...], grows: bool) -> None:
    image = len(shape) == 4 and "height" in shape
    assert has_length(spec(*shape, type_="tensor(float)" if image else "tensor(int64)")) is grows
