"""The description of a training step in its metadata, as far as rewriting needs it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

from amp_rewrite.base.fields import (
    TEXT,
    Check,
    kind,
    list_of,
    mapping_to,
    object_of,
    one_of,
    or_null,
    whole,
)
from amp_rewrite.dtypes import FLOAT32, LOW
from amp_rewrite.errors import StepError
from amp_rewrite.graph import elements
from amp_rewrite.graph.metadata_keys import STEP_KEY

if TYPE_CHECKING:
    import onnx_ir as ir

    from amp_rewrite.graph.flat import FlatGraph

VERSION = 1
"""The version of the description; what a later one holds is not known here."""


_PRECISIONS = (FLOAT32.name, *LOW)
_ELEMENT_TYPE = kind(
    "an element type",
    lambda content: isinstance(content, str) and elements.element(content) is not None,
)
_FINITE = kind(
    "a finite number", lambda content: type(content) in (int, float) and abs(content) <= FLOAT32.max
)
_NAMES = mapping_to(TEXT)
_TARGET_NAMES = ("logits", "predictions", "labels", "denominator")
_TARGETS = object_of(
    {**dict.fromkeys(_TARGET_NAMES, TEXT), "ignore_index": whole(-(2**63))},
    optional=(*_TARGET_NAMES, "ignore_index"),
)
_STATE = object_of(
    {
        **dict.fromkeys(("name", "output", "role"), TEXT),
        "dtype": _ELEMENT_TYPE,
        "shape": list_of(whole(0, 2**31 - 1)),
    }
)
_LOSS_SCALE = object_of(
    {
        "config": object_of(
            {
                "floor": _FINITE,
                "loss_scale_value": _FINITE,
                "max_consecutive_skips": or_null(whole(0)),
            },
            optional=("floor", "loss_scale_value", "max_consecutive_skips"),
            more=True,
        )
    },
    optional=("config",),
    more=True,
)
"""A user's own class says what it likes; these are the fields that a session reads."""

_DESCRIPTION: dict[str, Check] = {
    "version": whole(VERSION, VERSION),
    "states": list_of(_STATE),
    "inputs": list_of(TEXT),
    "fetches": _NAMES,
    "precision": one_of(*_PRECISIONS),
    "targets": or_null(_TARGETS),
    **dict.fromkeys(("gradients", "averages"), or_null(_NAMES)),
    **dict.fromkeys(("loss", "seed", "boundary"), or_null(TEXT)),
    "loss_scale": or_null(_LOSS_SCALE),
    "accumulate": whole(1),
}
_NEEDED = ("version", "states", "inputs", "fetches")
_WHOLE = object_of(_DESCRIPTION, optional=_DESCRIPTION.keys() - _NEEDED)
_PART = object_of(_DESCRIPTION, optional=_DESCRIPTION, more=True)


Described: TypeAlias = "ir.Model | FlatGraph"
"""A model with metadata."""


def check_description(model: Described, where: object = None, *, complete: bool = False) -> None:
    """Refuse a model that describes itself as a training step, but not as this package does.

    A `complete` one is of this version and has every field; of another, only what is there counts.
    """
    try:
        description: Any = json.loads(model.metadata_props.get(STEP_KEY, "{}"))
    except (ValueError, RecursionError):
        description = None
    if isinstance(description, dict) and description.get("version", VERSION) != VERSION:
        if complete:
            raise StepError(
                f"another version of this package wrote the step: metadata {STEP_KEY!r}",
                where=where,
                expected=f"version {VERSION}",
            )
        return
    description = _present(description)
    misfit = (_WHOLE if complete else _PART)(description, "")
    if misfit is not None:
        key = f": {misfit.key}" if misfit.key else ""
        raise StepError(
            f"the metadata {STEP_KEY!r} of the model cannot be read{key}",
            where=where,
            found=misfit.found,
            expected=misfit.expected,
            remedy="build the step again",
        )


def step_description(model: Described) -> dict[str, Any]:
    """Return what a training step says about itself; empty for any other model."""
    return _present(json.loads(model.metadata_props.get(STEP_KEY, "{}")))


def _present(description: Any) -> Any:
    """Return a description without the keys that only earlier releases wrote."""
    if not isinstance(description, dict):
        return description
    gone = {"gradient_rows", *(() if description.get("adapters") else ("adapters",))}
    return {key: value for key, value in description.items() if key not in gone}


def state_names(model: Described) -> frozenset[str]:
    """Return the names of the states of a training step; none for any other model."""
    states = step_description(model).get("states", ())
    return frozenset(str(s["name"]) for s in states if isinstance(s, dict) and "name" in s)


def with_precision(model: Described, precision: str) -> dict[str, str]:
    """Return what of a model's metadata says what it computes in; nothing if it is not a step."""
    description = step_description(model)
    if not description:
        return {}
    description["precision"] = precision
    return {STEP_KEY: json.dumps(description, sort_keys=True)}
