"""What a session asks of training on several shards; amp_rewrite.distributed provides it."""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from amp_rewrite.errors import OptionError, ShardError
from amp_rewrite.training.graph.replicas import replica_nodes

if TYPE_CHECKING:
    from amp_rewrite.training.step.step import Step

Sharding: TypeAlias = Any
"""One session's part in training on several shards: what `SessionSharding` in
amp_rewrite.distributed is."""


class ShardContext:
    """The number of shards that a step built inside its `with` block runs on; None if any."""

    def __init__(self, size: int | None) -> None:
        """Keep the number."""
        self.size = size
        self._token: Token[ShardContext | None] | None = None

    def __enter__(self) -> Self:
        """Let optimizers and sessions inside the block find the context."""
        self._token = CURRENT.set(self)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Let them find the context around it again."""
        if self._token is not None:
            CURRENT.reset(self._token)
            self._token = None

    def sharding(self) -> Sharding | None:
        """Return what a new session needs, or None if it runs on one shard."""
        return None


CURRENT: ContextVar[ShardContext | None] = ContextVar("amp_rewrite.shards", default=None)
"""The context of the innermost `with`, for optimizers and sessions inside it."""


def sharding_of(shards: ShardContext | None, step: Step) -> Sharding | None:
    """Return a new session's part in training on several shards, or None if it runs on one.

    `shards` of None is the context around it, for a step that sums over shards.
    """
    sums = any(True for _ in replica_nodes(step.model))
    context = CURRENT.get() if shards is None else shards
    if context is None or (shards is None and not sums):
        return None
    if not isinstance(context, ShardContext):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        raise OptionError(
            "not the shards of a session",
            found=f"an object of type {type(context).__name__}",
            expected="what amp_rewrite.distributed.mpi returned",
        )
    if not sums and (context.size or 1) > 1:
        raise ShardError(
            "the step sums nothing over shards, which would train apart from each other",
            remedy="build it with CrossShardOptimizer, or amp-rewrite train-step --cross-shard",
        )
    return context.sharding()
