"""Feeds: numpy arrays, OrtValues and DLPack tensors, checked against the inputs of a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.base.name_patterns import did_you_mean
from amp_rewrite.dtypes import BFLOAT16
from amp_rewrite.errors import FeedError
from amp_rewrite.grad.builder.known import dims, may_have, symbolic_dims
from amp_rewrite.graph import elements
from amp_rewrite.graph.names import place
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.runtimes.ort.device import HOST
from amp_rewrite.runtimes.ort.ort_values import copy_of, from_dlpack, is_ort_value


@dataclass(frozen=True)
class IndexRange:
    """The integers that an operator takes: from low to below high, which None leaves open.

    `ignored` is allowed besides. They number a `what`: a class or a row. The result `averages` over
    those that are not ignored, or it does not.
    """

    low: int
    high: int | None
    ignored: int | None
    what: str
    where: str
    averages: bool = False


def index_ranges(value: ir.Value) -> Iterator[IndexRange]:
    """Yield the ranges of the operators that read all elements of a value as indices."""
    for use in value.uses():
        node = use.node
        if has(node, Trait.LOSS) and use.idx == 1:
            yield _classes(node)
        elif node.op_type == "Gather" and not node.domain and use.idx == 1:
            yield from _rows(node)
        elif use.idx == 0 and _keeps_all(node):
            yield from index_ranges(node.outputs[0])


def _keeps_all(node: ir.Node) -> bool:
    """Return whether all elements of the first input are in the output, with their values."""
    if node.op_type == "Cast" and not node.domain:
        return node.attributes.get_int("to", 0) in (ir.DataType.INT64, ir.DataType.INT32)
    return has(node, Trait.REARRANGES) and len(node.outputs) == 1


def _classes(node: ir.Node) -> IndexRange:
    """Return the class numbers that a loss takes; scores are (N, C, ...)."""
    scores = None if node.inputs[0] is None else dims(node.inputs[0])
    ignored = node.attributes.get("ignore_index")
    return IndexRange(
        low=0,
        high=scores[1] if scores is not None and len(scores) > 1 else None,
        ignored=None if ignored is None else ignored.as_int(),
        what="class",
        where=place(node),
        averages=node.attributes.get_string("reduction", "mean") == "mean",
    )


def _rows(node: ir.Node) -> Iterator[IndexRange]:
    """Yield the row numbers that a Gather takes; those below 0 count from the end."""
    table = None if node.inputs[0] is None else dims(node.inputs[0])
    length = table[node.attributes.get_int("axis", 0)] if table else None
    if length is not None:
        yield IndexRange(-length, length, None, "row", place(node))


Array = np.ndarray[Any, Any]


def non_finite(tensors: Mapping[str, Any]) -> dict[str, int]:
    """Return input -> how many of its numbers are not finite, where there are any."""
    counts: dict[str, int] = {}
    for name, array in ((name, on_host(tensor)) for name, tensor in tensors.items()):
        if array.dtype.kind == "f" or array.dtype == BFLOAT16.ir.numpy():
            counts[name] = int((~np.isfinite(array)).sum())
    return {name: count for name, count in counts.items() if count}


def on_host(fed: Any) -> Array:
    """Return what was fed, which may lie on a device, as an array."""
    if not isinstance(fed, np.ndarray) and hasattr(fed, "__dlpack__"):
        fed = from_dlpack(fed)
    return copy_of(fed) if is_ort_value(fed) else np.asarray(fed)


def check_range(name: str, array: Array, limits: IndexRange) -> None:
    """Refuse integers out of range."""
    if limits.averages and limits.ignored is not None and (array == limits.ignored).all():
        raise FeedError(
            f"the feed {name!r} holds no {limits.what} that counts: the mean of nothing is NaN",
            where=limits.where,
            found=f"{limits.ignored}, which is ignored, {array.size} times",
            remedy="leave such a batch out",
        )
    wrong = array < limits.low
    if limits.high is not None:
        wrong |= array >= limits.high
    if limits.ignored is not None:
        wrong &= array != limits.ignored
    if not wrong.any():
        return
    top = "" if limits.high is None else f" to {limits.high - 1}"
    other = "" if limits.ignored is None else f", or {limits.ignored}"
    remedy = "number the classes from 0, or let the loss ignore this number by ignore_index"
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    place_of_first = f" at {list(index)}" if index else ""
    raise FeedError(
        f"the feed {name!r} holds a {limits.what} that does not exist",
        where=limits.where,
        found=f"{array[index]}{place_of_first}; {int(wrong.sum())} of {array.size} are wrong",
        expected=f"integers from {limits.low}{top}{other}",
        remedy=remedy if limits.what == "class" else "feed numbers of rows of the table",
    )


Feeds = Mapping[str, Any]
"""Input name -> numpy array, onnxruntime.OrtValue, an object with `__dlpack__`, or numbers in
(nested) lists."""


_ON_HOST = 1
"""kDLCPU of DLPack's device types."""


def as_feeds(given: Feeds) -> Feeds:
    """Return feeds, checked to be a mapping."""
    if not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        raise FeedError(
            "feeds must be a mapping from input names to arrays", found=type(given).__name__
        )
    return given


class Inputs:
    """The data inputs of a step, and what fits them."""

    def __init__(self, graph: ir.Graph, names: tuple[str, ...]) -> None:
        """Read the declarations of the data inputs of a step, and what its operators admit."""
        values = {str(v.name): v for v in graph.inputs}
        self.declared = {name: values[name] for name in names}
        self._defaults = {name for name in names if name in graph.initializers}
        whole = {n: v for n, v in self.declared.items() if v.dtype and v.dtype.is_integer()}
        self._ranges = {name: tuple(index_ranges(value)) for name, value in whole.items()}

    @property
    def fixed_batch(self) -> bool:
        """Whether the first axis of an input has a fixed length."""
        return any(isinstance(first, int) for first in self._firsts.values())

    @property
    def _firsts(self) -> dict[str, int | str | None]:
        """Name -> the length of the first axis, of inputs that have one."""
        lengths = {name: symbolic_dims(value) for name, value in self.declared.items()}
        return {name: shape[0] for name, shape in lengths.items() if shape}

    def check(self, feeds: Feeds, needed: frozenset[str]) -> dict[str, Any]:
        """Return the feeds that are needed, as arrays or OrtValues; the others are checked too."""
        for name in feeds:
            if name not in self.declared:
                raise FeedError(
                    f"the step has no input {name!r}",
                    expected=", ".join(self.declared) or "no feeds",
                    remedy=did_you_mean(str(name), self.declared) or "leave it out",
                )
        for name in sorted(needed - feeds.keys() - self._defaults):
            raise FeedError(
                f"the input {name!r} is not fed",
                found=", ".join(feeds) or "no feeds",
                expected=self._expected(name),
                remedy=f"add {name!r} to the feeds",
            )
        lengths: dict[str, tuple[int, str]] = {}
        fed: dict[str, Any] = {}
        for name, content in feeds.items():
            tensor = self._tensor(name, content)
            self._check_dims(name, feed_shape(tensor), lengths)
            if name in needed:
                fed[name] = tensor
        self._check_filled(fed)
        self.refuse(fed)
        return fed

    def refuse(self, tensors: Mapping[str, Any]) -> None:
        """Refuse tensors in host memory with numbers that the step can do nothing useful with."""
        for name, tensor in tensors.items():
            ranges = self._ranges.get(name, ())
            if is_ort_value(tensor) and tensor.device_name() != HOST.kind:
                continue
            array = on_host(tensor) if ranges else np.empty(0)
            for limits in ranges if array.size else ():
                check_range(name, array, limits)

    def _check_filled(self, fed: Mapping[str, Any]) -> None:
        """Refuse a batch without an example: the mean over it is NaN."""
        open_ends = [name for name, length in self._firsts.items() if not isinstance(length, int)]
        batches = {name: feed_shape(fed[name]) for name in open_ends if name in fed}
        if batches and all(shape[0] == 0 for shape in batches.values()):
            raise FeedError(
                "the feeds hold no examples",
                found=", ".join(f"{name}: {list(shape)}" for name, shape in batches.items()),
                expected="at least one",
                remedy="leave the empty batch out",
            )

    def _tensor(self, name: str, content: Any) -> Any:
        """Return an array or OrtValue of the declared type."""
        declared = self.declared[name].dtype
        if is_ort_value(content):
            if elements.from_ir(self.declared[name].type) not in (None, content.data_type()):
                raise self._wrong_type(name, content.data_type())
            return content
        written = isinstance(content, int | float | bool | list | tuple)
        plain = written or isinstance(content, np.ndarray | np.generic)
        if not plain and hasattr(content, "__dlpack__"):
            return self._tensor(name, self._from_dlpack(name, content))
        try:
            array = np.asarray(content)
        except ValueError as error:  # lists of different lengths
            raise FeedError(
                f"the feed {name!r} is not a tensor", found=error, expected=self._expected(name)
            ) from error
        return array if declared is None else self._typed(name, array, declared.numpy(), written)

    def _typed(self, name: str, array: Any, dtype: np.dtype[Any], written: bool) -> Any:
        """Return an array in the declared type, where that loses no more than digits: float64.

        Numbers that were `written` in lists have no type of their own.
        """
        if array.dtype == dtype or (written and not array.size):
            return array.astype(dtype, copy=False)
        kinds = "fiub" if written else "fiu"
        if array.dtype.kind not in kinds or not np.can_cast(array.dtype, dtype, "same_kind"):
            raise self._wrong_type(name, array.dtype)
        with np.errstate(over="ignore"):
            fitted = array.astype(dtype)
        if array.dtype.kind == "f":  # fractions may be rounded
            changed = np.isfinite(array) & ~np.isfinite(fitted)
        else:
            changed = fitted.astype(array.dtype) != array
        if not changed.any():
            return fitted
        if not written:
            raise self._wrong_type(name, array.dtype)
        raise FeedError(
            f"the feed {name!r} holds a number that its element type cannot",
            found=array[changed][0],
            expected=self._expected(name),
            remedy="feed numbers in its range",
        )

    def _from_dlpack(self, name: str, content: Any) -> Any:
        """Return a tensor without a copy: host memory as an array, other as an OrtValue."""
        try:
            kind, _ = content.__dlpack_device__()
            return np.from_dlpack(content) if int(kind) == _ON_HOST else from_dlpack(content)
        except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
            raise FeedError(
                f"the feed {name!r} cannot be handed over by DLPack",
                found=error,
                expected=self._expected(name),
                remedy="feed a detached tensor of a standard type, or a numpy array",
            ) from error

    def _wrong_type(self, name: str, dtype: object) -> FeedError:
        declared = self.declared[name].dtype
        word = "" if declared is None else str(declared.numpy())
        return FeedError(
            f"the feed {name!r} has the wrong element type",
            found=dtype,
            expected=self._expected(name),
            remedy=f"convert it, for example with .astype('{word}')",
        )

    def _check_dims(
        self, name: str, shape: tuple[int, ...], lengths: dict[str, tuple[int, str]]
    ) -> None:
        declared = self.declared[name].shape
        if declared is None:
            return
        if not may_have(self.declared[name], shape):
            length = declared[0] if shape and len(declared) else None
            fits = isinstance(length, int) and may_have(self.declared[name], (length, *shape[1:]))
            raise FeedError(
                f"the feed {name!r} has the wrong shape",
                found=list(shape),
                expected=self._expected(name),
                remedy=f"feed batches of {length} (--batch {length})" if fits else None,
            )
        for dim, length in zip(declared, shape, strict=True):
            symbol = dim.value if isinstance(dim, ir.SymbolicDim) else None
            if symbol is None:
                continue
            expected, other = lengths.setdefault(symbol, (length, name))
            if expected != length:
                raise FeedError(
                    f"the feeds {other!r} and {name!r} disagree about the dimension {symbol!r}",
                    found=f"{expected} and {length}",
                    expected="one length",
                )

    def _expected(self, name: str) -> str:
        value = self.declared[name]
        word = "any type" if value.dtype is None else str(value.dtype.numpy())
        if value.shape is None:
            return f"{word} of any shape"
        dims = (str(d) if isinstance(d, int) else str(d.value or "?") for d in value.shape)
        return f"{word} [{', '.join(dims)}]"


def feed_shape(feed: Any) -> tuple[int, ...]:
    """Return the lengths of a feed; `shape` of an OrtValue is a method."""
    lengths: Any = feed.shape
    if callable(lengths):
        lengths = lengths()
    return tuple(int(n) for n in lengths)
