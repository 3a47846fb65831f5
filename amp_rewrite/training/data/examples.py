"""The interface of examples for the loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from amp_rewrite.base import arguments

Array = np.ndarray[Any, Any]
Batch = dict[str, Any]
"""Input name -> array, or tensor on a device."""


@dataclass(frozen=True)
class Epoch:
    """The arguments of `Examples.epoch`."""

    batch: int
    number: int = 0
    seed: int | None = None
    start: int = 0
    drop_last: bool = False


class Examples(ABC):
    """Examples, in the batches of an epoch."""

    where: object = None
    """The file, for errors, or None."""

    @property
    def size(self) -> int | None:
        """The number of examples; None if it is unknown before they are read."""
        return None

    @property
    def arrays(self) -> dict[str, Array] | None:
        """All examples, if they are in memory."""
        return None

    @property
    def once(self) -> bool:
        """Whether they can be read only once."""
        return False

    @abstractmethod
    def steps(self, batch: int, *, drop_last: bool = False) -> int | None:
        """Return the number of batches of an epoch; None if it is unknown."""

    def epoch(
        self,
        batch: int,
        *,
        number: int = 0,
        seed: int | None = None,
        start: int = 0,
        drop_last: bool = False,
    ) -> Iterator[Batch]:
        """Yield the batches of one epoch; the last one may be smaller.

        The batches follow from the arguments alone, so that interrupted training can continue.

        Args:
            batch: The number of examples in a batch.
            number: The number of the epoch, from 0.
            seed: Decides the order of the examples; None is the stored order.
            start: The number of batches to skip.
            drop_last: Whether to omit the last batch if it is smaller.

        Raises:
            DataError: The examples cannot be read, or not in such batches.
            OptionError: A number is no integer, or out of range.
        """
        batch, number = arguments.integer("batch", batch, low=1), arguments.integer("epoch", number)
        seed = None if seed is None else arguments.integer("seed", seed)
        start = arguments.integer("start", start)
        return self.batches_of(Epoch(batch, number, seed, start, drop_last))

    @abstractmethod
    def batches_of(self, epoch: Epoch) -> Iterator[Batch]:
        """Yield the batches of an epoch; see `epoch`."""

    @property
    @abstractmethod
    def signature(self) -> str:
        """A description by which shards compare their data."""
