"""Compare the states of all shards bit by bit."""

from __future__ import annotations

import hashlib

import numpy as np

from amp_rewrite.distributed.collective import Collective
from amp_rewrite.errors import ShardError
from amp_rewrite.train.session.states import States

_SHOWN = 3


def compare_states(group: Collective, states: States, steps: int) -> None:
    """Compare a hash of every state tensor with those of the other shards.

    Args:
        group: The shards that sum their gradients.
        states: This shard's states.
        steps: How many steps the session has done.

    Raises:
        ShardError: A state differs; the message names the first.
    """
    digests = [hashlib.blake2b(states.read(name).tobytes(), digest_size=16) for name in states.info]
    own = np.frombuffer(b"".join(d.digest() for d in digests), np.uint8).reshape(-1, 16)
    found = group.gather(own)
    names = list(states.info)
    for shard, other in enumerate(found):
        differing = [names[i] for i in np.flatnonzero((other != found[0]).any(axis=1))]
        if differing:
            rest = len(differing) - _SHOWN
            more = f" and {rest} more" if rest > 0 else ""
            raise ShardError(
                "the states of the shards have come apart",
                where=f"after {steps} steps",
                found=f"shard {shard} of the group differs from its shard 0 in "
                + ", ".join(map(repr, differing[:_SHOWN]))
                + more,
                expected="the same bits on all shards",
                remedy="assign states on all shards alike, and resume from a checkpoint",
            )
