"""The models of onnx's own backend tests: one or a few of each operator."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import onnx.backend.test.case.node


@cache
def all_cases() -> list[Any]:
    """Return the cases, in onnx's order; making them takes a process 9 s, once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the generators divide by zero on purpose
        return onnx.backend.test.case.node.collect_testcases(None)
