"""Give the model that was trained back: its own structure, with new weights."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from amp_rewrite.base.arguments import whole_number
from amp_rewrite.errors import FetchError, OptionError, StepError
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.io.save import to_proto
from amp_rewrite.graph.metadata_keys import FORWARD_KEY
from amp_rewrite.training.step.step_info import (
    DEFAULT_FETCHES,
    IGNORED,
    LABELS,
    LOGITS,
    PREDICTIONS,
    StepInfo,
)

_NAMED = (LOGITS, PREDICTIONS, LABELS)


def keep_forward(model: ir.Model, forward: ir.Model, states: Collection[str]) -> None:
    """Store the structure of `forward` in a step, without the weights that are `states` of it.

    The metadata of the step change, and the weights of `forward` are emptied.
    """
    for name, value in forward.graph.initializers.items():
        tensor = value.const_value
        if name in states and tensor is not None:
            value.const_value = ir.tensor(np.zeros(0, tensor.dtype.numpy()), name=name)
        elif isinstance(tensor, ir.ExternalTensor):  # its file may be elsewhere later
            value.const_value = ir.tensor(np.array(tensor.numpy()), name=name)
    packed = zlib.compress(to_proto(forward).SerializeToString(deterministic=True), 6)
    model.metadata_props[FORWARD_KEY] = base64.b64encode(packed).decode("ascii")


def forward_of(step: ir.Model) -> ir.Model:
    """Return the model that a step trains; weights that are states are empty."""
    text = step.metadata_props.get(FORWARD_KEY)
    if text is None:
        raise StepError(
            "the step does not contain the model that it trains",
            found=f"no metadata {FORWARD_KEY!r}",
            remedy="build the step again with this version",
        )
    try:
        proto = onnx.ModelProto()
        proto.ParseFromString(zlib.decompress(base64.b64decode(text, validate=True)))
        return load(proto)
    except (ValueError, zlib.error, DecodeError) as error:
        raise StepError(
            "the model that the step trains cannot be read",
            found=error,
            remedy="build the step again",
        ) from error


def set_weights(model: ir.Model, weights: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Replace the initializers of a model that are named in `weights`, in place; types stay."""
    for name, value in model.graph.initializers.items():
        if name in weights:
            present = value.const_value
            dtype = weights[name].dtype if present is None else present.dtype.numpy()
            value.const_value = ir.tensor(weights[name].astype(dtype, copy=False), name=name)
            value.shape = ir.Shape(weights[name].shape)  # a step file holds empty ones


def fetched_names(fetches: str | Iterable[str]) -> tuple[str, ...]:
    """Return the names of what is to be fetched, each once."""
    if isinstance(fetches, str):
        return (fetches,)
    names: list[object] = list(fetches) if isinstance(fetches, Iterable) else [fetches]  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
    for name in names:
        if not isinstance(name, str):
            raise FetchError(
                "fetches must be names",
                found=f"an object of type {type(name).__name__}",
                remedy="pass the name of a value, or a list of names",
            )
    return tuple(dict.fromkeys(map(str, names)))


def fetch_names(
    info: StepInfo, fetches: str | Iterable[str] | None, *, updates: bool
) -> tuple[str, ...]:
    """Return the names of what a session is to fetch, each once.

    None is what is fetched without being asked for; without `updates` only the forward pass runs.
    """
    if fetches is None:
        wanted = DEFAULT_FETCHES if updates else DEFAULT_FETCHES[:1]
        names = tuple(name for name in wanted if name in info.fetches)
    else:
        names = fetched_names(fetches)
    if not names and not updates:
        raise FetchError(
            "nothing is asked for", found=repr(fetches), remedy="pass the name of a value"
        )
    return names


def checked_targets(targets: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what a user says that evaluation compares; empty if nothing is said."""
    given: Any = {} if targets is None else targets
    if (
        not isinstance(given, Mapping)
        or not all(
            isinstance(given[key], str) if key in _NAMED else whole_number(given[key]) is not None
            for key in given
        )
        or not {*given} <= {*_NAMED, IGNORED}
    ):
        raise OptionError(
            "targets must be a mapping to names of values",
            found=repr(targets),
            expected=f"the keys {', '.join(map(repr, _NAMED))}, and {IGNORED!r} with a number",
            remedy="pass {'logits': name, 'labels': name}",
        )
    return {key: int(target) if key == IGNORED else target for key, target in given.items()}
