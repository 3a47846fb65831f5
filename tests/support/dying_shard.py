"""Train until shard 1 dies in step 20: python dying_shard.py HOW CHECKPOINT."""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import amp_rewrite as amp

sys.path.append(str(Path(__file__).parent))
import shard_models as models


def main(how, checkpoint):
    shards = amp.distributed.mpi(timeout=8)
    with contextlib.nullcontext() if how == "hangs without a block" else shards:
        op = models.cross(amp.optimizers.Adam(0.1)).minimize(
            amp.value(models.loaded(models.LINEAR), "loss")
        )
        with amp.TrainingSession(op, threads=1, shards=shards) as session:
            for step in range(1, 41):
                if step == 20 and shards.rank == 1:
                    die(how)
                session.run(models.own_batch(shards))
                if step % 5 == 0:
                    session.save(checkpoint, {"step": step})


def die(how):
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how.startswith("hangs"):
        time.sleep(60)
    raise ArithmeticError("shard 1 cannot go on")


main(*sys.argv[1:])
