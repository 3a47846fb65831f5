"""A weight that is stored in both types is named, and a file that grows is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.errors import AmpWarning

SHARED = """g (float[4,64] x) => (float[4,64] y, float[4,64] z)
    { [low] y = MatMul(x, w) [wide] z = MatMul(x, w) }"""
GROWS = "the file grows by 8,192 bytes: 1 weight is stored in both types, first w, which low reads "


def model(rows: int) -> onnx.ModelProto:
    """Return two products with one weight."""
    text = SHARED.replace("64", str(rows))
    found = parse(text)
    weight = np.random.default_rng(0).standard_normal((rows, rows)).astype(np.float32)
    found.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    return found


def test_a_file_that_grows_is_told_with_the_weight() -> None:
    with pytest.warns(AmpWarning, match=GROWS + "low and wide as float32; --deny-node low keeps"):
        result = amp.rewrite(model(64), target="schema", deny_nodes=["wide"])
    (twice,) = result.report.weights.twice
    assert (twice.name, twice.bytes_added) == ("w", 8192)
    assert (twice.low_reader, twice.float32_reader) == ("low", "wide")
    line = "stored in both types: 1 constant, 8.2 kB more; first w, which low reads in 16 bits"
    assert line in result.report.to_text().replace("\n", " ")


HEADER = '<ir_version: 10, opset_import: ["" : 22, "local" : 1]>'
CONSTANT = "w = Constant<value = float[64,64] {" + ", ".join(["0.1"] * 4096) + "}>()"
TWO = "[low] a = MatMul(s, w) [wide] b = MatMul(s, w) d = Add(a, b)"
PLACES = {
    "an initializer": f"g (float[4,64] s) => (float[4,64] t) {{ {TWO} t = Tanh(d) }}",
    "a Constant": f"g (float[4,64] s) => (float[4,64] t) {{ {CONSTANT} {TWO} t = Tanh(d) }}",
    "an embedding": """g (int64[4] ids, float[4,64] s) => (float[4,64] t) {
        [wide] e = Gather(w, ids) r = Sin(e) v = Transpose(w) [low] a = MatMul(s, v)
        t = Add(a, r) }""",
    "an island": """g (float[4,64] s) => (float[4,64] t) { [low] a = MatMul(s, w) v = Transpose(w)
        [wide] e = Exp(v) m = ReduceMean<keepdims = 1>(e) t = Mul(a, m) }""",
}
for _place, _constant in {"a body": CONSTANT, "a body's outer graph": ""}.items():
    PLACES[f"{_place}, If"] = f"""g (bool c, float[4,64] s) => (float[4,64] t) {{ t = If (c) <
        then_branch = b () => (float[4,64] u) {{ {_constant} {TWO} u = Tanh(d) }},
        else_branch = e () => (float[4,64] n) {{ n = Neg(s) }}> }}"""
    PLACES[f"{_place}, Loop"] = f"""g (float[4,64] x, int64 n, bool c) => (float[4,64] t) {{
        t = Loop (n, c, x) <body = b (int64 i, bool k, float[4,64] s)
        => (bool l, float[4,64] u) {{ l = Identity(k) {_constant} {TWO} u = Tanh(d) }}> }}"""
    PLACES[
        f"{_place}, Scan"
    ] = f"""g (float[4,64] x, float[5,4,64] z) => (float[4,64] t, float[5,4,64]
        o) {{ t, o = Scan <num_scan_inputs = 1, body = b (float[4,64] s, float[4,64] v)
        => (float[4,64] u, float[4,64] p) {{ {_constant} {TWO} u = Tanh(d) p = Add(u, v) }}>
        (x, z) }}"""
    _read, _given = ("s", "x") if _constant else ("s, w", "x, w")
    PLACES[f"{_place}, function"] = f"""g (float[4,64] x) => (float[4,64] y) {{
        y = local.Two({_given}) }} <domain: "local", opset_import: ["" : 22]> Two ({_read}) => (t)
        {{ {_constant} {TWO} t = Tanh(d) }}"""


def stored_elements(model: onnx.ModelProto) -> dict[str, int]:
    """Return, by type, the elements of the long constants in graphs, bodies and functions."""
    tensors = list(model.graph.initializer)
    stack = [*model.graph.node, *(node for f in model.functions for node in f.node)]
    while stack:
        node = stack.pop()
        for attribute in node.attribute:
            stack += attribute.g.node
            tensors += [*attribute.g.initializer, *([attribute.t] if attribute.t.dims else [])]
    found: dict[str, int] = {}
    for tensor in tensors:
        if np.prod(tensor.dims) > 1024:
            name = onnx.TensorProto.DataType.Name(tensor.data_type)
            found[name] = found.get(name, 0) + int(np.prod(tensor.dims))
    return found


@pytest.mark.parametrize("place", PLACES)
def test_a_weight_in_both_types_is_named_wherever_it_stands(place: str) -> None:
    source = parse(f"{HEADER} {PLACES[place]}")
    if CONSTANT not in PLACES[place]:
        weight = np.full((64, 64), 0.1, np.float32)
        source.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    options: dict[str, Any] = {"inline_functions": "function" in place, "target": "schema"}
    with pytest.warns(
        AmpWarning, match="the file grows by 8,192 bytes: 1 weight is stored in both"
    ):
        result = amp.rewrite(source, deny_nodes=["*wide"], **options)
    assert stored_elements(amp.to_proto(result.model)) == {"FLOAT": 4096, "FLOAT16": 4096}
    (twice,) = result.report.weights.twice
    assert twice.bytes_added == 8192
    if "Gather" in PLACES[place] or "Exp" in PLACES[place]:
        return
    result = amp.rewrite(source, **options)
    assert stored_elements(amp.to_proto(result.model)) == {"FLOAT16": 4096}
    assert result.report.weights.twice == ()
