"""Nodes are found by the modules that torch.onnx notes in them."""

from __future__ import annotations

import onnx
import pytest

import amp_rewrite as amp
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.io.read_flat import read_flat as load_flat
from amp_rewrite.graph.modules import known_as, nodes_by_name, nodes_called, noted_module

TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2, 4] x, float[4, 4] w) => (float[2, 4] y)
{
    h = MatMul(x, w)
    a = Relu(h)
    z = MatMul(a, w)
    y = Add(z, x)
}
"""
SCOPES = ["encoder.layers.0.fc", "encoder.layers.0", "encoder.layers.10.fc", ""]


def model(key: str = "pkg.torch.onnx.name_scopes") -> onnx.ModelProto:
    proto = onnx.parser.parse_model(TEXT)
    for number, (node, path) in enumerate(zip(proto.graph.node, SCOPES, strict=True)):
        node.name = f"node_{number}"
        parts = path.split(".") if path else []
        scopes = ["", *(".".join(parts[: end + 1]) for end in range(len(parts))), f"op_{number}"]
        noted = str(scopes) if key != "namespace" else "/".join(f"{s}: torch.Class" for s in scopes)
        node.metadata_props.add(key=key, value=noted)
    return proto


@pytest.mark.parametrize("key", ["pkg.torch.onnx.name_scopes", "namespace"])
def test_modules_are_read_from_metadata(key: str) -> None:
    flat = load_flat(model(key))
    assert [noted_module(flat, node) for node in range(4)] == SCOPES


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("/encoder/layer.0/attention/self/MatMul", "encoder.layer.0.attention.self"),
        ("/features/features.0/features.0.1/Conv", "features.0.1"),
        ("/Add", ""),
        ("encoder/MatMul", ""),
    ],
)
def test_names_with_slashes_are_modules(name: str, module: str) -> None:
    assert known_as(name, "")[1:2] == ((module,) if module else ())


def test_a_name_means_a_node_before_a_module_before_a_value() -> None:
    proto = model()
    flat = load_flat(proto)
    assert nodes_called(flat, "encoder.layers.0") == [0, 1]
    assert nodes_called(flat, "node_1") == [1]
    assert nodes_called(flat, "z") == [2]
    assert nodes_called(flat, "x") == [0, 3]
    assert nodes_called(flat, "encoder.layers.1") == []
    proto.graph.node[3].name = "encoder.layers.0"
    assert nodes_by_name(load_flat(proto), ["encoder.layers.0"]) == {"encoder.layers.0": [3]}


def kept(**options: object) -> list[str]:
    report = amp.rewrite(model(), target="schema", **options).report  # pyright: ignore[reportArgumentType] as tests give them
    return [
        n.name for n in report.nodes if {v.reason for v in n.variables.values()} == {"node-rule"}
    ]


def test_patterns_and_lists_name_modules(tmp_path: object) -> None:
    assert kept(deny_nodes=["encoder.layers.0"]) == ["node_0", "node_1"]
    assert kept(deny_nodes=["*.fc"]) == ["node_0", "node_2"]
    rules = "version: 1\nprecision: float16\ntarget: any\nextend: float16_cuda\n"
    rules += "nodes:\n  - {node: encoder.layers.10, list: deny, why: measured}\n"
    file = f"{tmp_path}/own.yaml"
    with open(file, "w") as out:
        out.write(rules)
    assert kept(lists=file) == ["node_2"]


def test_a_pattern_that_matches_nothing_lists_modules() -> None:
    with pytest.raises(OptionError, match=r"'encoder\.layers\.10"):
        amp.rewrite(model(), deny_nodes=["encoder.layers.10.fd"])


def test_explain_takes_modules_and_values_and_says_the_module() -> None:
    result = amp.rewrite(model(), target="schema")
    lines = amp.explain(result, "encoder.layers.0").splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "node_0 (MatMul of encoder.layers.0.fc) becomes float16",
        "node_1 (Relu of encoder.layers.0) becomes float16",
    ]
    assert amp.explain(result, "z") == amp.explain(result, "node_2")
    with pytest.raises(OptionError, match=r"encoder\.layers\.0"):
        amp.explain(result, "encoder.layer.0")
