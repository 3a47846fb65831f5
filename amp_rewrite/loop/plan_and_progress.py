"""The plan and the progress of training, and their form in a checkpoint."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from amp_rewrite.base import arguments
from amp_rewrite.base.fields import OBJECT, SWITCH, Check, mapping_to, object_of, whole
from amp_rewrite.errors import CheckpointError, OptionError, StepError
from amp_rewrite.training.data.as_examples import Examples
from amp_rewrite.training.session.checkpoint import check_checkpoint_name
from amp_rewrite.training.step.step_info import LOSS

SCALE = ("loss_scale", "skipped_steps")
"""Names of fetches of a loss scale, and of the states' roles."""


@dataclass(frozen=True)
class Plan:
    """How training goes through the data; the arguments of `Trainer.train`."""

    epochs: int
    batch: int
    seed: int = 0
    shuffle: bool = True
    checkpoint: str | os.PathLike[str] | None = None
    every: int = 0

    def __post_init__(self) -> None:
        """Check the numbers, and convert them to Python's."""
        for name, least in _LEAST.items():
            number = arguments.integer(name, getattr(self, name), low=least)
            object.__setattr__(self, name, number)
        object.__setattr__(self, "shuffle", arguments.switch("shuffle", self.shuffle))
        check_checkpoint_name(self.checkpoint)
        if self.every and self.checkpoint is None:
            raise OptionError(
                "no checkpoint is kept that could be saved more often",
                found=f"checkpoint_every {self.every}",
                remedy="name the file of the checkpoint",
            )

    @property
    def order(self) -> dict[str, Any]:
        """The settings that decide which examples are in a step."""
        return {"batch": self.batch, "seed": self.seed, "shuffle": self.shuffle}


_LEAST = {"epochs": 1, "batch": 1, "seed": 0, "every": 0}
"""The numbers of a plan -> the lowest value of each."""


@dataclass
class Progress:
    """The progress of training."""

    epoch: int = 0  # done
    batch: int = 0  # batches of the present epoch done
    step: int = 0  # done in all
    loss: float = math.nan  # of the last step
    fetched: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """The values of the last step that callbacks fetch."""
    evaluation: dict[str, float] | None = None  # the last results
    loss_scale: float | None = None  # of the last step; None if the step has none that changes
    skipped_steps: int | None = None
    callbacks: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """The states of callbacks in the checkpoint that training continues from."""

    def __str__(self) -> str:
        """Return a line of progress."""
        return f"epoch {self.epoch + 1}, step {self.step}, loss {self.loss:.4g}"

    def place(self, ahead: int = 0) -> str:
        """Return the place of the last step, or of one some steps ahead, in words."""
        step, batch = self.step + ahead, self.batch + ahead
        return f"step {step}, batch {batch} of epoch {self.epoch + 1}"

    def note(self, results: Mapping[str, Any], asked: Collection[str] = ()) -> None:
        """Take the results of a step; `asked` are the names that callbacks fetch."""
        self.loss = scalar_loss(results[LOSS])
        if results.keys() >= set(SCALE):
            self.loss_scale = float(results["loss_scale"])
            self.skipped_steps = int(results["skipped_steps"])
        self.fetched = {name: results[name] for name in asked}


def rest_of_epoch(
    data: Examples, plan: Plan, at: Progress, *, drop_last: bool
) -> Iterator[dict[str, Any]]:
    """Return the remaining batches of the present epoch."""
    seed = plan.seed if plan.shuffle else None
    return data.epoch(plan.batch, number=at.epoch, seed=seed, start=at.batch, drop_last=drop_last)


def scalar_loss(loss: Any) -> float:
    """Return the loss of a step as a number."""
    if loss.size != 1:
        raise StepError(
            "the loss is not a scalar",
            found=f"the shape {list(loss.shape)}",
            remedy="build the step with the mean of it",
        )
    return float(loss.item())


_CALLBACKS = "callbacks"
_STORED = object_of(
    {
        **dict.fromkeys(("epoch", "position", "step"), whole(0)),
        "batch": whole(1),
        "seed": whole(0),
        "shuffle": SWITCH,
        _CALLBACKS: mapping_to(OBJECT),
    },
    optional=(_CALLBACKS,),
)


def stored(at: Progress, plan: Plan, callbacks: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the part of a run in a checkpoint."""
    where = {"epoch": at.epoch, "position": at.batch, "step": at.step}
    kept = {_CALLBACKS: dict(callbacks)} if callbacks else {}
    return where | plan.order | kept


def read_back(content: Mapping[str, Any], plan: Plan) -> Progress:
    """Return the progress that `stored` wrote into the checkpoint of a plan."""
    check_stored(content, _STORED, plan.checkpoint)
    for name, value in plan.order.items():
        if content[name] != value:
            raise CheckpointError(
                f"the checkpoint was saved with another {name}",
                where=plan.checkpoint,
                found=content[name],
                expected=value,
                remedy="resume with the same data order",
            )
    return Progress(
        content["epoch"],
        content["position"],
        content["step"],
        callbacks=content.get(_CALLBACKS, {}),
    )


def check_begin(at: Progress, steps: int | None, where: object) -> None:
    """Refuse to begin after the end of the data."""
    if steps is not None and at.batch > steps:
        raise CheckpointError(
            "training cannot go on from the checkpoint: position",
            where=where,
            found=at.batch,
            expected=f"at most {steps}, the batches of an epoch",
            remedy="resume with the data with which it was saved",
        )


def check_stored(content: object, expected: Check, where: object) -> None:
    """Refuse the content of a checkpoint that training did not save."""
    misfit = expected(content, "")
    if misfit is not None:
        raise CheckpointError(
            f"training cannot go on from the checkpoint: {misfit.key}",
            where=where,
            found=misfit.found,
            expected=misfit.expected,
            remedy="resume from a checkpoint that training has saved",
        )
