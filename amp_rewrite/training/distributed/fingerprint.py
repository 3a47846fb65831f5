"""Find out whether all shards run the same step, and whether their states are still the same."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict
from itertools import zip_longest
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import ShardError
from amp_rewrite.training.distributed.collective import Collective, ShardOptions, gather_text
from amp_rewrite.training.step.step import Step

_MISSING = "nothing"


def compare_steps(world: Collective, step: Step, options: ShardOptions) -> None:
    """Compare options, states, inputs, nodes and constants of the steps of all shards.

    The initial values of states may differ: those of shard 0 are taken.

    Raises:
        ShardError: They differ; the message names the first difference.
    """
    parts = {
        "an option": [f"{name} {value}" for name, value in asdict(options).items()],
        "a state tensor": _states(step),
        "an input": _inputs(step),
        "a node": [_node(node) for node in step.model.graph],
        "a constant": list(_constants(step)),
    }
    own = np.stack([_digest("\n".join(lines)) for lines in parts.values()])
    digests = world.gather(own)
    for index, (what, lines) in enumerate(parts.items()):
        other = next(
            (i for i, d in enumerate(digests) if (d[index] != digests[0][index]).any()), None
        )
        if other is not None:
            texts = gather_text(world, "\n".join(lines))
            raise _difference(what, texts[0].split("\n"), texts[other].split("\n"), other)


def _difference(what: str, first: list[str], second: list[str], other: int) -> ShardError:
    pairs = zip_longest(first, second, fillvalue=_MISSING)
    expected, own = next(pair for pair in pairs if pair[0] != pair[1])
    return ShardError(
        f"the shards run different steps: {what} differs",
        where=f"shard {other}",
        found=own or _MISSING,
        expected=f"{expected or _MISSING}, as on shard 0",
        remedy="start all shards with the same program, files and options",
    )


def _digest(text: str) -> np.ndarray[Any, Any]:
    return np.frombuffer(hashlib.blake2b(text.encode(), digest_size=16).digest(), np.uint8)


def _states(step: Step) -> list[str]:
    return [f"{s.name} {s.dtype} {list(s.shape)} {s.role}" for s in step.info.states]


def _inputs(step: Step) -> list[str]:
    values = {v.name: v for v in step.model.graph.inputs}
    return [f"{name} {values[name].dtype} {values[name].shape}" for name in step.info.inputs]


def _node(node: ir.Node) -> str:
    names = [
        [v.name if v is not None else "" for v in side] for side in (node.inputs, node.outputs)
    ]
    content = ir.serde.serialize_node(node).SerializeToString(deterministic=True)
    digest = hashlib.blake2b(content, digest_size=8).hexdigest()
    return f"{node.op_type} {names[0]} -> {names[1]} {digest}"


def _constants(step: Step) -> Iterator[str]:
    states = set(step.info.names)
    for name, value in sorted(step.model.graph.initializers.items()):
        tensor = value.const_value
        if name not in states and tensor is not None:
            content = hashlib.blake2b(tensor.tobytes(), digest_size=8).hexdigest()
            yield f"{name} {tensor.dtype} {tensor.shape} {content}"
