"""What needs more than 32 bits is found, by its node."""

import pytest
from onnx import parser
from onnx_ir.passes.common import ShapeInferencePass

from amp_rewrite.graph.io.load import load
from amp_rewrite.runtimes.openvino.wide_arithmetic import wide_arithmetic


def found(nodes: str) -> list[str]:
    text = f"""<ir_version: 8, opset_import: ["": 18]>
        g (int64[N] x, float[N] f) => (int64[K] y)
        <int64 big = {{5000000000}}, int64 small = {{7}}> {{ {nodes} }}"""
    model = load(parser.parse_model(text))
    ShapeInferencePass()(model)
    return list(wide_arithmetic(model.graph))


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ("[a] y = Mul(x, big)", ["node 'a' (Mul) has an integer beyond 32 bits"]),
        ("[a] b = Less(x, big) y = Cast<to = 7>(b)", ["node 'a' (Less) has an integer beyond"]),
        ("[a] d = Cast<to = 11>(f) [b] y = Cast<to = 7>(d)", ["node 'a' (Cast) computes in fl"]),
        ("y = Mul(x, small)", []),
        ("s = Constant<value_ints = [0]>() e = Constant<value_ints = [9223372036854775807]>() "
         "y = Slice(x, s, e)", []),
    ],
)  # fmt: skip
def test_nodes_that_need_more_bits_are_named(nodes: str, said: list[str]) -> None:
    texts = found(nodes)
    assert len(texts) == len(said)
    for text, beginning in zip(texts, said, strict=True):
        assert text.startswith(beginning)
