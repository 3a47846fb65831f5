"""Random numbers in 32 bits are those of 64 bits, whatever the counter and the size."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser

from amp_rewrite.graph.clone import clone
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.traverse import remove_unused_nodes
from amp_rewrite.runtimes.ort.sessions import Session
from amp_rewrite.training.graph.prepare import record_types
from amp_rewrite.training.step.dropout import COUNTER, replace_dropouts
from amp_rewrite.training.step.exact_arithmetic import (
    compute_random_in_32_bits,
)

TEXT = """<ir_version: 8, opset_import: ["": {opset}]>
    g (float[{shape}] x) => (float[{shape}] y, bool[{shape}] a, bool[{shape}] b)
    <float ratio = {{0.3}}, float other = {{0.7}}, bool training = {{1}}> {{
        h, a = Dropout (x, ratio, training)
        y, b = Dropout (h, other, training) }}"""


def masks(shape: str, opset: int = 17) -> tuple[ir.Model, ir.Model]:
    """Return a model with two masks as it is, and in 32 bits."""
    model = load(parser.parse_model(TEXT.format(shape=shape, opset=opset)))
    replace_dropouts(model, 5)
    record_types(model)
    narrow = clone(model)
    compute_random_in_32_bits(narrow)
    return model, narrow


def compare(shape: str, sizes: list[tuple[int, ...]], counters: Any, opset: int = 17) -> None:
    sessions = [Session(model) for model in masks(shape, opset)]
    for size in sizes:
        for counter in counters:
            feeds = {"x": np.ones(size, np.float32), COUNTER: np.array(counter, np.int64)}
            wide, narrow = (session.run(feeds, ["a", "b"]) for session in sessions)
            for one, other in zip(wide, narrow, strict=True):
                np.testing.assert_array_equal(one, other, err_msg=f"{size} at {counter}")


@pytest.mark.share(3)
@pytest.mark.parametrize("opset", [13, 22])
@pytest.mark.parametrize("shape", ["N, M", "40, 100"])
def test_masks_are_the_same(shape: str, opset: int) -> None:
    sizes = [(1, 1), (3, 256), (40, 1000)] if shape == "N, M" else [(40, 100)]
    counters = [0, 1, 2**31 - 1, 2**31, 2**32 + 7, 2**53 + 3]
    compare(shape, sizes, counters, opset)


@pytest.mark.slow
def test_masks_are_the_same_over_1000_steps() -> None:
    compare("N, M", [(300, 1000)], range(2**31 - 500, 2**31 + 500))


def test_no_product_of_rows_has_more_than_32_bits() -> None:
    _, narrow = masks("40, 100")
    remove_unused_nodes(narrow.graph)
    products = [node.outputs[0] for node in narrow.graph if node.op_type == "Mul"]
    rows = [v for v in products if v.shape is not None and len(v.shape)]
    assert {v.dtype for v in rows} == {ir.DataType.INT32, ir.DataType.FLOAT}
