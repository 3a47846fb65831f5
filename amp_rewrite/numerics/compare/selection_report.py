"""How far two selections agree, and how close the numbers are where they do not.

Evidence: that of selections.py: by how little boxes are chosen tells a near tie from a wrong score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from amp_rewrite.base.printable import percent, share
from amp_rewrite.numerics.compare.distance import AGREEMENT, ERROR, is_float
from amp_rewrite.numerics.compare.masked_rows import MASKED
from amp_rewrite.numerics.compare.selections import Selection
from amp_rewrite.numerics.inputs.batches import Array


@dataclass(frozen=True, slots=True)
class SelectionComparison:
    """What a node selects in both models, over all feeds.

    Attributes:
        node: Its name.
        op: Its operator.
        value: The value that says what it selects.
        chosen: How many elements were chosen.
        same: How many of them in both models; place by place where they have an order.
        ties: How many others are near ties: the original's numbers differ by at most 4.5 % of their
            size, which is what a value may be off by.
        margin: The largest difference of the original's numbers between what it chose and what the
            rewritten model chose, relative to their size; None if that is not known.
        told: Whether outputs were compared with the original's selection in a feed.
    """

    node: str
    op: str
    value: str
    chosen: int = 0
    same: int = 0
    ties: int = 0
    margin: float | None = 0.0
    told: bool = False

    @property
    def ok(self) -> bool:
        """Whether 99 % agree or are near ties."""
        return self.same + self.ties >= AGREEMENT * self.chosen

    @property
    def agreement(self) -> float:
        """The share that agrees."""
        return self.same / self.chosen if self.chosen else 1.0

    def merged(self, other: SelectionComparison) -> SelectionComparison:
        """Return both as one."""
        unknown = self.margin is None or other.margin is None
        return replace(
            self,
            chosen=self.chosen + other.chosen,
            same=self.same + other.same,
            ties=self.ties + other.ties,
            margin=None if unknown else max(self.margin or 0.0, other.margin or 0.0),
            told=self.told or other.told,
        )

    def __str__(self) -> str:
        """Return how far the selections agree."""
        name = f"selection {self.op} {self.node or self.value}"
        text = f"{name}: {share(self.agreement, 1)} of {self.chosen:,} choices agree"
        if self.same < self.chosen and self.margin is not None:
            text += (
                f"; elsewhere the original's numbers differ by at most {percent(self.margin)} of "
                f"their size ({self.ties:,} near ties)"
            )
        told = "; outputs are compared for the original's choices" if self.told else ""
        return text + told


@np.errstate(invalid="ignore")  # scores may be infinite
def compared(
    selection: Selection, original: Any, rewritten: Any, values: Mapping[str, Any]
) -> SelectionComparison:
    """Compare what two models selected.

    Args:
        selection: The node.
        original: Its selection in the original.
        rewritten: That in the rewritten model.
        values: What it compares in the original, by name.
    """
    a, b = np.asarray(original), np.asarray(rewritten)
    begun = SelectionComparison(selection.node, selection.op, selection.index)
    # operators: the two whose selections are sets of places
    if selection.op in ("NonZero", "NonMaxSuppression"):
        return _compared_sets(begun, selection, a, b, values)
    if a.shape != b.shape:  # other numbers of choices
        return replace(begun, chosen=max(a.size, b.size), margin=None)
    scores = np.asarray(values[selection.reads[0]]).astype(np.float64)
    axis = selection.axis % max(scores.ndim, 1)
    if selection.op != "TopK" and a.ndim < scores.ndim:
        a, b = np.expand_dims(a, axis), np.expand_dims(b, axis)
    if not selection.in_order:
        a, b = np.sort(a, axis), np.sort(b, axis)
    first, other = (np.take_along_axis(scores, index, axis) for index in (a, b))
    differs = (a != b) & (first != other)
    sizes = np.maximum(np.maximum(np.abs(first), np.abs(other)), _size(scores))
    return _with_margins(begun, a.size, (np.abs(first - other) / sizes)[differs])


def _compared_sets(
    begun: SelectionComparison,
    selection: Selection,
    original: Array,
    rewritten: Array,
    values: Mapping[str, Any],
) -> SelectionComparison:
    """Compare selections that are sets of places: of the rows of NMS, the columns of NonZero."""
    columns = selection.op == "NonZero"
    first, other = (
        {tuple(map(int, row)) for row in (array.T if columns else array)}
        for array in (original, rewritten)
    )
    all_places, places = first | other, sorted(first ^ other)
    if not places:
        return _with_margins(begun, len(all_places), np.zeros(0))
    if columns:
        margins = _margins_of_true(selection, places, values)
    else:
        margins = _margins_of_boxes(selection, places, first | other, values)
    if margins is None:
        return replace(
            begun, chosen=len(all_places), same=len(all_places) - len(places), margin=None
        )
    return _with_margins(begun, len(all_places), margins)


def _with_margins(begun: SelectionComparison, chosen: int, margins: Array) -> SelectionComparison:
    finite = np.where(np.isfinite(margins), margins, np.inf)
    return replace(
        begun,
        chosen=chosen,
        same=chosen - finite.size,
        ties=int(np.count_nonzero(finite <= ERROR)),
        margin=float(finite.max(initial=0.0)),
    )


def _margins_of_true(
    selection: Selection, places: Sequence[tuple[int, ...]], values: Mapping[str, Any]
) -> Array | None:
    """Return how far numbers are from what they are compared with, where that decides a place."""
    sides = [np.asarray(values[name]).astype(np.float64) for name in selection.reads]
    if not sides:
        return None
    if len(sides) == 1:  # what NonZero reads itself
        sides.append(np.zeros(()))
    left, right = np.broadcast_arrays(*sides)
    at = tuple(np.array(places).T)
    if len(at) != left.ndim or any(np.max(i) >= n for i, n in zip(at, left.shape, strict=True)):
        return None
    near = np.maximum(np.maximum(np.abs(left[at]), np.abs(right[at])), _size(left))
    return np.abs(left[at] - right[at]) / near


def _margins_of_boxes(
    selection: Selection,
    places: Sequence[tuple[int, ...]],
    chosen: set[tuple[int, ...]],
    values: Mapping[str, Any],
) -> Array:
    """Return by how little it was decided that a box is in one selection and not in the other.

    That is by its score against the threshold, against that of a box which it overlaps or the last
    one that was taken, or by an overlap against its threshold; the closest counts.
    """
    boxes, scores = (np.asarray(values[n]).astype(np.float64) for n in selection.reads[:2])
    overlap_limit, score_limit = (
        float(np.asarray(values[name]).reshape(-1)[0]) if name else 0.0
        for name in selection.reads[3:5]
    )
    margins: list[float] = []
    for place in places:
        batch, kind, box = place
        rivals = [r[2] for r in chosen if r[:2] == (batch, kind) and r != place]
        score, others = scores[batch, kind, box], scores[batch, kind, rivals]
        distances = [abs(score - score_limit) / max(abs(score), abs(score_limit), 1e-30)]
        if rivals:
            overlaps = _overlaps(boxes[batch, box], boxes[batch, rivals], selection.corners)
            distances.append(float(np.abs(overlaps - overlap_limit).min()))
            near = (overlaps > overlap_limit) | (others == others.min())
            apart = np.abs(score - others) / np.maximum(np.maximum(abs(score), others), 1e-30)
            distances.append(float(apart[near].min()))
        margins.append(min(distances))
    return np.array(margins)


def _overlaps(box: Array, others: Array, corners: bool) -> Array:
    """Return the intersection over union of a box (4) with others (n, 4)."""
    one, many = _corners(box[None], corners), _corners(others, corners)
    low, high = np.maximum(one[:, :2], many[:, :2]), np.minimum(one[:, 2:], many[:, 2:])
    common = np.prod(np.maximum(high - low, 0), axis=1)
    areas = [np.prod(each[:, 2:] - each[:, :2], axis=1) for each in (one, many)]
    union = areas[0] + areas[1] - common
    return np.where(union > 0, common / np.maximum(union, 1e-30), 0.0)


def _corners(boxes: Array, corners: bool) -> Array:
    """Return boxes as two corners, the smaller one first."""
    if corners:
        first, last = boxes[:, :2], boxes[:, 2:]
    else:
        first, last = boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2
    return np.concatenate([np.minimum(first, last), np.maximum(first, last)], axis=1)


def _size(scores: Array) -> float:
    """Return the root of the mean square of scores, without the fill of a mask."""
    counted = scores[np.isfinite(scores) & (scores > MASKED)] if is_float(scores) else scores
    size = float(np.sqrt(np.mean(np.square(counted)))) if counted.size else 0.0
    return max(size, float(np.finfo(np.float32).tiny))
