"""Train on several shards.

    mpiexec -n 2 python examples/train_shards.py digits.onnx digits_train.npz

The model ends in logits, its input is x and the labels are t, as examples/digits.py writes it.
"""

import sys

import numpy as np

import amp_rewrite as amp

with amp.distributed.mpi() as shards:
    model = amp.load(sys.argv[1])
    loss = amp.losses.softmax_cross_entropy(model, "logits", "t")
    optimizer = amp.CrossShardOptimizer(amp.optimizers.Adam(1e-3))
    data = shards.data(dict(np.load(sys.argv[2])))
    with amp.TrainingSession(optimizer.minimize(loss)) as session:
        for batch in data.epoch(64, seed=0):
            result = session.run(batch)["loss"]
            if shards.is_first:
                print(result)
        session.save("digits.safetensors")  # shard 0 writes
