"""The sizes of free dimensions: one for each name, and sums of them for names like "a + b".

Evidence: that of plausible.py.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping

from amp_rewrite.numerics.emulate.emulated_feeds import FeedSpec

FREE_SIZES = (16, 1, 32, 64, 128, 256, 512, 576, 1024)
"""The lengths tried for a free dimension that no rule knows, in order."""

ATTEMPTS = 2 * len(FREE_SIZES)
"""How many sizes there are to try."""

FEWEST_STEPS = 16
"""The least steps of a made-up sequence that a loop or a recurrent operator goes along."""

IMAGE_CHANNELS = (1, 3, 4)
PICTURE_CHANNELS = (1, 3)
"""Channels of photographs; inputs with 4 are latents more often than pictures with transparency."""

_IMAGE_SIZES = (224, 64, 320, 256, 48, 512)
_MAP_SIZES = (64, 32, 128, 48, 16, 224)
"""Sides of feature maps. Latents of a diffusion model have 4 or 16 channels and an eighth of the
image's side; an attention over 224 * 224 places takes 10 GB a head."""
_BATCH = re.compile(r"(^|[^a-z])(n|b|bs|batch\w*)($|[^a-z])", re.IGNORECASE)
_LENGTH = re.compile("seq|len|time|step|frame|sample|token", re.IGNORECASE)
_TOTAL = {"total_sequence_length": "past_sequence_length + sequence_length"}
"""Names that stand for a sum by convention."""

_ARITHMETIC: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def attempts(*, cached: bool) -> Iterator[int]:
    """Yield the numbers of attempts, for models with caches those with masks over the past too."""
    for attempt in range(ATTEMPTS):
        yield from (attempt, attempt + ATTEMPTS) if cached else (attempt,)


class FreeSizes:
    """The sizes of free dimensions, the same for one name everywhere.

    Free dimensions get 1 for a batch or another first dimension, the side of an image (N, C, H, W)
    or (N, H, W, C), else one length. The later half of the attempts gives axes that loops may go
    along no sizes of their own: silero_v6 has a state along whose axis nothing goes.
    """

    def __init__(self, attempt: int = 0, length: int | None = None) -> None:
        """Choose the sizes of an attempt; from ATTEMPTS on with masks over the past as well."""
        self.cached, attempt = attempt >= ATTEMPTS, attempt % ATTEMPTS
        self.length = FREE_SIZES[attempt % len(FREE_SIZES)] if length is None else length
        self.steps = max(self.length, FEWEST_STEPS)
        self._side = _IMAGE_SIZES[attempt % len(_IMAGE_SIZES)]
        self._map_side = _MAP_SIZES[attempt % len(_MAP_SIZES)]
        self.follows_loops = attempt < len(FREE_SIZES)
        self._inner = self.length if self.follows_loops else 1
        self._named: dict[str, int] = {}

    def keep_length(self, dimension: int | str | None, length: int) -> None:
        """Give a named dimension a length, though it is an input's first one."""
        if isinstance(dimension, str) and dimension and self._compute_size(dimension) is None:
            self._named.setdefault(dimension, length)

    def shape_of(self, spec: FeedSpec) -> tuple[int, ...]:
        """Return the shape of an input."""
        declared = (None,) if spec.shape is None else spec.shape
        sides = image_sides(declared) if is_float(spec) else ()
        channels = declared[6 - sum(sides)] if sides else None  # axes 1 to 3 but the sides
        is_image = not isinstance(channels, int) or channels in PICTURE_CHANNELS
        side = self._side if is_image else self._map_side
        return tuple(
            self._size(d, len(declared) - i, len(declared), side if i in sides else None)
            for i, d in enumerate(declared)
        )

    def _size(
        self, dimension: int | str | None, from_end: int, rank: int, side: int | None = None
    ) -> int:
        if isinstance(dimension, int):
            return dimension
        name = dimension or ""
        computed = self._compute_size(name)
        if computed is not None:
            return computed
        size = self.length if side is None else side
        is_first = from_end == rank and rank > 1 and not _LENGTH.search(name)
        if is_first or _BATCH.search(name):
            size = 1
        elif not name and from_end > 1 and side is None:
            size = self._inner
        return size if dimension is None else self._named.setdefault(dimension, size)

    def _compute_size(self, name: str) -> int | None:
        """Return the value of a name like "past + 2 * n", None for any other name."""
        try:
            body = ast.parse(_TOTAL.get(name, name), mode="eval").body
        except (SyntaxError, ValueError):
            return None
        return self._value(body) if isinstance(body, ast.BinOp) else None

    def _value(self, term: ast.expr) -> int | None:
        if isinstance(term, ast.Name):
            return self._size(term.id, 1, 2)
        if isinstance(term, ast.Constant):
            return term.value if isinstance(term.value, int) else None
        if not isinstance(term, ast.BinOp) or type(term.op) not in _ARITHMETIC:
            return None
        left, right = self._value(term.left), self._value(term.right)
        if left is None or right is None or (isinstance(term.op, ast.FloorDiv) and not right):
            return None
        return max(0, _ARITHMETIC[type(term.op)](left, right))


def image_sides(shape: tuple[int | str | None, ...]) -> tuple[int, ...]:
    """Return the positions of height and width if the shape is that of images."""
    if len(shape) != 4:
        return ()
    is_last = shape[3] in IMAGE_CHANNELS and shape[1] not in IMAGE_CHANNELS
    return (1, 2) if is_last else (2, 3)


def is_float(spec: FeedSpec) -> bool:
    """Tell whether an input, or what is in it, is floating-point."""
    return spec.type.rsplit("(", 1)[-1].rstrip(")") in ("float", "double", "float16", "bfloat16")
