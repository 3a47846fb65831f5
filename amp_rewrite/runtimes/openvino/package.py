"""OpenVINO itself, imported when it is needed, and its errors in one line.

Whatever needs it raises RuntimeMissingError where it is not installed, or is too old.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from amp_rewrite.dtypes import BFLOAT16, FLOAT16
from amp_rewrite.errors import RunError, RuntimeMissingError
from amp_rewrite.targets import OPENVINO

DEVICE = "CPU"
"""The device that models run on. Of others nothing is known: their plugins choose types."""

OLDEST = (2026, 0)
"""The oldest release that the tests passed with."""

_CAPABILITIES = {FLOAT16.name: "FP16", BFLOAT16.name: "BF16"}
_UNCONVERTED = "Model wasn't fully converted"
_LONGEST = 500
"""Characters of a message that an error shows."""

_INSTALL = "pip install openvino"

Array = np.ndarray[Any, Any]

_FOREIGN = {"bfloat16": "bf16", "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2"}
"""Types that numpy has from ml_dtypes, and what openvino.Type calls them."""


@cache
def import_runtime() -> Any:
    """Return the openvino module; RuntimeMissingError if it is not there, or older than OLDEST."""
    try:
        runtime = __import__(OPENVINO.lower())
    except ImportError as error:
        raise RuntimeMissingError(
            "this needs OpenVINO, which is not installed", remedy=_INSTALL
        ) from error
    version = runtime_version(runtime)
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if numbers < OLDEST:
        raise RuntimeMissingError(
            "the installed OpenVINO is too old",
            found=version,
            expected=f"at least {OLDEST[0]}.{OLDEST[1]}",
            remedy=_INSTALL,
        )
    return runtime


def runtime_version(runtime: Any) -> str:
    """Return the release of the openvino module, without its build: "2026.4.1"."""
    return str(runtime.__version__).partition("-")[0]


@cache
def core() -> Any:
    """Return the one openvino.Core; RunError if it has no CPU: its plugin cannot be loaded."""
    runtime_core = import_runtime().Core()
    devices = runtime_core.available_devices
    if DEVICE not in devices:
        raise RunError(
            "OpenVINO has no device to run on",
            found=", ".join(devices) or "none",
            expected=DEVICE,
            remedy=f"install it again with its {DEVICE} plugin: {_INSTALL}",
        )
    return runtime_core


def computes_in(precision: str) -> bool:
    """Return whether the processor has instructions for a low type, and OpenVINO uses them."""
    capabilities = core().get_property(DEVICE, "OPTIMIZATION_CAPABILITIES")
    return _CAPABILITIES[precision] in capabilities


@contextmanager
def one_line(what: str) -> Generator[None]:
    """Turn the errors of OpenVINO into a RunError."""
    try:
        yield
    except (RuntimeError, ValueError, TypeError) as error:
        raise RunError(what, found=reason(str(error))[:_LONGEST]) from error


def reason(said: str) -> str:
    """Return what a message says went wrong, without the places in OpenVINO's own code.

    Of nested messages the last line has the cause. Of a model that it cannot convert, a summary
    in lines that begin with dashes follows it.
    """
    before, _, summary = said.partition("Summary:")
    lines = [line.strip() for line in before.splitlines() if line.strip()]
    listed = [line.strip().removeprefix("-- ") for line in summary.splitlines() if "-- " in line]
    own = [line for line in lines if not re.match(r"Exception from |Check '|While valid", line)]
    cause = (own or lines or ["no reason given"])[-1]
    return "; ".join([*listed, *([] if cause.startswith(_UNCONVERTED) else [cause])])


def to_tensor(value: Any, *, shared: bool = False) -> tuple[Any, Array]:
    """Return an openvino.Tensor with the content of an array, and the array whose memory it has.

    The tensor does not keep the array alive. If the memory must be `shared`, the array is
    contiguous and writable; else it is copied where it is not.

    Raises:
        ValueError: The memory cannot be shared, or the elements are texts: with 2026.4.1 a model
            that has x and Identity(x) of texts aborts.
        RuntimeError: OpenVINO has no such element type.
    """
    runtime, array = import_runtime(), np.asarray(value)
    if not (array.flags.c_contiguous and array.flags.writeable):
        if shared:
            raise ValueError("an array whose memory is shared must be contiguous and writable")
        array = np.array(array, order="C")
    if array.dtype.kind in "OSU":
        raise ValueError("texts, with which OpenVINO may end the process")
    foreign = _FOREIGN.get(array.dtype.name)
    if foreign is None:
        return runtime.Tensor(array, shared_memory=True), array
    raw = array.view(f"u{array.dtype.itemsize}")
    return runtime.Tensor(raw, list(array.shape), getattr(runtime.Type, foreign)), raw


def to_array(tensor: Any, dtype: np.dtype[Any] | None = None) -> Array:
    """Return a copy of an openvino.Tensor; `dtype` is given where numpy has it from ml_dtypes."""
    content = tensor.data
    if dtype is not None and dtype.name in _FOREIGN:
        content = content.view(dtype)
    return np.array(content)
