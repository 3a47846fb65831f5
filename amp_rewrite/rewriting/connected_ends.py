"""Outputs of models that are fed to inputs: of other models of a folder, or of the same one.

A decoder's present keys and values are its past ones in the next step. A runtime refuses them
unless both sides have one type.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from amp_rewrite.dtypes import FLOAT32, OTHERS
from amp_rewrite.graph.elements import tensor
from amp_rewrite.graph.flat import FlatGraph
from amp_rewrite.rewriting.plan.casts import CastPlan

_FLOATS = {tensor(dtype.number): dtype.name for dtype in (FLOAT32, *OTHERS)}
"""The types that may change -> what they are called."""

_READ_AS = {"last_hidden_state": "encoder_hidden_states"}
"""An output of one model -> the input of another that reads it, where names differ."""

_CACHE = re.compile(r"(past|present)(?:_key_values|_values)?(.*)")
"""A cache: `present.0.key` is `past_key_values.0.key` in the next step, `present_0` is `past_0`."""


@dataclass(frozen=True)
class Ends:
    """The floating inputs and outputs of a model: name -> type, such as "float16"."""

    inputs: Mapping[str, str] = field(default_factory=dict[str, str])
    outputs: Mapping[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def of(cls, flat: FlatGraph, plan: CastPlan | None = None) -> Ends:
        """Return those of a model, as a plan leaves them."""
        new = {} if plan is None else dict.fromkeys(plan.ends, plan.low.name)

        def types(values: Iterable[int]) -> dict[str, str]:
            dtypes: dict[str, str] = {}
            for value in values:
                dtype = new.get(value) or _FLOATS.get(flat.recorded[value] or "")
                if dtype is not None and not flat.is_initializer(value):
                    dtypes[flat.value_names[value]] = dtype
            return dtypes

        return cls(types(flat.main.inputs), types(flat.main.outputs))

    @property
    def cache_types(self) -> frozenset[str]:
        """The types of the caches that are fed."""
        return frozenset(t for name, t in self.inputs.items() if _input_key(name) != name)


class End(NamedTuple):
    """An input or output of a model: the file and the name."""

    file: str
    name: str


class Connection(NamedTuple):
    """An output, and an input that it is fed to."""

    output: End
    input: End


def connections(models: Mapping[str, Ends]) -> tuple[Connection, ...]:
    """Return which outputs are fed to which inputs, by name, of models that are used together."""
    readers: dict[str, list[End]] = {}
    for file, ends in models.items():
        for name in ends.inputs:
            readers.setdefault(_input_key(name), []).append(End(file, name))
    return tuple(
        Connection(End(file, name), end)
        for file, ends in models.items()
        for name in ends.outputs
        for key in {name: None, _output_key(name): None}
        for end in readers.get(key, ())
        if end.file != file or key.startswith(_STEP)
    )


_STEP = "\0"
"""The first character of a cache's key: no name does."""


def _input_key(name: str) -> str:
    match = _CACHE.fullmatch(name)
    return f"{_STEP}{match[2]}" if match and match[1] == "past" else name


def _output_key(name: str) -> str:
    match = _CACHE.fullmatch(name)
    return f"{_STEP}{match[2]}" if match and match[1] == "present" else _READ_AS.get(name, name)


def mismatch(link: Connection, models: Mapping[str, Ends]) -> str | None:
    """Return in words that both sides of a connection have two types; None if they have one."""
    output, read = link
    output_type = models[output.file].outputs[output.name]
    expected = models[read.file].inputs[read.name]
    if output_type == expected:
        return None
    return (
        f"output {output.name} of {output.file} is {output_type}, and input {read.name} of "
        f"{read.file}, which reads it, is {expected}"
    )
