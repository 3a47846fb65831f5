"""Facts about the element types that the package converts between.

The only place where enumeration values, ranges and tolerances are written down. Ranges come from
IEEE 754-2008 (binary16, binary32) and, for bfloat16, from the ONNX specification
(https://onnx.ai/onnx/technical/float8.html lists the formats' parameters).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import ml_dtypes
import numpy as np
from onnx import TensorProto

from amp_rewrite.errors import OptionError

if TYPE_CHECKING:
    from onnx_ir import DataType


@dataclass(frozen=True, slots=True)
class DType:
    """One floating-point element type.

    Attributes:
        name: The name used in options, reports and lists, for example "float16".
        onnx: The element name inside an ONNX type string, for example "float16" in
            "tensor(float16)".
        number: The number of the type in TensorProto.DataType.
        numpy: The numpy dtype (from ml_dtypes for bfloat16).
        label: The word used in the names of inserted Cast nodes.
        max: The largest finite value.
        smallest_normal: The smallest positive normal value.
        smallest_subnormal: The smallest positive value.
        epsilon: The gap between 1 and the next larger value.
        rtol: Relative tolerance for comparing a result of this type with a float32 reference.
        atol: Absolute tolerance for the same.
    """

    name: str
    onnx: str
    number: int
    numpy: np.dtype
    label: str
    max: float
    smallest_normal: float
    smallest_subnormal: float
    epsilon: float
    rtol: float
    atol: float

    @property
    def ir(self) -> DataType:
        """The same as onnx_ir has it."""
        from onnx_ir import DataType  # it loads sympy, which takes longer than a rewrite

        return DataType(self.number)

    @property
    def overflow(self) -> float:
        """The smallest magnitude that rounds to infinity (round to nearest, ties to even)."""
        return self.max * (1 + self.epsilon / (2 * (2 - self.epsilon)))


def _dtype(name: str, onnx: str, number: int, numpy: Any, label: str) -> DType:
    info = ml_dtypes.finfo(numpy)
    epsilon = float(info.eps)
    return DType(
        name=name,
        onnx=onnx,
        number=number,
        numpy=np.dtype(numpy),
        label=label,
        max=float(info.max),
        smallest_normal=float(info.smallest_normal),
        smallest_subnormal=float(info.smallest_subnormal),
        epsilon=epsilon,
        rtol=4 * epsilon,
        atol=4 * epsilon,
    )


FLOAT32 = _dtype("float32", "float", TensorProto.FLOAT, np.float32, "Fp32")
FLOAT16 = _dtype("float16", "float16", TensorProto.FLOAT16, np.float16, "Fp16")
BFLOAT16 = _dtype("bfloat16", "bfloat16", TensorProto.BFLOAT16, ml_dtypes.bfloat16, "Bf16")
FLOAT64 = _dtype("float64", "double", TensorProto.DOUBLE, np.float64, "Fp64")

Precision = Literal["float16", "bfloat16"]
AnyPrecision = Literal["float16", "bfloat16", "float32"]
"""The precisions that a user may ask for; float32 is what `widen` makes of a low one."""
PrecisionLike = (
    AnyPrecision
    | Literal["fp16", "half", "bf16", "fp32"]
    | type[np.generic]
    | np.dtype[Any]
    | TensorProto.DataType
)
"""The values of a parameter `precision`: see `type_name`."""

SHORT = {"fp16": "float16", "half": "float16", "bf16": "bfloat16", "fp32": "float32"}
"""Short names of types -> their names here."""

LOW: dict[str, DType] = {FLOAT16.name: FLOAT16, BFLOAT16.name: BFLOAT16}
"""The types that a rewrite can convert to, by name."""

OTHERS: tuple[DType, ...] = (*LOW.values(), FLOAT64)
"""The float types that stand for float32, or for more: `widen` makes them float32."""

_BY_NUMBER: dict[int, DType] = {t.number: t for t in (FLOAT32, FLOAT16, BFLOAT16)}


def type_name(given: object) -> str | None:
    """Return the name of a type, in small letters; None of an object that names no type.

    `given` is a name in any case or for short ("FP16"); a type of numpy or ml_dtypes (np.float16,
    np.dtype("float16")) or of PyTorch (torch.float16); a number of TensorProto.DataType or a member
    of onnx_ir.DataType.
    """
    if isinstance(given, str):
        word = given.strip().lower()
        return SHORT.get(word, word)
    if given is None or isinstance(given, bool):
        return None
    if isinstance(given, int):
        return next((t.name for t in (FLOAT32, *OTHERS) if t.number == given), None)
    library, _, word = str(given).partition(".")
    if library == "torch" and word:
        return SHORT.get(word, word)
    try:
        return np.dtype(cast("Any", given)).name
    except (TypeError, ValueError):
        return None


def low_dtype(name: object) -> DType:
    """Return the 16-bit type of a name, as `type_name`; OptionError for another type."""
    low = LOW.get(type_name(name) or "")
    if low is None:
        raise OptionError(
            "unknown precision",
            found=repr(name),
            expected=" or ".join(LOW),
            remedy="pass precision='float16' or precision='bfloat16'",
        )
    return low


def may_leave_range(low: DType) -> bool:
    """Tell whether float32 numbers leave the range of a type: that of bfloat16 is the same."""
    return low.overflow <= FLOAT32.max / 2


def of(number: int) -> DType | None:
    """Return the facts about a TensorProto.DataType, or None if it is not one of the three."""
    return _BY_NUMBER.get(number)


def dtype_name(number: int) -> str:
    """Return the name of a data type as reports spell it: "float32", "int64", "bool"."""
    dtype = _BY_NUMBER.get(number)
    return dtype.name if dtype else TensorProto.DataType.Name(number).lower()
