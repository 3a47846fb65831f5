"""Train a model in ten lines: python train.py digits.onnx digits_train.npz trained.onnx."""

import sys

import numpy as np

import amp_rewrite as amp

model = amp.load(sys.argv[1])
loss = amp.losses.softmax_cross_entropy(model, "logits", "t")
train_op = amp.optimizers.Adam(1e-3).minimize(loss)
with amp.TrainingSession(train_op) as session:
    for _ in range(20):
        print(session.run(dict(np.load(sys.argv[2])))["loss"])
    session.export(sys.argv[3])
