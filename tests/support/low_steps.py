"""Networks, optimizers and batches for tests of steps in float16 and bfloat16."""

import numpy as np
import onnx
import train_models
from onnx import parser

import amp_rewrite as amp
from amp_rewrite.graph.io.read_object import infer_types

LOW = ("float16", "bfloat16")
TEXT = 11
NETWORKS = {
    "mlp": lambda: train_models.mlp((16, 32, 4)),
    "cnn": train_models.digits_cnn,
    "resnet": lambda: train_models.resnet(widths=(4, 8)),
    "transformer": lambda: train_models.transformer(TEXT, length=6, size=16, heads=2, layers=1),
}
ADAM = {
    "plain": lambda: amp.optimizers.Adam(1e-3),
    "if": lambda: amp.LossScaleOptimizer(amp.optimizers.Adam(1e-3)),
    "select": lambda: amp.LossScaleOptimizer(amp.optimizers.Adam(1e-3), conditional="select"),
}


def train_op(network: str | onnx.ModelProto = "mlp", optimizer="plain"):
    source = network if isinstance(network, onnx.ModelProto) else NETWORKS[network]()
    model = amp.load(source)
    return ADAM[optimizer]().minimize(amp.value(model, "loss"))


def batch(network="mlp", seed=0):
    rng = np.random.default_rng(seed)
    if network == "transformer":
        return {name: rng.integers(0, TEXT, (3, 6)) for name in "xt"}
    shape = {"mlp": (16,), "cnn": (1, 8, 8), "resnet": (3, 32, 32)}[network]
    x = rng.normal(size=(8, *shape)).astype(np.float32)
    return {"x": x, "t": rng.integers(0, 4, 8)}


def own_loss(nodes, labels="float[N, 2]"):
    """Return a model with one layer, whose loss its own nodes compute from h and t."""
    text = f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[N, 4] x, {labels} t) => (float loss)
        <float[4, 2] w = {{1, 2, 3, 4, 5, 6, 7, 8}}, float one = {{1}}> {{
            [first] a = MatMul (x, w)
            [act] h = Tanh (a)
            {nodes}
        }}"""
    return parser.parse_model(text)


def low_nodes(model, low):
    """Return the nodes of a model, subgraphs included, that read or compute a low type."""
    types = infer_types(model)
    member = f"tensor({low})"
    return [
        node
        for node in model.graph.all_nodes()
        if node.op_type != "Cast"
        and any(types.get(v) == member for v in (*node.inputs, *node.outputs))
    ]
