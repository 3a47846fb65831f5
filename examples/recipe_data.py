"""The data of the recipes: scikit-learn's digits as images and as sequences, and a text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Batch = dict[str, Array]

CLS = 17
"""The word in front of every sequence; the darkness of a pixel is 0 to 16."""


def images(first: int, last: int) -> Batch:
    """Return the images of some digits, and which of them each shows, counted from 0."""
    from sklearn.datasets import load_digits

    pixels, digits = load_digits(return_X_y=True)
    chosen = (digits >= first) & (digits <= last)
    x = (pixels[chosen] / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    return {"x": x, "t": digits[chosen].astype(np.int64) - first}


def sequences() -> Batch:
    """Return digits as words, pixel by pixel until only white ones follow, and their masks."""
    from sklearn.datasets import load_digits

    pixels, digits = load_digits(return_X_y=True)
    ids = np.concatenate([np.full((len(pixels), 1), CLS), pixels.astype(np.int64)], 1)
    ends = ids.shape[1] - (ids[:, ::-1] != 0).argmax(1)
    mask = (np.arange(ids.shape[1]) < ends[:, None]).astype(np.int64)
    return {"ids": ids, "attention_mask": mask, "t": digits.astype(np.int64)}


def split(data: Batch) -> tuple[Batch, Batch]:
    """Return four fifths to train with, and the rest, in an order that never changes."""
    count = len(data["t"])
    order = np.random.default_rng(0).permutation(count)
    parts = np.split(order, [count - count // 5])
    train, held_out = ({name: array[part] for name, array in data.items()} for part in parts)
    return train, held_out


def batches(data: Batch, size: int) -> Iterator[Batch]:
    """Return whole batches without end, each epoch in an order of its own."""
    count = len(data["t"])
    epoch = 0
    while True:
        order = np.random.default_rng((1, epoch)).permutation(count)
        for start in range(0, count - size + 1, size):
            yield {name: array[order[start : start + size]] for name, array in data.items()}
        epoch += 1
