"""Op lists: which operators may, must not or need not be in 16 bits (painting.md, section 2)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Literal, get_args

from amp_rewrite import targets
from amp_rewrite.base import arguments
from amp_rewrite.base.printable import one_line
from amp_rewrite.dtypes import FLOAT16, low_dtype
from amp_rewrite.errors import ListError, OptionError
from amp_rewrite.graph import schemas
from amp_rewrite.graph.custom import CustomOperator, Customs
from amp_rewrite.graph.elements import element_named
from amp_rewrite.oplists import environment
from amp_rewrite.oplists import files as list_files
from amp_rewrite.oplists.entries import Condition, Custom, Entry, ListName, NodeRule
from amp_rewrite.oplists.environment import with_tensorflow

__all__ = ["LEVELS", "Condition", "Entry", "Level", "ListName", "NodeRule", "OpLists", "load_lists"]

Level = Literal["default", "TENSOR_CORES_ONLY", "TREAT_INFER_AS_DENY", "UNSAFE_FORCE_ALL"]
LEVELS = get_args(Level)
"""The levels; any letter case is accepted."""

LEVEL_VARIABLE = "AMP_REWRITE_LEVEL"

_EMPTIED = frozenset({ListName.DENY, ListName.INFER, ListName.CLEAR})


@dataclass(frozen=True)
class OpLists:
    """The lists of one precision and target.

    Attributes:
        precision: "float16" or "bfloat16".
        target: The name of a target, or "any".
        entries: All entries, in file order.
        node_rules: Nodes put on a list by name.
        level: One of LEVELS.
        files: The files of the lists, in the order of application.
    """

    precision: str
    target: str
    entries: tuple[Entry, ...]
    node_rules: tuple[NodeRule, ...] = ()
    level: str = "default"
    files: tuple[str, ...] = field(default=(), compare=False)

    def __repr__(self) -> str:
        """Return one line, for much is in it."""
        rules = f", {len(self.node_rules)} rules about nodes" if self.node_rules else ""
        what = f"{self.precision} for {self.target}, {len(self.entries)} entries{rules}"
        return one_line(self, f"{what}, level {self.level}")

    @staticmethod
    def from_names(
        *,
        allow: Iterable[str] = (),
        deny: Iterable[str] = (),
        infer: Iterable[str] = (),
        clear: Iterable[str] = (),
        precision: str = FLOAT16.name,
        target: str = targets.SCHEMA,
    ) -> OpLists:
        """Return lists of unconditional entries; a name is "Op" or "domain::Op"."""
        entries = (
            Entry(op, domain, name, "given by name", where=f"the given {name} list", asked="lists")
            for name, ops in zip(ListName, (allow, deny, infer, clear), strict=False)
            for domain, op in map(environment.split_name, arguments.texts(name, ops))
        )
        return OpLists(low_dtype(precision).name, targets.find(target).name, tuple(entries))

    @property
    def is_unsafe(self) -> bool:
        """Whether the level is UNSAFE_FORCE_ALL: every operator is converted."""
        return self.level == "UNSAFE_FORCE_ALL"

    @cached_property
    def _index(self) -> Mapping[tuple[str, str], tuple[Entry, ...]]:
        index: dict[tuple[str, str], list[Entry]] = {}
        for entry in self.entries:
            index.setdefault(entry.key, []).append(entry)
        return {key: tuple(entries) for key, entries in index.items()}

    def classify(
        self, domain: str, op: str, opset: int, attributes: Mapping[str, object]
    ) -> Entry | None:
        """Return the entry of a node's operator, or None if it is on no list.

        Args:
            domain: The operator's domain ("" or "ai.onnx" for the default one).
            op: The operator.
            opset: The version of `domain` that the model imports.
            attributes: The node's own attributes, as plain Python values.
        """
        for entry in self._index.get(_key(domain, op), ()):
            if not entry.conditional or entry.applies(opset, attributes):
                return entry
        return None

    def knows(self, domain: str, op: str) -> bool:
        """Return whether any entry is about the operator, under whatever condition."""
        return _key(domain, op) in self._index

    def with_level(self, level: str) -> OpLists:
        """Return the lists as a level changes them.

        TENSOR_CORES_ONLY empties deny, infer and clear; lists of bfloat16, and of a target without
        tensor cores, ignore it. TREAT_INFER_AS_DENY moves infer to deny. UNSAFE_FORCE_ALL converts
        every operator; it is for float16 on targets with tensor cores only.
        """
        name = _level(level)
        tensor_cores = self.precision == FLOAT16.name and targets.find(self.target).tensor_cores
        if name == "UNSAFE_FORCE_ALL" and not tensor_cores:
            names = " or ".join(targets.with_tensor_cores())
            raise OptionError(
                f"level UNSAFE_FORCE_ALL exists for float16 on target {names} only",
                found=f"{self.precision} on target {self.target}",
                remedy="choose another level",
            )
        entries = self.entries
        if name == "TENSOR_CORES_ONLY" and tensor_cores:
            entries = tuple(e for e in entries if e.list not in _EMPTIED)
        if name == "TREAT_INFER_AS_DENY":
            entries = tuple(
                replace(e, list=ListName.DENY) if e.list == ListName.INFER else e for e in entries
            )
        return self._change_entries(entries, name)

    @cached_property
    def customs(self) -> Customs:
        """The lists' statements about operators that no schema knows."""
        customs: dict[tuple[str, str], CustomOperator] = {}
        for entry in self.entries:
            if entry.list is ListName.UNLISTED or entry.op in schemas.names(entry.domain):
                continue
            said = entry.custom or Custom()
            outputs = tuple(k if isinstance(k, int) else element_named(k) for k in said.outputs)
            ports = tuple(k for k in outputs if k is not None)
            customs[entry.key] = CustomOperator(ports, said.float32)
        return customs

    def allowing(self, operators: Iterable[str]) -> OpLists:
        """Return the lists with operators, named "Op" or "domain::Op", on the allow list alone."""
        return self._move_operators(operators, ListName.ALLOW, "allow_ops")

    def denying(self, operators: Iterable[str]) -> OpLists:
        """Return the lists with operators, named "Op" or "domain::Op", on the deny list alone."""
        return self._move_operators(operators, ListName.DENY, "deny_ops")

    def _move_operators(self, operators: Iterable[str], name: ListName, option: str) -> OpLists:
        entries = self.entries
        why = f"{'allowed' if name is ListName.ALLOW else 'denied'} by {option}"
        for key in map(environment.split_name, arguments.texts("operators", operators)):
            custom = next((e.custom for e in entries if e.key == key and e.custom), None)
            domain, op = key
            where = f"option {option}"
            moved = Entry(op, domain, name, why, where=where, custom=custom, asked=option)
            entries = (*(e for e in entries if e.key != key), moved)
        return self._change_entries(entries, self.level)

    def configured(self, level: str | None, environ: Mapping[str, str]) -> OpLists:
        """Return the lists after environment variables and a level, checked.

        The level None or "default" leaves the choice to AMP_REWRITE_LEVEL.
        """
        what = "variables by name, as os.environ has them"
        for name, value in arguments.mapping("environ", environ, what=what).items():
            arguments.text("environ", name, what=what)
            arguments.text(f"the variable {name}", value, what="a string")
        environ = with_tensorflow(environ)
        chosen = "default" if level is None else level
        if _level(chosen) == "default":
            chosen = environ.get(LEVEL_VARIABLE, "").strip() or chosen
        entries = environment.apply(self.entries, environ)
        return self._change_entries(entries, self.level).with_level(chosen).checked()

    def checked(self) -> OpLists:
        """Return the lists unchanged; ListError if an operator is on two of them."""
        clash = next(iter(self.conflicts()), None)
        if clash is not None:
            raise conflict_error(*clash)
        return self

    def conflicts(self) -> list[tuple[Entry, Entry]]:
        """Return the pairs of entries that put one operator on two lists."""
        return [
            (one, other)
            for entries in self._index.values()
            for one, other in combinations(entries, 2)
            if one.list != other.list and one.overlaps(other)
        ]

    def _change_entries(self, entries: tuple[Entry, ...], level: str) -> OpLists:
        """Return the lists with other entries and level; themselves, with their index, if equal."""
        if entries is self.entries and level == self.level:
            return self
        return replace(self, entries=entries, level=level)


def conflict_error(one: Entry, other: Entry) -> ListError:
    """Return the error for two entries that put one operator on two lists."""
    remedy = "give the operator one list; a list file takes it from another with its `remove` key"
    if ListName.UNLISTED not in (one.list, other.list):
        remedy = (
            "to move it, set "
            f"AMP_REWRITE_{other.list.upper()}LIST_ADD={one.qualified} and "
            f"AMP_REWRITE_{one.list.upper()}LIST_REMOVE={one.qualified}, "
            "or use the `remove` key of a list file"
        )
    return ListError(
        f"conflicting entries: {one.qualified} is on the {one.list} list ({one.where}) "
        f"and on the {other.list} list ({other.where})",
        where=other.where,
        expected="one list for an operator, or disjoint since/until or when",
        remedy=remedy,
    )


def load_lists(
    paths: Sequence[str | Path] | str | Path | None = None,
    *,
    precision: str = FLOAT16.name,
    target: str = targets.DEFAULT,
    level: str | None = "default",
    environ: Mapping[str, str] | None = None,
) -> OpLists:
    """Return the final lists: files, then environment, then level.

    Args:
        paths: List files, a later one laid over the earlier ones; None for the built-in ones of
            the precision and the target.
        precision: "float16" or "bfloat16".
        target: One of the targets of `rewrite`.
        level: One of LEVELS in any letter case; None or "default": AMP_REWRITE_LEVEL decides.
        environ: The environment; `os.environ` by default.

    Raises:
        ListError: A file is unreadable, has unknown keys or operators, or is about another
            precision or target; or an operator is on two final lists.
        OptionError: A path, precision, target, level or environment variable has an impossible
            value.

    Examples:
        >>> lists = amp.load_lists(precision="bfloat16", target="cuda")
        >>> lists.classify("", "MatMul", opset=18, attributes={}).list
        <ListName.ALLOW: 'allow'>
    """
    precision, chosen = low_dtype(precision).name, targets.find(target)
    chosen.check_precision(precision)
    owners = chosen.list_owners
    builtin = ",".join(f"{precision}_{owner}" for owner in owners)
    files = arguments.paths("lists", paths) or [builtin]
    merged = list_files.read(files, precision=precision, targets=owners)
    if merged.problems:
        raise merged.problems[0]
    lists = OpLists(
        precision, target, merged.entries, node_rules=merged.node_rules, files=merged.files
    )
    return lists.configured(level, os.environ if environ is None else environ)


def _key(domain: str, op: str) -> tuple[str, str]:
    domain = arguments.text("domain", domain, what="the domain of an operator")
    op = arguments.text("op", op, what="the name of an operator")
    return "" if domain == "ai.onnx" else domain, op


def _level(level: str) -> str:
    for name in LEVELS if isinstance(level, str) else ():  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        if level.strip().lower() == name.lower():
            return name
    raise OptionError("unknown level", found=repr(level), expected=" or ".join(LEVELS))
