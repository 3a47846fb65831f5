"""What a training step says about itself in its metadata, as far as rewriting needs it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from amp_rewrite.errors import GraphError
from amp_rewrite.graph import elements
from amp_rewrite.graph.keys import STEP_KEY

if TYPE_CHECKING:
    import onnx_ir as ir

VERSION = 1
"""The version of the description; what a later one holds is not known here."""


def _is_text(found: Any) -> bool:
    return isinstance(found, str)


def _is_element_type(found: Any) -> bool:
    return isinstance(found, str) and elements.element(found) is not None


def _is_loss_scale(found: Any) -> bool:
    return isinstance(found, dict) and isinstance(found.get("config", {}), dict)


def _are_texts(found: Any) -> bool:
    return isinstance(found, list) and all(map(_is_text, found))


def _are_names(found: Any) -> bool:
    return isinstance(found, dict) and all(map(_is_text, found.values()))


def _are_targets(found: Any) -> bool:
    numbers = {"ignore_index"}
    return isinstance(found, dict) and all(
        type(value) is (int if key in numbers else str) for key, value in found.items()
    )


def _is_shape(found: Any) -> bool:
    return isinstance(found, list) and all(type(n) is int and 0 <= n < 1 << 31 for n in found)


def _are_states(found: Any) -> bool:
    return isinstance(found, list) and not any(_misfits(state, _STATE) for state in found)


def _are_adapters(found: Any) -> bool:
    return isinstance(found, list) and not any(_misfits(adapter, _ADAPTER) for adapter in found)


_Fits = Callable[[Any], bool]


def _or_none(fits: _Fits) -> _Fits:
    return lambda found: found is None or fits(found)


_STATE: dict[str, _Fits] = {
    **dict.fromkeys(("name", "output", "role"), _is_text),
    "dtype": _is_element_type,
    "shape": _is_shape,
}
_ADAPTER: dict[str, _Fits] = {
    **dict.fromkeys(("weight", "module", "a", "b"), _is_text),
    "rank": lambda found: type(found) is int and found > 0,
    **dict.fromkeys(("alpha", "dropout"), lambda found: type(found) in (int, float)),
    "output_first": lambda found: isinstance(found, bool),
    "products": _or_none(_are_texts),
}
_DESCRIPTION: dict[str, _Fits] = {
    "states": _are_states,
    "inputs": _are_texts,
    "fetches": _are_names,
    "precision": _is_text,
    "targets": _or_none(_are_targets),
    "gradients": _or_none(_are_names),
    **dict.fromkeys(("loss", "seed"), _or_none(_is_text)),
    "loss_scale": _or_none(_is_loss_scale),
    "adapters": _are_adapters,
}


def _misfits(found: Any, expected: Mapping[str, _Fits]) -> list[str]:
    """Return the fields of an object that are of another type; something for what is no object."""
    if not isinstance(found, dict):
        return ["object"]
    return [key for key, fits in expected.items() if key in found and not fits(found[key])]


class Described(Protocol):
    """What has metadata: a model of onnx_ir, or a flat graph."""

    @property
    def metadata_props(self) -> Mapping[str, str]:
        """The metadata."""
        ...


def check_description(model: Described) -> None:
    """Refuse a model that describes itself as a training step, but not as this package does.

    Raises:
        GraphError: The description is not JSON, or a field has another type.
    """
    try:
        found: Any = json.loads(model.metadata_props.get(STEP_KEY, "{}"))
    except (ValueError, RecursionError):
        found = None
    misfits = _misfits(found, _DESCRIPTION)
    of_later_version = isinstance(found, dict) and found.get("version", VERSION) != VERSION
    if misfits and not of_later_version:
        raise GraphError(
            f"the metadata {STEP_KEY!r} of the model cannot be read",
            found=f"another {misfits[0]}",
            expected="what build_step wrote",
            remedy="build the step again",
        )


def step_description(model: Described) -> dict[str, Any]:
    """Return what a training step says about itself; empty for any other model."""
    return json.loads(model.metadata_props.get(STEP_KEY, "{}"))


def state_names(model: Described) -> frozenset[str]:
    """Return the names of the states of a training step; none for any other model."""
    states = step_description(model).get("states", ())
    return frozenset(str(s["name"]) for s in states if isinstance(s, dict) and "name" in s)


def describe_precision(model: ir.Model, precision: str) -> None:
    """Let a training step say what it computes in; other models are left alone."""
    model.metadata_props.update(with_precision(model, precision))


def with_precision(model: Described, precision: str) -> dict[str, str]:
    """Return what of a model's metadata says what it computes in; nothing if it is not a step."""
    description = step_description(model)
    if not description:
        return {}
    description["precision"] = precision
    return {STEP_KEY: json.dumps(description, sort_keys=True)}


def without_precision(metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return a model's metadata without what a rewrite changes in them: a step's precision."""
    if STEP_KEY not in metadata:
        return dict(metadata)
    description = json.loads(metadata[STEP_KEY])
    description.pop("precision", None)
    return {**metadata, STEP_KEY: description}
