"""Train a model in ten lines: python train.py FORWARD.onnx DATA.npz TRAINED.onnx."""

import sys

import numpy as np

import amp_rewrite as amp

model = amp.load(sys.argv[1])
data = np.load(sys.argv[2])
train_op = amp.optimizers.Adam(1e-3).minimize(amp.value(model, "loss"))
with amp.TrainingSession(train_op) as session:
    for _ in range(10):
        print(float(session.run(dict(data))["loss"]))
    session.export(sys.argv[3])
