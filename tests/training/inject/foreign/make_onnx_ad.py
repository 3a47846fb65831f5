"""Make onnx_ad_step.onnx: a training graph whose derivative another package wrote.

    pip install onnx-ad && python tests/training/inject/foreign/make_onnx_ad.py

onnx-ad 0.3.0 (MIT licence, Joris Gillis) differentiates a small classifier with respect to its
inputs; the seed of its backward pass is the input `adj_loss`, the gradients are `adj_w1` and so on,
with the number of seeds as an additional factor of the last axis. It does not train, so that the
update, SGD with momentum and a step counter, is added here in plain ONNX nodes.
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

FORWARD = """<ir_version: 10, opset_import: ["": 18]>
    classifier (float[8, 4] x, int64[8] t,
                float[4, 16] w1, float[16] b1, float[16, 3] w2, float[3] b2) => (float loss) {
        h = MatMul (x, w1)
        a = Add (h, b1)
        r = Tanh (a)
        l = MatMul (r, w2)
        logits = Add (l, b2)
        loss = SoftmaxCrossEntropyLoss <reduction = "mean"> (logits, t)
    }"""
SHAPES = {"w1": [4, 16], "b1": [16], "w2": [16, 3], "b2": [3]}


def differentiated() -> onnx.ModelProto:
    """Return the classifier with the derivatives that onnx-ad adds."""
    from onnx_ad import reverse  # pyright: ignore[reportMissingImports] not a dependency

    return reverse(parser.parse_model(FORWARD))


def with_update(model: onnx.ModelProto) -> onnx.ModelProto:
    """Add initial weights, the seed's value and the update of momentum and weights."""
    graph, rng = model.graph, np.random.default_rng(0)
    initial = {"step": np.array(0, np.int64), "adj_loss": np.ones((1, 1), np.float32)}
    constants = {"rate": np.float32(0.1), "keep": np.float32(0.9), "one": np.int64(1)}
    for name, shape in SHAPES.items():
        initial[name] = (rng.normal(size=shape) * 0.3).astype(np.float32)
        initial[f"m_{name}"] = np.zeros(shape, np.float32)
        constants[f"shape_{name}"] = np.array(shape, np.int64)
        state = helper.make_tensor_value_info(f"m_{name}", TensorProto.FLOAT, shape)
        graph.input.append(state)
        for op, inputs, output in (
            ("Reshape", (f"adj_{name}", f"shape_{name}"), f"g_{name}"),
            ("Mul", (f"m_{name}", "keep"), f"kept_{name}"),
            ("Add", (f"kept_{name}", f"g_{name}"), f"new_m_{name}"),
            ("Mul", (f"new_m_{name}", "rate"), f"delta_{name}"),
            ("Sub", (name, f"delta_{name}"), f"new_{name}"),
        ):
            graph.node.append(helper.make_node(op, inputs, [output], name=f"update_{output}"))
        for prefix in ("new_", "new_m_"):
            value = helper.make_tensor_value_info(f"{prefix}{name}", TensorProto.FLOAT, shape)
            graph.output.append(value)
    graph.input.append(helper.make_tensor_value_info("step", TensorProto.INT64, []))
    graph.node.append(helper.make_node("Add", ["step", "one"], ["new_step"], name="update_step"))
    graph.output.append(helper.make_tensor_value_info("new_step", TensorProto.INT64, []))
    for name, array in {**initial, **constants}.items():
        graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    model.producer_name, model.producer_version = "onnx-ad", "0.3.0"
    onnx.checker.check_model(model, full_check=True)
    return model


if __name__ == "__main__":
    path = Path(__file__).parent / "onnx_ad_step.onnx"
    path.write_bytes(with_update(differentiated()).SerializeToString(deterministic=True))
