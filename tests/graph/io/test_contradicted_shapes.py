"""Declared shapes that contradict inference are set aside when the opset is raised."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.graph.io.convert_opset import mend_shapes
from amp_rewrite.numerics.convert.file import Asked, convert_file
from amp_rewrite.numerics.convert.upgrade import raise_opset, with_gain
from amp_rewrite.rewriting.plan.options import RewriteOptions

pytest.importorskip("onnxruntime")


def model(output: str, inside: str = "", opset: int = 18) -> onnx.ModelProto:
    made = parse(
        f"g (float[1,4,N] x) => (float{output} y) <float[8,4,3] k, float{inside or '[1,8,N]'} h> {{"
        " h = Conv<kernel_shape = [3], pads = [1, 1]>(x, k) y = Reshape(h, s) }"
    )
    made.graph.output[0].type.tensor_type.shape.SetInParent()  # rank 0 has no spelling
    del made.opset_import[:]
    made.opset_import.add(domain="", version=opset)
    made.graph.initializer.extend(
        [
            numpy_helper.from_array(np.ones((8, 4, 3), np.float32), "k"),
            numpy_helper.from_array(np.array([0, 4, -1]), "s"),
        ]
    )
    kept = [info for info in made.graph.value_info if info.name == "h"]
    del made.graph.value_info[:]
    made.graph.value_info.extend(kept)
    return made


WRONG = {
    "rank 0": ("[]", ""),
    "another rank": ("[1,4]", ""),
    "another length": ("[1,5,M]", ""),
    "a value inside": ("[1,4,M]", "[1,8]"),
    "a length inside": ("[1,4,M]", "[1,9,N]"),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_opset_is_raised_all_the_same(name: str) -> None:
    output, inside = WRONG[name]
    raised = raise_opset(model(output, inside), 22)
    made = amp.to_proto(raised.model)
    onnx.checker.check_model(made, full_check=True)
    assert raised.opset == 22
    assert raised.mended == (("h",) if inside else ("y",))
    dims = made.graph.output[0].type.tensor_type.shape.dim
    assert [d.dim_value for d in dims][:2] == [1, 4]
    assert len(dims) == 3


def test_the_report_has_one_line_of_it() -> None:
    raised = raise_opset(model("[]"), 22)
    options = RewriteOptions(precision="bfloat16")
    report = with_gain(raised, amp.rewrite(raised.model, options).report, model("[]"), options)
    text = report.to_text()
    assert text.count("corrected: ") == 1
    assert "1 declared shape contradicted shape inference and was replaced: y" in text


@pytest.mark.parametrize("target", ["cuda", "openvino"])
def test_an_old_model_becomes_low_in_bfloat16(target: str, tmp_path: Path) -> None:
    made = parse(
        """g (float[1,256,16,16] x) => (float y) <float[512,256,3,3] k> {
            h = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x, k)
            r = Relu(h) p = GlobalAveragePool(r) y = Reshape(p, s) }"""
    )
    made.graph.output[0].type.tensor_type.shape.SetInParent()
    made.opset_import[0].version = 12
    weights = np.random.default_rng(0).normal(0, 0.02, (512, 256, 3, 3)).astype(np.float32)
    made.graph.initializer.append(numpy_helper.from_array(weights, "k"))
    made.graph.initializer.append(numpy_helper.from_array(np.array([1, 512]), "s"))
    onnx.save(made, tmp_path / "old.onnx")
    options = RewriteOptions(precision="bfloat16", target=target)
    done = convert_file(tmp_path / "old.onnx", options, Asked(), lambda *_: None)
    assert done.raised is not None
    assert done.raised.mended == ("y",)
    summary = done.report({}).summary
    assert summary.compute_converted == 1
    done.save(tmp_path / "new.onnx")
    (end,) = onnx.load(tmp_path / "new.onnx").graph.output
    assert [d.dim_value for d in end.type.tensor_type.shape.dim] == [1, 512]


@pytest.mark.parametrize("output", ["[1,4,M]", "[A,B,C]", "[1,4,N]"])
def test_shapes_that_may_be_right_stay(output: str) -> None:
    loaded = amp.load(model(output))
    before = loaded.graph.outputs[0].shape
    assert mend_shapes(loaded) == ()
    assert loaded.graph.outputs[0].shape == before
    assert raise_opset(model(output), 22).mended == ()
