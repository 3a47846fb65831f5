"""Write models that stress a converter in one way each, and graphs of large networks.

    python benchmarks/stress_models.py DEST NAME ...

Those of tools/corpus/make_synth.py are larger; bench_rewrite.py measures both kinds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
from llama_model import llama80
from onnx import TensorProto, helper
from train_models import Net, bert_encoder

WIDTH = 16


def _net() -> Net:
    """Return a network with the input x (4, WIDTH) and the output y."""
    net = Net()
    net.input("x", TensorProto.FLOAT, 4, WIDTH)
    net.outputs.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, WIDTH]))
    return net


def small126() -> onnx.ModelProto:
    """Return a residual network of 126 nodes for images of 32 x 32."""
    net = Net()
    x = net.input("x", TensorProto.FLOAT, "N", 3, 32, 32)
    x = net.op("Relu", net.conv(x, "stem", 3, WIDTH))
    for i in range(17):
        y = net.op("Relu", net.conv(x, f"block{i}.conv1", WIDTH, WIDTH))
        x = net.op("Relu", net.op("Add", net.conv(y, f"block{i}.conv2", WIDTH, WIDTH), x))
    x = net.op("Flatten", net.op("GlobalAveragePool", x), axis=1)
    y = net.op("Softmax", net.linear(x, "last", WIDTH, 10), name="y")
    net.outputs.append(helper.make_tensor_value_info(y, TensorProto.FLOAT, ["N", 10]))
    return net.model("small126")


def fanout50k(consumers: int = 50_000) -> onnx.ModelProto:
    """Return a model with one value of 50,000 consumers, whose outputs are summed one by one."""
    net = _net()
    shared = net.op("Relu", "x", name="shared")
    weights = [net.weight(f"w{i}", WIDTH, WIDTH) for i in range(64)]
    total = shared
    for i in range(consumers):
        product = net.op("MatMul", shared, weights[i % len(weights)])
        total = net.op("Add", total, product, name="y" if i == consumers - 1 else "")
    return net.model("fanout50k")


def init10k(layers: int = 10_000) -> onnx.ModelProto:
    """Return a chain of 10,000 products with a weight of its own each, and their activations."""
    net, x = _net(), "x"
    for i in range(layers):
        x = net.op("MatMul", x, net.weight(f"w{i}", WIDTH, WIDTH))
        x = net.op("Tanh", x, name="y" if i == layers - 1 else "")
    return net.model("init10k")


def names10k(nodes: int = 1_000, length: int = 10_000) -> onnx.ModelProto:
    """Return a chain of 1,000 nodes whose names, and those of their outputs, have 10 KB each."""
    net, x = _net(), "x"
    weight = net.weight("w", WIDTH, WIDTH)
    for i in range(nodes):
        name = "y" if i == nodes - 1 else f"{i:0{length}}"
        x = net.op("MatMul", x, weight, name=name) if i % 2 else net.op("Tanh", x, name=name)
    return net.model("names10k")


def nested30(towers: int = 300, depth: int = 30) -> onnx.ModelProto:
    """Return 300 towers of If, each in the branch of another, 30 levels deep.

    A level is two nodes. Protobuf reads 100 levels of messages, three for each subgraph.
    """
    net, x = _net(), "x"
    net.inputs.append(helper.make_tensor_value_info("flag", TensorProto.BOOL, []))
    net.weight("w", WIDTH, WIDTH)
    for i in range(towers):
        tower = _tower(x, f"tower{i}", depth)
        net.nodes.append(tower)
        x = net.op("Tanh", tower.output[0], name="y" if i == towers - 1 else "")
    return net.model("nested30")


def _tower(x: str, name: str, depth: int) -> onnx.NodeProto:
    """Return an If whose branches are a product, and another If or at the bottom a product."""
    top = _product(x, f"{name}_bottom")
    for level in range(depth):
        other = _product(x, f"{name}_product{level}")
        output = f"{name}_if{level}"
        branches: dict[str, Any] = {"then_branch": _branch(top), "else_branch": _branch(other)}
        top = helper.make_node("If", ["flag"], [output], name=output, **branches)
    return top


def _product(x: str, name: str) -> onnx.NodeProto:
    return helper.make_node("MatMul", [x, "w"], [name], name=name)


def _branch(node: onnx.NodeProto) -> onnx.GraphProto:
    output = helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, [4, WIDTH])
    return helper.make_graph([node], node.name, [], [output])


def bert_base(layers: int = 12, size: int = 768) -> onnx.ModelProto:
    """Return the encoder of bert-base with random weights, as exporters write it."""
    net = Net()
    shape = ("N", 128, size)
    hidden = net.op("Identity", bert_encoder(net, layers, size), name="hidden")
    net.outputs.append(helper.make_tensor_value_info(hidden, TensorProto.FLOAT, shape))
    return net.model("bert_base")


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    make.__name__: make
    for make in (small126, fanout50k, init10k, names10k, nested30, bert_base, llama80)
}


def main(arguments: list[str]) -> int:
    """Write the named models into a folder."""
    if not arguments or set(arguments[1:]) - set(MODELS):
        print(f"usage: stress_models.py DEST [{' '.join(MODELS)}]", file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    for name in arguments[1:]:
        onnx.save(MODELS[name](), folder / f"{name}.onnx")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
