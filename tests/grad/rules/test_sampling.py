"""GridSample and RoiAlign: what is read between the elements of an image."""

from __future__ import annotations

import numpy as np
import pytest
from gradient_table import (
    NEWEST,
    Array,
    Constant,
    Fed,
    Row,
    check_difference,
    check_float32,
    normal,
    second_views,
)


def inside(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Places from -0.9 to 0.9, none of which is at an element of an axis of 2 to 5."""
    return np.round(rng.uniform(-0.9, 0.9, shape), 1) + 0.017


def around(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Places from -2.6 to 2.6, many of which are outside."""
    return np.round(rng.uniform(-2.6, 2.6, shape), 1) + 0.017


def regions(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Regions x1, y1, x2, y2 in an image of 8 x 9, the last of which leaves it."""
    found = np.array(
        [[0.33, 1.21, 5.13, 6.41], [2.23, 0.17, 6.71, 3.37], [-3.13, 2.3, 9.77, 12.83]]
    )
    return found[: shape[0]]


IMAGE, GRID = (2, 3, 4, 5), (2, 3, 2, 2)
SAMPLED = [
    *(
        Row(
            "GridSample",
            (IMAGE, GRID if mode != "nearest" else Fed(made(np.random.default_rng(2), GRID))),
            {"mode": mode, **attributes},
            opset,
            (normal, made),
        )
        for opset, mode in [(20, "nearest"), (20, "linear"), (NEWEST, "cubic")]
        for made, attributes in [
            (inside, {}),
            (inside, {"align_corners": 1}),
            (around, {"padding_mode": "zeros"}),
            (around, {"padding_mode": "border"}),
            (around, {"padding_mode": "border", "align_corners": 1}),
            (around, {"padding_mode": "reflection"}),
            (around, {"padding_mode": "reflection", "align_corners": 1}),
        ]
    ),
    Row("GridSample", ((1, 2, 1, 3), (1, 2, 2, 2)), {"align_corners": 1}, 20, (normal, around)),
    Row("GridSample", ((1, 2, 2, 3, 4), (1, 2, 1, 3, 3)), {}, 22, (normal, around)),
    Row("GridSample", (IMAGE, (2, 0, 2, 2)), {}, 20, (normal, inside), note="no places"),
]


FIRST, MIXED = Fed(np.array([0, 0])), Constant(np.array([1, 0, 1]))
ALIGNED = [
    *(
        Row(
            "RoiAlign",
            ((2, 3, 8, 9), (3, 4), MIXED),
            attributes,
            opset,
            (normal, regions),
            kernel=opset == 16,
        )
        for opset, attributes in [
            (16, {"output_height": 2, "output_width": 3, "sampling_ratio": 2}),
            (16, {"output_height": 3, "output_width": 2}),
            (22, {"coordinate_transformation_mode": "output_half_pixel", "output_height": 2}),
            (NEWEST, {"spatial_scale": 0.5, "output_width": 2, "sampling_ratio": 1}),
        ]
    ),
    Row("RoiAlign", ((1, 2, 8, 9), (2, 4), FIRST), {"output_height": 2}, 16, (normal, regions)),
    Row("RoiAlign", ((1, 2, 8, 9), (0, 4), Fed([])), {"output_width": 2}, 16, (normal, regions)),
]
ROWS = [*SAMPLED, *ALIGNED]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_gradient_of_a_sampled_image_equals_the_difference_quotient(row: Row) -> None:
    check_difference(row, static=True)


@pytest.mark.share(3)
@pytest.mark.parametrize("row", second_views(ROWS), ids=str)
def test_the_gradient_of_a_sampled_image_needs_no_static_lengths(row: Row) -> None:
    check_difference(row, static=False)


@pytest.mark.share(3)
@pytest.mark.parametrize("row", second_views(ROWS), ids=str)
def test_the_gradient_of_a_sampled_image_runs_in_float32(row: Row) -> None:
    if row.kernel:
        check_float32(row)
