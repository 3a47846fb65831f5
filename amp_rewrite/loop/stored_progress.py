"""Where training was when a checkpoint was saved: what is stored of it, and what is read back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amp_rewrite.base.fields import OBJECT, SWITCH, Check, mapping_to, object_of, whole
from amp_rewrite.errors import CheckpointError
from amp_rewrite.loop.plan_and_progress import Plan, Progress

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
    """Return what a checkpoint keeps of a run."""
    where = {"epoch": at.epoch, "position": at.batch, "step": at.step}
    kept = {_CALLBACKS: dict(callbacks)} if callbacks else {}
    return where | plan.order | kept


def read_back(content: Mapping[str, Any], plan: Plan) -> Progress:
    """Return where a run goes on from what `stored` returned.

    Args:
        content: What a checkpoint keeps, or anything else that somebody saved with one.
        plan: The plan of the run that goes on; its checkpoint is named in errors.

    Raises:
        CheckpointError: A field is missing, unknown or of another kind; or the examples come in
            another order.
    """
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
    """Refuse to begin behind the end of the data: nothing would be trained.

    Raises:
        CheckpointError: An epoch has fewer batches than were seen.
    """
    if steps is not None and at.batch > steps:
        raise CheckpointError(
            "training cannot go on from the checkpoint: position",
            where=where,
            found=at.batch,
            expected=f"at most {steps}, the batches of an epoch",
            remedy="resume with the data with which it was saved",
        )


def check_stored(content: object, expected: Check, where: object) -> None:
    """Refuse what a checkpoint keeps if training did not store it.

    Raises:
        CheckpointError: It is something else.
    """
    misfit = expected(content, "")
    if misfit is not None:
        raise CheckpointError(
            f"training cannot go on from the checkpoint: {misfit.key}",
            where=where,
            found=misfit.found,
            expected=misfit.expected,
            remedy="resume from a checkpoint that training has saved",
        )
