"""A raised model is checked and compared before anybody uses it."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.errors import GraphError, OptionError
from amp_rewrite.numerics.convert import upgrade as module
from amp_rewrite.numerics.convert.opset import upgraded
from amp_rewrite.numerics.convert.upgrade import with_gain
from amp_rewrite.rewriting.read_source import read_source

CONV = '<ir_version: 8, opset_import: ["" : 18]> g (float[1,3,8,8] x) => (float[1,4,6,6] y) {'


def conv(rest: str = "y = Conv(x, w)") -> onnx.ModelProto:
    model = parse(f"{CONV} {rest} }}")
    weight = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    return model


def test_a_raised_model_computes_the_same_and_converts_more() -> None:
    model = conv()
    raised = amp.raise_opset(model, 22)
    assert (raised.before, raised.opset, raised.unverified) == (18, 22, None)
    assert model.opset_import[0].version == 18
    options = amp.RewriteOptions(precision="bfloat16")
    report = amp.rewrite(raised.model, options).report
    assert report.summary.compute_converted == 1
    record = with_gain(raised, report, model, options).to_dict()["opset_raised"]
    assert record == {
        "before": 18,
        "compute_before": 0,
        "unverified": None,
        "mended": [],
    }


def test_a_model_that_does_not_run_is_said_not_to_be_compared() -> None:
    model = conv("c = custom.Own(x) y = Conv(c, w)")
    model.opset_import.add(domain="custom", version=1)
    assert "ONNX Runtime cannot load" in str(amp.raise_opset(model, 22).unverified)


def test_functions_are_refused() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "l" : 1]> g (float[2] x) => (float[2] y)
      { y = l.f(x) } <domain: "l", opset_import: ["" : 17]> f (a) => (b) { b = Relu(a) }"""
    with pytest.raises(OptionError, match="model-local functions"):
        amp.raise_opset(parse(text), 22)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("y = Conv<pads = [1, 1]>(x, w)", "made a wrong model for opset 22"),
        ("h = Conv(x, w) y = Neg(h)", "changed what the model computes; found another output"),
        ("h = Conv(x, w) y = com.microsoft.Nothing(h)", "runs the model, but not what onnx"),
    ],
)
def test_what_the_converter_does_wrong_is_refused(
    broken: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def convert(_: ir.Model, opset: int) -> ir.Model:
        wrong = conv(broken)
        wrong.opset_import[0].version = opset
        wrong.opset_import.add(domain="com.microsoft", version=1)
        return amp.load(wrong)

    monkeypatch.setattr(module, "convert_opset", convert)
    with pytest.raises(GraphError, match=message):
        amp.raise_opset(conv(), 22)


@pytest.mark.parametrize(("denied", "opset"), [((), 22), (("conv",), None)])
def test_a_model_is_upgraded_only_where_more_becomes_low(
    denied: tuple[str, ...], opset: int | None
) -> None:
    options = amp.RewriteOptions(precision="bfloat16", target="openvino", deny_nodes=denied)
    flat = read_source(conv("[conv] y = Conv(x, w)"), inline_functions=False)
    _, raised = upgraded(flat, "auto", options)
    assert (None if raised is None else raised.opset) == opset
