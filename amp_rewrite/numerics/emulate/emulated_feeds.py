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
from amp_rewrite.errors import DataError
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
    return hasattr(given, "__array__") or hasattr(given, "__dlpack__")


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


def widened(value: Any) -> Any:
    """Return 16-bit arrays, in lists too, as float32, anything else as it is."""
    if isinstance(value, list):
        return list(map(widened, cast("list[Any]", value)))
    is_low = is_array(value) and any(value.dtype == low.numpy for low in dtypes.LOW.values())
    return value.astype(FLOAT32.numpy) if is_low else value


class FedInputs:
    """Makes batches for one model of the data of users."""

    def __init__(self, specs: Mapping[str, FeedSpec]) -> None:
        """Take the inputs of the model, and the first one's first dimension, if it is fixed."""
        self.specs = specs
        self.needed = tuple(name for name, spec in self.specs.items() if not spec.optional)
        shape = self.specs[self.needed[0]].shape if self.needed else None
        first = shape[0] if shape else None
        self.length = first if isinstance(first, int) and first > 0 else None

    def batch(self, given: object, file: object = None) -> dict[str, Any]:
        """Return a batch: what inputs there are take it, in their types.

        Raises:
            DataError: It is not a batch of numbers, or has another shape or type than the model
                declares.
        """
        named = self._named(given)
        if [*named] == [_UNNAMED] and len(self.needed) == 1 and _UNNAMED not in self.specs:
            named = {self.needed[0]: named[_UNNAMED]}
        for name in named:
            if not isinstance(name, str):
                raise DataError("the name of an input must be a string", found=repr(name))
        missing = next((name for name in self.needed if name not in named), None)
        if missing is not None:
            arrays = ", ".join(f"{name!r}: array" for name in self.needed[:_NAMED])
            save = f"numpy.savez({str(file)!r}, **{{{arrays}}})"
            raise DataError(
                f"the data lack the input {missing!r}",
                where=file,
                found=", ".join(sorted(named)) or "nothing",
                expected=", ".join(self.needed),
                remedy=None if file is None else f"name the arrays as the inputs: {save}",
            )
        inputs = (spec for name, spec in self.specs.items() if name in named)  # no labels
        return {spec.name: _fitted(spec, named[spec.name], file) for spec in inputs}

    def _named(self, given: object) -> Mapping[Any, object]:
        if isinstance(given, Mapping):
            return cast("Mapping[Any, object]", given)
        is_list = isinstance(given, list | tuple)
        arrays = cast("Sequence[object]", given) if is_list else [given]
        if not arrays or not all(map(is_array, arrays)):
            raise DataError(
                "not a batch",
                found=type(given).__name__,
                expected="an array, or a mapping from input names to arrays",
                remedy="dict(numpy.load(FILE)) of an .npz file" if isinstance(given, str) else None,
            )
        if len(arrays) < len(self.needed):
            raise DataError(
                "fewer arrays than the model has inputs",
                found=len(arrays),
                expected=f"{len(self.needed)}: {', '.join(self.needed)}",
                remedy="pass a mapping from input names to arrays",
            )
        return dict(zip(self.needed, arrays, strict=False))  # labels come after inputs


def _fitted(spec: FeedSpec, given: Any, file: object) -> Any:
    """Return what is fed to an input, in its type where that loses no more than digits."""
    if spec.type.startswith("seq(tensor("):
        if isinstance(given, np.ndarray) or not isinstance(given, Sequence):
            raise DataError(
                f"the input {spec.name!r} is a sequence",
                where=file,
                found=type(given).__name__,
                expected="a list of arrays",
            )
        return [_typed(spec, item, file) for item in cast("Sequence[Any]", given)]
    if not spec.is_tensor:
        return given
    array = _typed(spec, given, file)
    if not spec.fits(array):
        raise DataError(
            f"the input {spec.name!r} has another shape",
            where=file,
            found=list(array.shape),
            expected=spec.dimensions,
            remedy=spec.remedy(array),
        )
    return array


def _typed(spec: FeedSpec, given: Any, file: object) -> Array:
    for method in ("detach", "cpu"):  # a tensor of another package
        given = getattr(given, method)() if hasattr(given, method) else given
    array, wanted = arguments.array(spec.name, given), spec.dtype
    if wanted is None or array.dtype == wanted:
        return array
    is_text = wanted.kind == "O"
    if is_text and array.dtype.kind in "OSU":
        return array.astype(object)
    is_bytes = array.dtype.type is np.void and array.dtype.fields is None
    if is_bytes and wanted.kind == "V" and array.dtype.itemsize == wanted.itemsize:
        return array.view(wanted)  # numpy.savez knows no bfloat16
    is_number = array.dtype.kind in "fiu" and not is_text
    if is_number and np.can_cast(array.dtype, wanted, "same_kind"):
        with np.errstate(over="ignore", invalid="ignore"):
            fitted = array.astype(wanted)
        if wanted.kind not in "iu" or np.array_equal(fitted, array):
            return fitted
    raise DataError(
        f"the input {spec.name!r} has another type",
        where=file,
        found=array.dtype,
        expected=wanted,
        remedy=f"convert it: array.astype({wanted.name!r})",
    )
