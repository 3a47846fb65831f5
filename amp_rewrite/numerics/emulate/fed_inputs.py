"""The feeds of users in the form that a model reads: names, arrays, element types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from amp_rewrite.base import arguments
from amp_rewrite.errors import DataError

_UNNAMED = "arr_0"
"""The name that numpy.savez(file, array) gives to the array."""

_NAMED = 3
"""How many inputs the line names that saves data under the names of the inputs."""

Array = NDArray[Any]
Feeds = Mapping[str, Array]
"""Input name -> array: one batch."""


def is_array(given: object) -> bool:
    """Return whether something is an array or a tensor, of whatever package."""
    return isinstance(given, np.ndarray) or hasattr(given, "__dlpack__")


@dataclass(frozen=True)
class FedInputs:
    """The inputs of a model.

    Attributes:
        types: Input -> the type of its elements, or None if it is not known or not a tensor's.
        needed: Those without a default, in order.
        length: The first dimension of the first one, if it is fixed.
        shapes: Input -> its dimensions, those that are free by name; without those of which nothing
            is known.
    """

    types: Mapping[str, np.dtype[Any] | None]
    needed: tuple[str, ...]
    length: int | None
    shapes: Mapping[str, Sequence[int | str | None]]

    @staticmethod
    def of(model: ir.Model) -> FedInputs:
        """Return those of a model."""
        inputs = list(model.graph.inputs)
        needed = [value for value in inputs if not value.is_initializer()]
        shape = needed[0].shape if needed else None
        first = shape[0] if shape is not None and len(shape) else None
        return FedInputs(
            {value.name or "": _dtype(value) for value in inputs},
            tuple(value.name or "" for value in needed),
            first if isinstance(first, int) and first > 0 else None,
            {
                value.name or "": _dimensions(value.shape)
                for value in inputs
                if value.shape is not None
            },
        )

    def batch(self, given: object, file: object = None) -> Feeds:
        """Return a batch.

        Raises:
            DataError: It is not one, holds something else than numbers, or has another shape than
                the model declares.
        """
        named = self._named(given)
        if [*named] == [_UNNAMED] and len(self.needed) == 1 and _UNNAMED not in self.types:
            named = {self.needed[0]: named[_UNNAMED]}
        for name in named:
            if not isinstance(name, str):
                raise DataError("the name of an input must be a string", found=repr(name))
        missing = [name for name in self.needed if name not in named]
        if not missing:  # labels and the like
            named = {name: value for name, value in named.items() if name in self.types}
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
            self._check_shape(name, value, file)
        return feeds

    def _check_shape(self, name: str, value: Any, file: object) -> None:
        declared = self.shapes.get(name)
        if declared is None or not isinstance(value, np.ndarray):
            return
        if not _fits(value, declared):
            raise DataError(
                f"the input {name!r} has another shape",
                where=file,
                found=list(value.shape),
                expected=f"[{', '.join('?' if d is None else str(d) for d in declared)}]",
                remedy="add the batch axis: array[None]" if _fits(value, declared[1:]) else None,
            )

    def _named(self, given: object) -> Mapping[Any, object]:
        if isinstance(given, Mapping):
            return cast("Mapping[Any, object]", given)
        arrays: Sequence[object] = [given]
        if isinstance(given, list | tuple):
            arrays = cast("Sequence[object]", given)
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
        return dict(zip(self.needed, arrays, strict=False))  # labels stand behind inputs

    def _fitted(self, name: str, given: object) -> Any:
        """Return what is fed to one input, in its type where that loses no more than digits."""
        if isinstance(given, np.ndarray | np.generic) or is_array(given):
            return self._cast(name, _plain(name, given))
        return given

    def _cast(self, name: str, array: Array) -> Array:
        wanted = self.types.get(name)
        if wanted is None or array.dtype == wanted:
            return array
        if _is_stored(array, wanted):
            return array.view(wanted)
        if array.dtype.kind not in "fiu":
            return array
        if not np.can_cast(array.dtype, wanted, "same_kind"):
            return array
        with np.errstate(over="ignore", invalid="ignore"):
            fitted = array.astype(wanted)
        exact = wanted.kind not in "iu" or np.array_equal(fitted, array)
        return fitted if exact else array


def _is_stored(array: Array, wanted: np.dtype[Any]) -> bool:
    """Tell whether these are numbers that numpy.savez stored as bytes: it knows no bfloat16."""
    is_bytes = array.dtype.type is np.void and array.dtype.fields is None
    return is_bytes and wanted.kind == "V" and array.dtype.itemsize == wanted.itemsize


def _plain(name: str, detached: object) -> Array:
    """Return a tensor of another package as an array; one that has a gradient without it."""
    if not isinstance(detached, np.ndarray | np.generic) and hasattr(detached, "detach"):
        tensor: Any = detached
        detached = tensor.detach()
        if hasattr(detached, "cpu"):
            detached = cast("Any", detached).cpu()
    return arguments.array(name, detached)


def _dimensions(shape: ir.Shape) -> tuple[int | str | None, ...]:
    return tuple(d if isinstance(d, int) else d.value for d in shape)


def _dtype(value: ir.Value) -> np.dtype[Any] | None:
    if value.dtype is None or value.dtype in (ir.DataType.UNDEFINED, ir.DataType.STRING):
        return None
    return np.dtype(value.dtype.numpy()) if isinstance(value.type, ir.TensorType) else None


def _fits(value: Array, declared: Sequence[int | str | None]) -> bool:
    """Tell whether an array has the declared rank and the lengths that are known."""
    return value.ndim == len(declared) and all(
        not isinstance(d, int) or d == n for d, n in zip(declared, value.shape, strict=True)
    )
