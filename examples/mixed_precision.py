"""Train in mixed precision: python mixed_precision.py digits.onnx digits_train.npz trained.onnx."""

import sys

import numpy as np

import amp_rewrite as amp

model = amp.load(sys.argv[1])
loss = amp.losses.softmax_cross_entropy(model, "logits", "t")
opt = amp.enable_mixed_precision_graph_rewrite(amp.optimizers.Adam(1e-3))
train_op = opt.minimize(loss)
with amp.TrainingSession(train_op, emulate=True) as session:
    for _ in range(20):
        print(session.run(dict(np.load(sys.argv[2])))["loss"])
    session.save("checkpoint.safetensors")
    session.export(sys.argv[3])
