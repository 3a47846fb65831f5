"""What the loop asks of data, wherever the examples lie."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Batch = dict[str, Any]
"""Input name -> array; of data that come as tensors on a device, those tensors."""


@dataclass(frozen=True)
class Epoch:
    """The arguments of `Examples.epoch`, which says what they are."""

    batch: int
    number: int = 0
    seed: int | None = None
    start: int = 0
    drop_last: bool = False


class Examples(ABC):
    """Examples, in the batches of an epoch.

    Attributes:
        where: The file, for errors, or None.
    """

    where: object = None

    @property
    def size(self) -> int | None:
        """The number of examples; None if nobody knows before they have been read."""
        return None

    @property
    def arrays(self) -> dict[str, Array] | None:
        """All examples, if they are in memory and can be looked through before training."""
        return None

    @property
    def once(self) -> bool:
        """Whether they can be read only once."""
        return False

    @abstractmethod
    def steps(self, batch: int, *, drop_last: bool = False) -> int | None:
        """Return the number of batches of an epoch, None if nobody knows.

        Args:
            batch: The number of examples in a batch.
            drop_last: Whether the smaller one at the end is left out.
        """

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

        Which examples are in which batch follows from the arguments alone, so that training that
        was interrupted goes on with the batches that it would have seen.

        Args:
            batch: The number of examples in a batch.
            number: Which epoch it is, from 0.
            seed: Decides the order of the examples; None leaves them as they are stored.
            start: How many batches to leave out at the beginning.
            drop_last: Leave the last one out if it is smaller.

        Raises:
            DataError: The examples cannot be read, or not in such batches.
        """
        return self.batches_of(Epoch(batch, number, seed, start, drop_last))

    @abstractmethod
    def batches_of(self, epoch: Epoch) -> Iterator[Batch]:
        """Do what `epoch` does, given its arguments as one."""

    @property
    @abstractmethod
    def signature(self) -> str:
        """What tells these data from others: shards compare it."""
