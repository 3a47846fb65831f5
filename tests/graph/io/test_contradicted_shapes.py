"""Declared shapes that contradict inference are set aside when the opset is raised."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.graph.io.contradicted_shapes import mend_shapes
from amp_rewrite.numerics.raise_opset import raise_opset, with_gain
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
    assert text.count("mended: ") == 1
    assert "1 declared shape contradicted inference and has the inferred form: y" in text


@pytest.mark.parametrize("output", ["[1,4,M]", "[A,B,C]", "[1,4,N]"])
def test_shapes_that_may_be_right_stay(output: str) -> None:
    loaded = amp.load(model(output))
    before = loaded.graph.outputs[0].shape
    assert mend_shapes(loaded) == ()
    assert loaded.graph.outputs[0].shape == before
    assert raise_opset(model(output), 22).mended == ()
