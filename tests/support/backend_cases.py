"""The models of onnx's own backend tests: one or a few of each operator."""

from __future__ import annotations

import os
import pickle
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test.case.node

CACHE = Path(__file__).parents[2] / ".cache" / "backend_cases"


@cache
def all_cases() -> list[Any]:
    """Return the cases, in onnx's order, as they were made before or made now.

    To make them takes 12 s, which each of the processes of the tests would spend anew. They are
    kept in `.cache`, 10 MB for each pair of releases of onnx and numpy.
    """
    path = CACHE / f"onnx-{onnx.__version__}-numpy-{np.__version__}.pickle"
    if path.exists():
        return pickle.loads(path.read_bytes())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the generators divide by zero on purpose
        cases = onnx.backend.test.case.node.collect_testcases(None)
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_suffix(f".{os.getpid()}")
    written.write_bytes(pickle.dumps(cases, protocol=5))
    written.replace(path)  # whole, whoever else writes it
    return cases
