"""What a session asks of training on several shards; amp_rewrite.distributed provides it."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, Protocol, Self

import onnx_ir as ir

from amp_rewrite.errors import OptionError
from amp_rewrite.training.graph.replicas import replica_nodes

if TYPE_CHECKING:
    from amp_rewrite.training.session.checkpoint import Checkpoint
    from amp_rewrite.training.session.compiled_program import CompiledProgram
    from amp_rewrite.training.session.states import States
    from amp_rewrite.training.step.step import Step
    from amp_rewrite.training.step.step_info import StepInfo


class Sharding(Protocol):
    """One session's part in training on several shards.

    Attributes:
        writes: Whether this shard writes files.
        threads: Threads inside an operator for sessions that leave the choice open.
        always: Values that every run computes, fetched or not: sums that all shards have to make.
    """

    writes: bool
    threads: int
    always: tuple[str, ...]

    def prepare(self, step: Step) -> None:
        """Compare the steps of all shards; put this shard's numbers into this one, in place."""
        ...

    def begin(self, states: States) -> None:
        """Take the initial states of shard 0."""
        ...

    def program(
        self, model: ir.Model, info: StepInfo, sets: Any, **options: Any
    ) -> CompiledProgram:
        """Return what runs a step with the sums over shards in it.

        Args:
            model: A step without defaults of states; may be changed.
            info: Its description.
            sets: See `CompiledProgram`.
            **options: See `CompiledProgram`.
        """
        ...

    def agree(self, text: str | None) -> str | None:
        """Return on all shards what the first one says that says anything; None if none does."""
        ...

    def checkpoint(self, read: Callable[[], Checkpoint]) -> Checkpoint:
        """Return what shard 0 reads, on every shard; `read` is called on shard 0 only."""
        ...


class ShardContext:
    """Says how many shards a step that is being built inside its `with` block will run on.

    Attributes:
        size: Their number; None if it is known only when a session begins.
    """

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

    def sharding(self, *, explicit: bool) -> Sharding | None:
        """Return what a new session needs, or None if it runs on one shard.

        Args:
            explicit: The session was told to use this context.
        """
        del explicit
        return None


CURRENT: ContextVar[ShardContext | None] = ContextVar("amp_rewrite.shards", default=None)
"""The context of the innermost `with`, for optimizers and sessions inside it."""


def sharding_of(shards: ShardContext | None, step: Step) -> Sharding | None:
    """Return a new session's part in training on several shards, or None if it runs on one.

    `shards` of None is the context around it, for a step that sums over shards.

    Raises:
        OptionError: `shards` is not a context.
    """
    if shards is not None:
        _check_context(shards)
        return shards.sharding(explicit=True)
    around = CURRENT.get()
    if around is None or not any(True for _ in replica_nodes(step.model)):
        return None
    return around.sharding(explicit=False)


def _check_context(shards: object) -> None:
    if not isinstance(shards, ShardContext):
        raise OptionError(
            "not the shards of a session",
            found=f"an object of type {type(shards).__name__}",
            expected="what amp_rewrite.distributed.mpi or torch returned",
        )
