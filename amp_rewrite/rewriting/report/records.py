"""The records of a report on nodes, casts, weights and the whole: frozen (formats.md)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar

from amp_rewrite.base.hints import Hinted
from amp_rewrite.base.printable import html_table, one_line, plain_line

VERSION = 1
"""Version of the JSON form of reports: keys may be added, never renamed."""


class Shown(Hinted):
    """The findings of a command: a dataclass whose lines and fields are the text and JSON.

    A subclass has `lines`, of which the first says the most, and `_beside`: the names of properties
    that the JSON form has beside the fields. It has none of the fields in `_apart`.
    """

    __slots__ = ()
    _beside: ClassVar[tuple[str, ...]] = ()
    _apart: ClassVar[tuple[str, ...]] = ()

    def __repr__(self) -> str:
        """Return one line, for much is in it."""
        return one_line(self, next(iter(self.lines()), ""))

    def lines(self) -> Iterable[str]:
        """Return the report line by line."""
        raise NotImplementedError

    def to_text(self) -> str:
        """Return the report as lines."""
        return "\n".join(map(plain_line, self.lines()))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, version 1; NaN and infinities are None."""
        beside = {name: json_form(getattr(self, name)) for name in self._beside}
        return {"version": VERSION, **beside, **_by_field(self, self._apart)}

    def to_json(self) -> str:
        """Return the report as JSON text, version 1: keys may be added, never renamed."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False)


def json_form(value: object) -> object:
    """Return reports and other dataclasses, mappings and sequences as JSON has them."""
    own = getattr(value, "to_dict", None)
    if own is not None:
        return own()
    if is_dataclass(value):
        return _by_field(value)
    if isinstance(value, Mapping):
        return {key: json_form(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_form(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _by_field(value: Any, apart: Sequence[str] = ()) -> dict[str, Any]:
    """Return the fields that are compared; the others only lead to something else."""
    shown = (f for f in fields(value) if f.compare and f.name not in apart)
    return {f.name: json_form(getattr(value, f.name)) for f in shown}


@dataclass(frozen=True, slots=True)
class VariableRecord:
    """One type variable that was float32 before.

    `because` is the vertex from which the mark spread ("Pow_3/T"); `bound` is what no magnitude of
    its results exceeds, whatever the model is fed.
    """

    dtype: str
    reason: str
    because: str | None
    detail: str | None
    bound: float | None = None


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One node.

    Attributes:
        scope: The path of the enclosing subgraph, "" at the top: "loop/body".
        list: The op list that it is on: "allow", ..., "unlisted", or "unknown" if no list knows it.
        variables: Its float32 type variables.
        group: The group that it belongs to, "LayerNormalization from ReduceMean_3 to Add_9".
        module: Its module of the framework, "encoder.layers.0", if the file says so.
    """

    name: str
    op: str
    domain: str
    scope: str
    list: str
    variables: Mapping[str, VariableRecord]
    group: str | None = None
    module: str = ""


@dataclass(frozen=True, slots=True)
class CastRecord:
    """One Cast that the rewrite added.

    Attributes:
        consumers: The vertices that read it, and the graph outputs that it is.
        producer: The vertex that makes the value; None for an input or a constant.
        bytes: The bytes that it reads and writes in a run, 0 for a constant, whose Cast is folded
            when the model is loaded; None if the size of the value is not known.
    """

    value: str
    to: str
    consumers: tuple[str, ...]
    name: str
    producer: str | None
    bytes: int | None


@dataclass(frozen=True, slots=True)
class RangeRecord:
    """A constant that loses elements.

    Attributes:
        count: How many elements overflow or flush to zero.
        largest: Its largest finite magnitude.
        action: "kept" (float32, with its consumer), "saturated", "unbounded" or "flushed".
        consumers: The vertices concerned.
    """

    name: str
    count: int
    largest: float
    action: str
    consumers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A constant that computes as float32 and is stored in 16 bits, and cast."""

    name: str
    dtype: str
    bytes_saved: int


@dataclass(frozen=True, slots=True)
class WeightsRecord:
    """The outcome for the float32 constants.

    Attributes:
        converted: How many are 16-bit for what computes so.
        kept: How many are float32 in the file, because something reads them so.
        overflow: Those with elements out of the 16-bit type's range.
        underflow: Those with elements that round to zero.
        stored: Those that something reads as float32, stored in 16 bits nevertheless.
        twice: How many are in the file in both types, since nodes of both read them.
    """

    converted: int
    kept: int
    overflow: tuple[RangeRecord, ...]
    underflow: tuple[RangeRecord, ...]
    stored: tuple[StoredRecord, ...] = ()
    twice: int = 0


@dataclass(frozen=True, slots=True)
class UnmatchedRule:
    """A rule of an op list about a node, or a variable of it, that the model does not have."""

    node: str
    variable: str | None
    where: str

    def __str__(self) -> str:
        """Return the node or variable, and the line of the list."""
        about = self.node if self.variable is None else f"{self.node}/{self.variable}"
        return f"{about} ({self.where})"


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of a rewrite.

    Attributes:
        nodes_converted: Nodes with at least one 16-bit type variable.
        float_nodes: Nodes that had at least one float32 type variable.
        casts_removed: The model's own Casts removed because they became no-ops.
        compute_converted: The 16-bit share of the multiply-accumulates of allow-list operators,
            from 0 to 1, estimated from weights and recorded shapes; 0 if there are none.
        cast_bytes: The bytes that the Casts of values of known size read and write in a run.
        nodes_low_before: Nodes that computed in the 16-bit type before.
        operands_with_axes: Operands of matrix products that got axes, without which ONNX Runtime
            does not load the file.
    """

    nodes_converted: int
    float_nodes: int
    casts_added: int
    casts_removed: int
    compute_converted: float
    cast_bytes: int = 0
    casts_of_unknown_size: int = 0
    nodes_low_before: int = 0
    operands_with_axes: int = 0

    def _repr_html_(self) -> str:
        """Return the figures as a table, which a notebook shows."""
        return html_table("summary", ("figure", "number"), _by_field(self).items())


@dataclass(frozen=True, slots=True)
class OpsetAdvice:
    """A newer opset that lets more of the model become 16-bit.

    Attributes:
        compute_converted: The share of multiply-accumulates that could be 16-bit then, from 0 to 1.
        lost: The operators that the target has a kernel for now, and none at that opset. `convert`
            moves no model to an opset at which there are any, unless it is named.
    """

    opset: int
    compute_converted: float
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RaisedOpset:
    """The opset of ai.onnx that the model had before, and what was checked.

    Attributes:
        compute_before: The 16-bit share of multiply-accumulates that a rewrite gives there.
        unverified: Why the outputs of the upgraded model were not compared with those of the model
            before; None if they were, and are the same.
        mended: The values whose declared shapes contradicted inference, and have the inferred ones.
    """

    before: int
    compute_before: float
    unverified: str | None
    mended: tuple[str, ...] = ()
