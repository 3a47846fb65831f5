"""The inputs that a model needs, and the check that they are fed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite import dtypes
from amp_rewrite.base import arguments
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import OptionError
from amp_rewrite.graph import elements
from amp_rewrite.graph.constants import FIRST_IR_WITH_OVERRIDES
from amp_rewrite.graph.infer import Types
from amp_rewrite.numerics.emulate.fed_inputs import is_array

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class FeedSpec:
    """One graph input.

    Attributes:
        name: Its name.
        type: Its type string, "" if it is unknown.
        shape: A number, the name of a free dimension or None for each dimension; None if the
            number of dimensions is not declared.
        optional: Whether the model has a default for it.
    """

    name: str
    type: str
    shape: tuple[int | str | None, ...] | None
    optional: bool

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """The numpy type of its elements, or None if unknown."""
        member = elements.element(self.type)
        return None if member is None else np.dtype(ir.DataType(member).numpy())

    @property
    def is_tensor(self) -> bool:
        """Whether it is a dense tensor."""
        return self.type.startswith("tensor(")


def feed_specs(model: ir.Model, types: Types) -> dict[str, FeedSpec]:
    """Return the inputs that can be fed, in order; constants listed among them are left out."""
    overridable = model.ir_version >= FIRST_IR_WITH_OVERRIDES
    specs: dict[str, FeedSpec] = {}
    for value in model.graph.inputs:
        if value.is_initializer() and not overridable:
            continue
        name = value.name or ""
        type_ = types.get(value, "")
        specs[name] = FeedSpec(name, type_, _shape(value), value.is_initializer())
    return specs


def _shape(value: ir.Value) -> tuple[int | str | None, ...] | None:
    if value.shape is None:
        return None
    return tuple(d if isinstance(d, int) else d.value for d in value.shape)


def check_feeds(specs: Mapping[str, FeedSpec], feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Return the feeds as ONNX Runtime takes them: low types as float32.

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
    for name, spec in specs.items():
        if name not in feeds and not spec.optional:
            feed_names = ", ".join(map(repr, feeds)) or "none"
            raise OptionError(f"feed {name!r} is missing", found=feed_names, expected=names)
    return {name: _check_feed(specs[name], value) for name, value in feeds.items()}


def _check_feed(spec: FeedSpec, value: Any) -> Any:
    if spec.is_tensor:
        return widened(_check_tensor(spec, value))
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
    """Return a low-precision array as float32, any other as it is."""
    is_low = any(array.dtype == low.numpy for low in dtypes.LOW.values())
    return array.astype(FLOAT32.numpy) if is_low else array


def _check_tensor(spec: FeedSpec, value: Any) -> Array:
    array = _check_dtype(spec, arguments.array(spec.name, value))
    declared = spec.shape
    if declared is None:
        return array
    fits = array.ndim == len(declared) and all(
        not isinstance(d, int) or d == n for d, n in zip(declared, array.shape, strict=True)
    )
    if not fits:
        expected = ", ".join("?" if d is None else str(d) for d in declared)
        raise OptionError(
            "a feed has the wrong shape",
            where=spec.name,
            found=list(array.shape),
            expected=f"[{expected}]",
        )
    return array


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
