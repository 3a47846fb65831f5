"""Einsums that are matrix products are written as such, with the same outputs to the last bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.graph.io.load import load
from amp_rewrite.numerics.converted_file import raised_model
from amp_rewrite.numerics.raise_opset import with_gain
from amp_rewrite.rewriting.spell_einsums import spell_einsums

HEADER = '<ir_version: 8, opset_import: ["" : 18]>'


def _model(equation: str, first: str, second: str) -> onnx.ModelProto:
    return parse(
        f"""{HEADER} g (float[{first}] a, float[{second}] b) => (float[r] y) {{
            y = Einsum<equation = "{equation}">(a, b) }}"""
    )


@pytest.mark.parametrize(
    ("equation", "first", "second"),
    [
        ("bk,kn->bn", "2,3", "3,5"),
        ("bsk,kn->bsn", "2,4,3", "3,5"),
        ("bsk,nk->bsn", "2,4,3", "5,3"),
        ("bsk,khd->bshd", "2,4,6", "6,2,3"),
        ("bshd,hdk->bsk", "2,4,2,3", "2,3,6"),
        ("bthd,bshd->bhts", "2,4,2,3", "2,5,2,3"),
        ("bhts,bshd->bthd", "2,2,4,5", "2,5,2,3"),
        ("bij,bjk->bik", "2,3,4", "2,4,5"),
        ("ij, jk", "3,4", "4,5"),
        ("kb,kn->nb", "3,2", "3,5"),
        ("...k,kn->...n", "2,3", "3,5"),
        ("...k,kn->...n", "2,4,3", "3,5"),
        ("k...,kn->n...", "3,2,4", "3,5"),
        ("...k,kn", "2,4,3", "3,5"),
    ],
)
def test_a_matrix_product_is_one(equation: str, first: str, second: str) -> None:
    source = _model(equation, first, second)
    spelled = load(source)
    assert spell_einsums(spelled) == 1
    assert {n.op_type for n in spelled.graph} <= {"Constant", "MatMul", "Reshape", "Transpose"}
    rng = np.random.default_rng(0)
    shapes = [[int(d) for d in text.split(",")] for text in (first, second)]
    feeds = {
        n: rng.standard_normal(s).astype(np.float32) for n, s in zip("ab", shapes, strict=True)
    }
    expected = amp.evaluate(source, feeds, emulate=False)["y"]
    np.testing.assert_array_equal(amp.evaluate(spelled, feeds, emulate=False)["y"], expected)


@pytest.mark.parametrize(
    ("equation", "first", "second"),
    [
        ("bi,bj->bij", "2,3", "2,4"),
        ("ii,ij->ij", "3,3", "3,4"),
        ("...ij,...jk->...ik", "2,3,4", "2,4,5"),
        ("...k,kn->n", "2,3", "3,5"),
        (".k,kn->.n", "2,3", "3,5"),
        ("...k,kn->...n", "3", "3,5"),
        ("bij,jk->ik", "2,3,4", "4,5"),
        ("bk,k->b", "2,3", "3"),
        ("bsk,khd->bshd", "2,4,6", "6,h,d"),
        ("bijk,bkl->bijl", "2,3,4,5", "2,5,6"),
    ],
)
def test_what_is_none_is_left_alone(equation: str, first: str, second: str) -> None:
    model = load(_model(equation, first, second))
    assert spell_einsums(model) == 0
    assert [n.op_type for n in model.graph] == ["Einsum"]


def _dense() -> onnx.ModelProto:
    model = parse(
        f"""{HEADER} g (float[2,4,8] x) => (float[2,4,8] y) {{
            h = Einsum<equation = "bsk,kn->bsn">(x, w) r = Relu(h)
            y = Einsum<equation = "bsk,kn->bsn">(r, w) }}"""
    )
    weight = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    return model


def test_a_target_without_a_kernel_in_bfloat16_gets_products(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(_dense(), path)
    options = amp.RewriteOptions(precision="bfloat16", target="cuda")
    raised = raised_model(path, "auto", options)
    assert raised is not None
    assert (raised.before, raised.opset, raised.spelled, raised.unverified) == (18, 18, 2, None)
    report = with_gain(raised, amp.rewrite(raised.model, options).report, path, options)
    assert report.summary.compute_converted == 1.0
    assert "2 Einsums written as matrix products (float32 outputs are the same)" in report.to_text()


def test_einsums_are_left_alone_where_nothing_more_becomes_low(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(_dense(), path)
    options = amp.RewriteOptions(precision="bfloat16", target="cuda", deny_ops=["Einsum"])
    raised = raised_model(path, "auto", options)
    assert raised is None or raised.spelled == 0


def test_float16_and_an_opset_that_is_kept_leave_einsums_alone(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(_dense(), path)
    assert raised_model(path, "auto", amp.RewriteOptions()) is None
    assert raised_model(path, "keep", amp.RewriteOptions(precision="bfloat16")) is None
