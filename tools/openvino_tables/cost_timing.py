"""How long models take on OpenVINO, and the rates by which they do."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx.helper
from cost_calls import parsed

from amp_rewrite.dtypes import BFLOAT16, FLOAT32
from amp_rewrite.runtimes.openvino.compiled_model import Session

TYPES = (FLOAT32, BFLOAT16)
RUNS = 60

LAYOUT = "Reorder"
"""The operator by which OpenVINO changes a layout at the ends of a model; inside there are few."""


def microseconds(
    models: Sequence[onnx.ModelProto], options: argparse.Namespace, *, layouts: bool = False
) -> list[float]:
    """Return what models take, the least of several sessions each, which take turns.

    Args:
        models: What is run.
        options: The number of sessions and of threads.
        layouts: Count what changes of layout take; else they are the ends', of which inside a
            model there are few.
    """
    least = [float("inf")] * len(models)
    for _ in range(options.sessions):
        for index, model in enumerate(models):
            least[index] = min(least[index], _session(model, options.threads, layouts))
    return [max(0.0, time_ - _empty(options.threads)) for time_ in least]


@cache
def _empty(threads: int) -> float:
    """Return what running a model takes in which nothing is to be done."""
    return min(
        _session(parsed("g (float[1] x) => (float[1] y) { y = Relu(x) }"), threads, layouts=True)
        for _ in range(5)
    )


def _session(model: onnx.ModelProto, threads: int, layouts: bool) -> float:
    """Return the least of the times of many runs, with or without what layouts take of it."""
    session = Session(model, threads=threads, profile=not layouts)
    binding = session.bind()
    for value in model.graph.input:
        binding.read(value.name, _feed(value))
    times: list[float] = []
    for _ in range(RUNS):
        start = time.perf_counter()
        binding.run("it failed")
        times.append(time.perf_counter() - start)
    if layouts:
        return 1e6 * min(times)
    nodes = session.ran_nodes()
    taken = sum(node.microseconds for node in nodes if node.op == LAYOUT)
    share = taken / max(1, sum(node.microseconds for node in nodes))
    return 1e6 * min(times) * (1 - share)


def _feed(value: onnx.ValueInfoProto) -> np.ndarray[Any, Any]:
    given = value.type.tensor_type
    shape = [dim.dim_value for dim in given.shape.dim]
    numbers = np.random.default_rng(0).random(shape, np.float32)
    return numbers.astype(onnx.helper.tensor_dtype_to_np_dtype(given.elem_type))


def fitted(sizes: Sequence[tuple[int, int]], times: Sequence[float]) -> dict[str, float]:
    """Return rates by which calls take what they took, with the least relative errors.

    Args:
        sizes: Elements and multiply-accumulates of each call.
        times: Microseconds of each call.
    """
    rows = np.array([(1.0, elements, macs) for elements, macs in sizes])
    scaled = rows / np.maximum(times, 1.0)[:, None]
    target = np.asarray(times) / np.maximum(times, 1.0)
    used = [0, 1, 2] if rows[:, 2].any() else [0, 1]
    while True:
        found = np.linalg.lstsq(scaled[:, used], target, rcond=None)[0]
        if (found >= 0).all() or len(used) == 1:
            break
        used.pop(int(np.argmin(found * scaled[:, used].mean(0))))
    named = dict(zip(used, found, strict=True))
    return {
        key: float(f"{max(0.0, named.get(index, 0.0)):.3g}")
        for index, key in enumerate(("call", "element", "mac"))
    }
