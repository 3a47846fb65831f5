"""Advice about devices: which GPUs have tensor cores for a type, and which batches fill them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import amp_rewrite as amp
from amp_rewrite.dtypes import LOW
from amp_rewrite.rewriting.report.report_lines import GENERATIONS


def report_of(body: str, shape: tuple[int, ...] = (64, 32), **options: Any) -> amp.Report:
    proto = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 22]> {body}""")
    proto.graph.initializer.append(numpy_helper.from_array(np.ones(shape, np.float32), "w"))
    return amp.rewrite(proto, **options).report


@pytest.mark.parametrize(
    ("body", "shape", "multiple"),
    [
        ("g (float[N,64] x) => (float[N,32] y) { y = MatMul(x, w) }", (64, 32), 8),
        ("g (float[N,2,64] x) => (float[N,2,32] y) { y = MatMul(x, w) }", (64, 32), 4),
        ("g (float[N,16,64] x) => (float[N,16,32] y) { y = MatMul(x, w) }", (64, 32), 1),
        ("g (float[N,M,64] x) => (float[N,M,32] y) { y = MatMul(x, w) }", (64, 32), 8),
        ("g (float[4,64] x) => (float[4,32] y) { y = MatMul(x, w) }", (64, 32), 1),
        ("g (float[64,N] x) => (float[N,32] y) { y = Gemm<transA=1>(x, w) }", (64, 32), 8),
        ("g (float[N,64] x) => (float[N,32] y) { y = Gemm<transA=0>(x, w) }", (64, 32), 8),
        ("g (float[N,3,8,8] x) => (float[N,4,6,6] y) { y = Conv(x, w) }", (4, 3, 3, 3), 1),
    ],
)
def test_free_lengths_make_up_for_what_static_ones_lack(
    body: str, shape: tuple[int, ...], multiple: int
) -> None:
    report = report_of(body, shape)
    assert report.batch_multiple == multiple
    assert ("GPUs: batch sizes divisible by" in report.to_text()) == (multiple > 1)
    assert report.to_dict()["batch_multiple"] == multiple


FREE = "g (float[N,64] x) => (float[N,32] y) { y = MatMul(x, w) }"


@pytest.mark.parametrize(("precision", "capability"), [("float16", "7.0"), ("bfloat16", "8.0")])
def test_the_first_generation_of_gpus_is_named(precision: str, capability: str) -> None:
    text = " ".join(report_of(FREE, precision=precision).to_text().split())
    assert f"tensor cores take {precision} from compute capability {capability} " in text
    assert ("older tensor cores take only float16" in text) == (precision == "bfloat16")


@pytest.mark.parametrize("target", ["cpu", "webgpu", "directml"])
def test_targets_without_tensor_cores_get_no_such_advice(target: str) -> None:
    report = report_of(FREE, target=target)
    assert report.batch_multiple is None
    assert not re.search("tensor cores|GPUs:|batches:", report.to_text())


def test_a_model_of_which_nothing_is_low_gets_no_advice() -> None:
    assert "GPUs:" not in report_of(FREE, deny_nodes=["*"]).to_text()


def test_every_low_type_has_a_generation() -> None:
    assert GENERATIONS.keys() == LOW.keys()
