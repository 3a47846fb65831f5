"""The opset that would convert more: named where one does, silent elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from rewrite_text import parse, rewritten

import amp_rewrite as amp
from amp_rewrite.numerics.convert.file import Asked, convert_file
from amp_rewrite.rewriting.plan.options import RewriteOptions
from amp_rewrite.rewriting.report.next_steps import Names, next_steps
from amp_rewrite.rewriting.report.records import OpsetAdvice


def model(
    opset: int, text: str = "c = Conv(x, k) f = Flatten(c) y = MatMul(f, w)"
) -> onnx.ModelProto:
    header = f'<ir_version: 8, opset_import: ["" : {opset}]>'
    proto = parse(f"{header} g (float[1,1,4,4] x) => (float[1,64] y) {{ {text} }}")
    for name, shape in {"k": (4, 1, 1, 1), "w": (64, 64)}.items():
        proto.graph.initializer.append(
            numpy_helper.from_array(np.full(shape, 0.1, np.float32), name)
        )
    return proto


def advice(
    proto: onnx.ModelProto, target: str = "cuda", precision: str = "bfloat16"
) -> OpsetAdvice | None:
    return rewritten(proto, precision=precision, target=target).report.opset_advice


@pytest.mark.parametrize("target", ["cuda", "schema"])
def test_convolutions_admit_bfloat16_since_opset_22(target: str) -> None:
    assert advice(model(18), target) == OpsetAdvice(22, 1.0)
    assert "convert --opset 22" in rewritten(model(18), precision="bfloat16").report.to_text()


def test_no_cast_gives_bfloat16_before_opset_13() -> None:
    only_products = "f = Flatten(x) e = Concat<axis = 1>(f, f, f, f) y = MatMul(e, w)"
    assert advice(model(11, only_products)) == OpsetAdvice(13, 1.0)


def test_what_converts_already_needs_no_other_opset() -> None:
    assert advice(model(22)) is None
    assert advice(model(18), precision="float16") is None


def test_a_gain_below_one_per_cent_is_not_worth_an_opset() -> None:
    small = model(18)
    small.graph.initializer[1].CopyFrom(
        numpy_helper.from_array(np.full((64, 6400), 0.1, np.float32), "w")
    )
    small.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 6400
    assert advice(small) is None


def test_a_second_rewrite_advises_no_opset_that_the_first_one_did_not() -> None:
    small = model(18)
    small.graph.initializer[1].CopyFrom(
        numpy_helper.from_array(np.full((64, 6400), 0.1, np.float32), "w")
    )
    small.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 6400
    first = rewritten(small, precision="bfloat16")
    assert advice(amp.to_proto(first.model)) is None


POOLED = "p = MaxPool<kernel_shape = [1, 1]>(x) c = Conv(p, k) f = Flatten(c) y = MatMul(f, w)"


def test_an_opset_at_which_a_kernel_is_lost_is_told_with_what_it_loses() -> None:
    assert advice(model(18, POOLED)) == OpsetAdvice(22, 1.0, ("MaxPool",))
    report = rewritten(model(18, POOLED), precision="bfloat16", target="cuda").report
    told = " ".join(report.to_text().split())
    assert "the target has no kernel for MaxPool there, so it would run on the CPU" in told
    assert json.loads(report.to_json())["opset_advice"]["lost"] == ["MaxPool"]
    assert not [
        step for step in next_steps(report, Names("a", "b"), None) if "--opset" in step.command
    ]


def test_an_opset_at_which_less_is_low_and_every_kernel_stays_is_better() -> None:
    found = advice(model(11, POOLED))
    assert found is not None
    assert (found.opset, found.lost) == (13, ())
    assert 0.5 < found.compute_converted < 1


def test_convert_moves_no_model_to_where_a_kernel_is_lost(tmp_path: Path) -> None:
    for text, opset in ((POOLED, 18), ("c = Conv(x, k) f = Flatten(c) y = MatMul(f, w)", 22)):
        path = tmp_path / "m.onnx"
        onnx.save(model(18, text), path)
        options = RewriteOptions(precision="bfloat16", target="cuda")
        done = convert_file(path, options, Asked(), lambda *_: None)
        assert amp.load(done.result.model).graph.opset_imports[""] == opset
        told = convert_file(path, options, Asked(opset="22"), lambda *_: None)
        assert amp.load(told.result.model).graph.opset_imports[""] == 22
