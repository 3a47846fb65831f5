"""The sparse gradient of a table."""

from __future__ import annotations

from typing import NamedTuple

import onnx_ir as ir


class IndexedSlices(NamedTuple):
    """The gradient of a table of which only some rows were read (TensorFlow's IndexedSlices).

    The dense gradient is zero but for `dense[indices[i]] += values[i]`; indices may repeat.
    """

    values: ir.Value  # (M, *row), the table's float type
    indices: ir.Value  # (M,) int64, not negative
    dense_shape: ir.Value | None = None  # (1 + rank of a row,) int64; None: the variable tells
