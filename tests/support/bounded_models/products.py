"""Operators that sum products: the largest sum of magnitudes of weights carries bound and error."""

from __future__ import annotations

from typing import Any

import numpy as np

from bounded_models.elementwise import product_error
from bounded_models.scope import Row, Scope, Value


def weighted(scope: Scope, y: str, x: Value, weight: np.ndarray, terms: int) -> None:
    """Keep a sum of `terms` products of x and a weight."""
    largest = Value("", float(np.abs(weight).max()), 0.0)
    w = Value("", largest.bound, scope.rounding(Value("", largest.bound, 1e-30)))
    scope.keep(y, terms * x.bound * w.bound, terms * product_error(x, w))


def matmul(scope: Scope) -> None:
    x = scope.pick()
    name, weight = scope.weight(4, 4)
    weighted(scope, scope.add("MatMul", [x, name])[0], x, weight, 4)


def gemm(scope: Scope) -> None:
    x = scope.pick()
    name, weight = scope.weight(4, 4)
    y = scope.add("Gemm", [x, name], alpha=0.5, transB=int(scope.rng.integers(2)))[0]
    weighted(scope, y, x, weight, 4)


def einsum(scope: Scope) -> None:
    x = scope.pick()
    name, weight = scope.weight(4, 4)
    weighted(scope, scope.add("Einsum", [x, name], equation="ij,jk->ik")[0], x, weight, 4)


def squares(scope: Scope) -> None:
    """Multiply two values: (2, 4) by (4, 2), and spread the (2, 2) of it."""
    a, b = scope.pick(), scope.pick()
    turned = scope.add("Transpose", [b], perm=[1, 0])[0]
    y = scope.add("MatMul", [a, turned])[0]
    inner = scope.rounded(Value(y, 4 * a.bound * b.bound, 4 * product_error(a, b)))
    inner = scope.rounded(inner)
    wide = scope.add("Concat", [y, y], axis=1)[0]
    scope.keep(wide, inner.bound, inner.error)


def on_image(op: str, kernel: tuple[int, ...], terms: int, **attributes: Any) -> Row:
    """Return the row of a convolution of the value as an image of one row: (1, 2, 1, 4)."""

    def row(scope: Scope) -> None:
        x = scope.pick()
        name, weight = scope.weight(*kernel)
        image = scope.add("Reshape", [x, scope.constant([1, 2, 1, 4], np.int64)])[0]
        made = scope.add(op, [image, name], pads=[0, 1, 0, 1], **attributes)[0]
        y = scope.add("Reshape", [made, scope.constant([2, 4], np.int64)])[0]
        weighted(scope, y, x, weight, terms)

    return row


def batch_normalization(scope: Scope) -> None:
    x = scope.pick()
    flat = scope.add("Transpose", [x], perm=[1, 0])[0]  # two channels behind four examples
    ones, zeros = scope.constant([0.75, 0.5]), scope.constant([0, 0])
    made = scope.add("BatchNormalization", [flat, ones, zeros, zeros, scope.constant([1, 1])])[0]
    y = scope.add("Transpose", [made], perm=[1, 0])[0]
    scope.keep(y, x.bound, x.error + scope.rounding(x))


ROWS: dict[str, Row] = {
    "MatMul": matmul,
    "Gemm": gemm,
    "Einsum": einsum,
    "MatMul of two": squares,
    "Conv": on_image("Conv", (2, 2, 1, 3), 6),
    "depthwise Conv": on_image("Conv", (2, 1, 1, 3), 3, group=2),
    "ConvTranspose": on_image("ConvTranspose", (2, 2, 1, 3), 6),
    "BatchNormalization": batch_normalization,
}
