"""Write digits.onnx, a small network for scikit-learn's digits, with data to train and test it."""

import numpy as np
import onnx
from sklearn.datasets import load_digits

NETWORK = """<ir_version: 8, opset_import: ["": 17]>
digits (float[N, 1, 8, 8] x) => (float[N, 10] logits)
{
    c1 = Conv <pads: ints = [1, 1, 1, 1]> (x, conv1)
    n1 = BatchNormalization (c1, scale1, bias1, mean1, var1)
    r1 = Relu (n1)
    c2 = Conv <pads: ints = [1, 1, 1, 1]> (r1, conv2)
    n2 = BatchNormalization (c2, scale2, bias2, mean2, var2)
    r2 = Relu (n2)
    p2 = MaxPool <kernel_shape: ints = [2, 2], strides: ints = [2, 2]> (r2)
    ratio = Constant <value: tensor = float {0.25}> ()
    d2 = Dropout (p2, ratio)
    f2 = Flatten (d2)
    h3 = Gemm (f2, weight3, bias3)
    r3 = Relu (h3)
    logits = Gemm (r3, weight4, bias4)
}"""

NORMAL = {"scale": 1, "bias": 0, "mean": 0, "var": 1}
rng = np.random.default_rng(0)
weights = {
    "conv1": rng.normal(size=(32, 1, 3, 3)) * (2 / 9) ** 0.5,
    "conv2": rng.normal(size=(64, 32, 3, 3)) * (2 / 288) ** 0.5,
    "weight3": rng.normal(size=(1024, 128)) * (2 / 1024) ** 0.5,
    "weight4": rng.normal(size=(128, 10)) * (2 / 128) ** 0.5,
    **{f"{name}1": np.full(32, value) for name, value in NORMAL.items()},
    **{f"{name}2": np.full(64, value) for name, value in NORMAL.items()},
    "bias3": np.zeros(128),
    "bias4": np.zeros(10),
}
model = onnx.parser.parse_model(NETWORK)
for name, array in weights.items():
    model.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
onnx.save(model, "digits.onnx")

images, labels = load_digits(return_X_y=True)
x = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
held_out, rest = np.split(rng.permutation(len(x)), [len(x) // 5])
np.savez("digits_train.npz", x=x[rest], t=labels[rest])
np.savez("digits_test.npz", x=x[held_out], t=labels[held_out])
