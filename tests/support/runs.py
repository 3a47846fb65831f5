"""Running models on ONNX Runtime's CPU provider, and comparing what comes out."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from onnxruntime.capi import (
    onnxruntime_pybind11_state as state,  # pyright: ignore[reportAttributeAccessIssue] compiled
)

Feeds = Mapping[str, Any]

LOAD_ERRORS = (
    state.EPFail,
    state.Fail,
    state.InvalidArgument,
    state.InvalidGraph,
    state.InvalidProtobuf,
    state.NotImplemented,
    state.RuntimeException,
)


class NoKernel(Exception):  # noqa: N818 a finding, not an error
    """ONNX Runtime has no kernel for some node of the model."""


def session_of(model: Path | bytes) -> ort.InferenceSession:
    """Load a model; raise NoKernel where only a kernel is missing."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    source = model if isinstance(model, bytes) else str(model)
    try:
        return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except state.NotImplemented as error:
        raise NoKernel(str(error)) from error
    except (state.Fail, state.InvalidGraph) as error:
        # An operator without a kernel is expanded to its function body, whose unnamed nodes may
        # not admit the type either: Clip-13 in bfloat16 becomes Where-9, Attention adds a mask.
        if "in node ()" in str(error):
            raise NoKernel(str(error)) from error
        raise


def loads(model: Path | bytes) -> bool:
    try:
        session_of(model)
    except (NoKernel, *LOAD_ERRORS):
        return False
    return True


def run(model: Path | bytes, feeds: Feeds) -> dict[str, Any]:
    session = session_of(model)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def distance(reference: np.ndarray, found: np.ndarray) -> float:
    """Return |reference - found| / |reference| (Euclidean) over the finite elements."""
    a, b = np.asarray(reference, np.float64), np.asarray(found, np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    norm = float(np.linalg.norm(a[finite]))
    return float(np.linalg.norm(a[finite] - b[finite])) / (norm or 1.0)
