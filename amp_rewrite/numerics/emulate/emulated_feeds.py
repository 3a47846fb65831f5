"""The inputs of a model, and feeds of users checked against them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from amp_rewrite import dtypes
from amp_rewrite.base import arguments
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import DataError, OptionError
from amp_rewrite.graph import elements
from amp_rewrite.graph.constants import FIRST_IR_WITH_OVERRIDES
from amp_rewrite.graph.infer import Types

_UNNAMED = "arr_0"
"""The name that numpy.savez(file, array) gives the array."""

_NAMED = 3
"""How many inputs the line names that saves data under the names of the inputs."""

Array = NDArray[Any]
Feeds = Mapping[str, Array]
"""Input name -> array: one batch."""


def is_array(given: object) -> bool:
    """Return whether something is an array or a tensor, of whatever package."""
    return isinstance(given, np.ndarray) or hasattr(given, "__dlpack__")


@dataclass(frozen=True, slots=True)
class FeedSpec:
    """One graph input."""

    name: str
    type: str  # "" if unknown
    shape: tuple[int | str | None, ...] | None  # names of free dimensions; None: unknown rank
    optional: bool  # the model has a default for it

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """The numpy type of its elements, or None if unknown."""
        member = elements.element(self.type)
        return None if member is None else np.dtype(ir.DataType(member).numpy())

    @property
    def is_tensor(self) -> bool:
        """Whether it is a dense tensor."""
        return self.type.startswith("tensor(")

    @property
    def dimensions(self) -> str:
        """Its shape as errors write it; one without a declared rank is "any"."""
        if self.shape is None:
            return "any"
        return f"[{', '.join('?' if d is None else str(d) for d in self.shape)}]"

    def fits(self, array: Array) -> bool:
        """Return whether an array has the declared rank and lengths."""
        if self.shape is None:
            return True
        pairs = zip(self.shape, array.shape, strict=False)
        known = all(d == n for d, n in pairs if isinstance(d, int))
        return known and array.ndim == len(self.shape)

    def remedy(self, array: Array) -> str | None:
        """Return what makes an array of another shape fit, if one step does."""
        ways = {"add the batch axis: array[None]": array[None]}
        for before, after in ((-1, 1), (1, -1)) if array.ndim > 2 else ():  # NHWC, NCHW
            way = f"move the axis of channels: numpy.moveaxis(array, {before}, {after})"
            ways[way] = np.moveaxis(array, before, after)
        length = self.shape[0] if self.shape else None
        if isinstance(length, int) and array.ndim:
            way = f"split it into batches of {length}, for example a folder with an .npz file each"
            ways[way] = array[:length]
        return next((way for way, changed in ways.items() if self.fits(changed)), None)


def feed_specs(model: ir.Model, types: Types | None = None) -> dict[str, FeedSpec]:
    """Return the inputs that can be fed, in order; constants listed among them are left out.

    `types` are those of the model's values; None for those that it declares.
    """
    overridable = model.ir_version >= FIRST_IR_WITH_OVERRIDES
    specs: dict[str, FeedSpec] = {}
    for value in model.graph.inputs:
        if value.is_initializer() and not overridable:
            continue
        name = value.name or ""
        type_ = (elements.from_ir(value.type) if types is None else types.get(value)) or ""
        shape = value.shape
        if shape is not None:
            shape = tuple(d if isinstance(d, int) else d.value for d in shape)
        specs[name] = FeedSpec(name, type_, shape, value.is_initializer())
    return specs


def check_feeds(specs: Mapping[str, FeedSpec], feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Return the feeds as ONNX Runtime takes them: 16-bit types as float32.

    Raises:
        OptionError: A feed is missing, unknown, or of the wrong type or shape.
    """
    names = ", ".join(map(repr, specs)) or "no feed"
    needed = [name for name, spec in specs.items() if not spec.optional]
    if is_array(feeds) and len(needed) == 1:
        feeds = {needed[0]: feeds}  # pyright: ignore[reportAssignmentType] an array alone
    if not isinstance(feeds, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        raise OptionError(
            "feeds must be a mapping from input names to arrays", found=type(feeds).__name__
        )
    for name in feeds:
        if name not in specs:
            raise OptionError(f"unknown feed {name!r}", expected=names)
    for name in needed:
        if name not in feeds:
            found = ", ".join(map(repr, feeds)) or "none"
            raise OptionError(f"feed {name!r} is missing", found=found, expected=names)
    return {name: _check_feed(specs[name], value) for name, value in feeds.items()}


def _check_feed(spec: FeedSpec, value: Any) -> Any:
    if spec.is_tensor:
        array = _check_dtype(spec, arguments.array(spec.name, value))
        if not spec.fits(array):
            raise OptionError(
                "a feed has the wrong shape",
                where=spec.name,
                found=list(array.shape),
                expected=spec.dimensions,
            )
        return widened(array)
    if spec.type.startswith("seq(tensor("):
        if isinstance(value, np.ndarray) or not isinstance(value, Sequence):
            raise OptionError(
                "a feed is not a sequence",
                where=spec.name,
                found=type(value).__name__,
                expected="a list of arrays",
            )
        return [widened(_check_dtype(spec, arguments.array(spec.name, item))) for item in value]
    return value


def widened(array: Array) -> Array:
    """Return a 16-bit array as float32, any other as it is."""
    is_low = any(array.dtype == low.numpy for low in dtypes.LOW.values())
    return array.astype(FLOAT32.numpy) if is_low else array


def _check_dtype(spec: FeedSpec, array: Array) -> Array:
    wanted = spec.dtype
    if wanted is None or array.dtype == wanted:
        return array
    if wanted.kind == "O" and array.dtype.kind in "OSU":  # strings
        return array.astype(object)
    if array.dtype == np.float64 and wanted.kind in "fV":  # what Python's numbers are
        with np.errstate(over="ignore"):
            return array.astype(wanted)
    raise OptionError(
        "a feed has the wrong element type",
        where=spec.name,
        found=array.dtype,
        expected=wanted,
        remedy=f"convert it with astype({wanted.name!r})",
    )


class FedInputs:
    """Makes batches for one model of the data of users."""

    def __init__(self, model: ir.Model) -> None:
        """Read the inputs of the model, and the first one's first dimension, if it is fixed."""
        self.specs = feed_specs(model)
        self.needed = tuple(name for name, spec in self.specs.items() if not spec.optional)
        shape = self.specs[self.needed[0]].shape if self.needed else None
        first = shape[0] if shape else None
        self.length = first if isinstance(first, int) and first > 0 else None

    def batch(self, given: object, file: object = None) -> Feeds:
        """Return a batch.

        Raises:
            DataError: It is not a batch of numbers, or has another shape than the model declares.
        """
        named = self._named(given)
        if [*named] == [_UNNAMED] and len(self.needed) == 1 and _UNNAMED not in self.specs:
            named = {self.needed[0]: named[_UNNAMED]}
        for name in named:
            if not isinstance(name, str):
                raise DataError("the name of an input must be a string", found=repr(name))
        missing = [name for name in self.needed if name not in named]
        if not missing:  # labels and the like
            named = {name: value for name, value in named.items() if name in self.specs}
        elif file is not None:
            arrays = ", ".join(f"{name!r}: array" for name in self.needed[:_NAMED])
            raise DataError(
                f"the data lack the input {missing[0]!r}",
                where=file,
                found=", ".join(sorted(named)) or "nothing",
                expected=", ".join(self.needed),
                remedy=f"name the arrays as the inputs: numpy.savez({str(file)!r}, **{{{arrays}}})",
            )
        feeds = {name: self._fitted(name, value) for name, value in named.items()}
        for name, value in feeds.items():
            spec = self.specs.get(name)
            if spec is None or not isinstance(value, np.ndarray):
                continue
            if not spec.fits(value):
                raise DataError(
                    f"the input {name!r} has another shape",
                    where=file,
                    found=list(value.shape),
                    expected=spec.dimensions,
                    remedy=spec.remedy(value),
                )
            if spec.dtype is not None and spec.dtype.kind in "iub" and value.dtype != spec.dtype:
                raise DataError(
                    f"the input {name!r} has another type",
                    where=file,
                    found=value.dtype,
                    expected=spec.dtype,
                    remedy=f"convert it: array.astype({spec.dtype.name!r})",
                )
        return feeds

    def _named(self, given: object) -> Mapping[Any, object]:
        if isinstance(given, Mapping):
            return cast("Mapping[Any, object]", given)
        is_list = isinstance(given, list | tuple)
        arrays = cast("Sequence[object]", given) if is_list else [given]
        if not arrays or not all(map(is_array, arrays)):
            raise DataError(
                "not a batch",
                found=type(given).__name__,
                expected="a mapping from input names to arrays, or the path of an .npz file",
            )
        if len(arrays) < len(self.needed):
            raise DataError(
                "fewer arrays than the model has inputs",
                found=len(arrays),
                expected=f"{len(self.needed)}: {', '.join(self.needed)}",
                remedy="pass a mapping from input names to arrays",
            )
        return dict(zip(self.needed, arrays, strict=False))  # labels come after inputs

    def _fitted(self, name: str, given: object) -> Any:
        """Return what is fed to one input, in its type where that loses no more than digits."""
        if not isinstance(given, np.generic) and not is_array(given):
            return given
        tensor: Any = given
        for method in ("detach", "cpu"):  # a tensor of another package
            tensor = getattr(tensor, method)() if hasattr(tensor, method) else tensor
        array = arguments.array(name, tensor)
        spec = self.specs.get(name)
        wanted = spec.dtype if spec is not None and spec.is_tensor else None
        if wanted is None or wanted.kind == "O" or array.dtype == wanted:
            return array
        is_bytes = array.dtype.type is np.void and array.dtype.fields is None
        if is_bytes and wanted.kind == "V" and array.dtype.itemsize == wanted.itemsize:
            return array.view(wanted)  # numpy.savez knows no bfloat16
        if array.dtype.kind not in "fiu" or not np.can_cast(array.dtype, wanted, "same_kind"):
            return array
        with np.errstate(over="ignore", invalid="ignore"):
            fitted = array.astype(wanted)
        exact = wanted.kind not in "iu" or np.array_equal(fitted, array)
        return fitted if exact else array
