"""A model of two layers with names to pick its variables by."""

import numpy as np
import onnx
import onnx_ir as ir

import amp_rewrite as amp

SHAPES = {"body.weight": (3, 4), "body.bias": (4,), "head.weight": (4, 2), "head.bias": (2,)}


def network(middle: str = "a = Tanh(h)", **more: np.ndarray) -> ir.Model:
    """Return the model, whose layers `middle` joins; `more` are its other variables."""
    proto = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
    g (float[n, 3] x) => (float[n, 2] y) {{
        p = MatMul(x, "body.weight")
        h = Add(p, "body.bias")
        {middle}
        q = MatMul(a, "head.weight")
        y = Add(q, "head.bias")
    }}""")
    random = np.random.default_rng(1)
    arrays = {n: random.normal(size=s).astype(np.float32) for n, s in SHAPES.items()}
    for name, array in {**arrays, **more}.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return amp.load(proto)
