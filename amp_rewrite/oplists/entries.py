"""The parts of an op list: records, without any file or environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any, NamedTuple

from amp_rewrite.errors import ListError


class ListName(StrEnum):
    """The lists that an operator can be on; `unlisted` says that leaving it off was decided."""

    ALLOW = "allow"
    DENY = "deny"
    INFER = "infer"
    CLEAR = "clear"
    UNLISTED = "unlisted"


@dataclass(frozen=True, slots=True)
class Condition:
    """One attribute condition of an entry: the attribute has one of these values."""

    attribute: str
    values: tuple[object, ...]

    def holds(self, domain: str, op: str, opset: int, attributes: Mapping[str, object]) -> bool:
        """Return whether a node meets the condition.

        A missing attribute takes the schema's default. An attribute that the operator does not
        have at `opset` restricts nothing: ScatterND-11 has no reduction, so it has "none".
        """
        if self.attribute in attributes:
            return _plain_value(attributes[self.attribute]) in self.values
        has_default, default = _default(domain, op, opset, self.attribute)
        return not has_default or default in self.values

    def __str__(self) -> str:
        """Return the condition as an error message or a report shows it."""
        return f"{self.attribute} = {' or '.join(map(str, self.values))}"


class Custom(NamedTuple):
    """A list's statements about the ports of an operator without a schema.

    For each output the number of the input with its type, or the name of the type; and the numbers
    of inputs that keep their type.
    """

    outputs: tuple[int | str, ...] = ()
    float32: tuple[int, ...] = ()


OWN_LIST = "a list file"
"""The origin of an entry that a file of the user has."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One operator on one list.

    Attributes:
        domain: Its domain, "" for ai.onnx.
        why: The reason, for users.
        since: The first opset of the domain that the entry is about, or None.
        until: The last one, or None.
        when: Conditions on attributes; all must be met.
        no_kernel: Why the target has no kernel for the 16-bit type in spite of the entry, or None.
        where: "file:line" or "environment VARIABLE".
        custom: The ports of an operator without a schema, or None.
        only_between: Whether an infer operator becomes 16-bit between allow ones alone, not because
            it follows one (pass P4).
        asked: The option, or the variable of the environment, that put it there; OWN_LIST if a file
            of the user did, "" if a built-in list did.
    """

    op: str
    domain: str
    list: ListName
    why: str
    since: int | None = None
    until: int | None = None
    when: tuple[Condition, ...] = ()
    no_kernel: str | None = None
    where: str = ""
    custom: Custom | None = None
    only_between: bool = False
    asked: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """The operator's identity: (domain, op)."""
        return self.domain, self.op

    @property
    def qualified(self) -> str:
        """The operator as users write it: "MatMul", "com.microsoft::Attention"."""
        return f"{self.domain}::{self.op}" if self.domain else self.op

    @property
    def conditional(self) -> bool:
        """Whether the entry speaks of some opsets or attribute values only."""
        return bool(self.when) or self.since is not None or self.until is not None

    def applies(self, opset: int, attributes: Mapping[str, object]) -> bool:
        """Return whether the entry is about a node of its operator."""
        if self.since is not None and opset < self.since:
            return False
        if self.until is not None and opset > self.until:
            return False
        return all(c.holds(self.domain, self.op, opset, attributes) for c in self.when)

    def overlaps(self, other: Entry) -> bool:
        """Return whether some node of one operator could be under both entries."""
        if self.key != other.key:
            return False
        first = max(self.since or 0, other.since or 0)
        if any(e.until is not None and e.until < first for e in (self, other)):
            return False
        theirs = {c.attribute: c.values for c in other.when}
        return all(
            set(c.values) & set(theirs[c.attribute]) for c in self.when if c.attribute in theirs
        )


@dataclass(frozen=True, slots=True)
class NodeRule:
    """One node, or one of its type variables, that a file puts on a list by its exact name.

    Attributes:
        variable: One type variable of it, or None for all.
        list: `deny` keeps it float32; `allow` makes it 16-bit against lists and estimates.
        where: "file:line".
    """

    node: str
    variable: str | None
    list: ListName
    why: str
    where: str


@dataclass(frozen=True, slots=True)
class Removal:
    """An operator taken out of one list, or of all (`list` None)."""

    op: str
    domain: str
    list: ListName | None
    where: str


@dataclass(frozen=True, slots=True)
class NoKernel:
    """Why an operator has no kernel on the file's target."""

    op: str
    domain: str
    why: str
    where: str


@dataclass(slots=True)
class ListFile:
    """A parsed file; what could not be understood is in `problems` and nowhere else."""

    name: str
    precision: str = "any"
    target: str = "any"
    extend: str | None = None
    removals: list[Removal] = field(default_factory=list[Removal])
    entries: list[Entry] = field(default_factory=list[Entry])
    no_kernels: list[NoKernel] = field(default_factory=list[NoKernel])
    node_rules: list[NodeRule] = field(default_factory=list[NodeRule])
    problems: list[ListError] = field(default_factory=list[ListError])
    extend_where: str | None = field(default=None, compare=False)  # the file and line of `extend`


def _plain_value(value: object) -> object:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


@cache
def _default(domain: str, op: str, opset: int, attribute: str) -> tuple[bool, object]:
    """Return (the operator has the attribute at `opset`, its default value or None)."""
    import onnx.defs  # a wheel is built without it
    import onnx.helper

    try:
        schema: Any = onnx.defs.get_schema(op, opset, domain)
    except onnx.defs.SchemaError:
        return True, None
    if attribute not in schema.attributes:
        return False, None
    proto = schema.attributes[attribute].default_value
    return True, _plain_value(onnx.helper.get_attribute_value(proto)) if proto.name else None
