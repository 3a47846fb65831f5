"""One list file: YAML -> frozen entries, every mistake with its file and line.

version: 1
precision: float16            # or bfloat16; "any" for an overlay that fits both
target: cuda                  # or another that has lists of its own; "any" likewise
extend: float16_cuda          # optional: a built-in list, or a path relative to this file
remove:                       # optional: what to take out of what was read before
  - {op: Exp, list: deny}
allow: [...]                  # and deny, infer, clear, unlisted
  - op: Resize                # or ops: [A, B] that share the rest
    domain: ""                # optional
    since: 10                 # optional, first opset
    until: 18                 # optional, last opset
    when: {mode: [nearest]}   # optional, attribute conditions: one of these values
    no_kernel: "..."          # optional: why the target has no kernel for it
    outputs: [0, int64]       # optional, of an operator without a schema: what its results are like
    float32: [3]              # optional, likewise: the inputs that stay float32
    only_between: true        # optional, on infer: low between allow operators, not behind one
    why: "..."
no_kernel:                    # optional: the same for entries written elsewhere
  - {ops: [Pad], why: "..."}
nodes:                        # optional: single nodes by exact name
  - {node: Pow_3, variable: T, list: deny, why: "..."}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from functools import lru_cache, partial
from itertools import combinations
from types import ModuleType
from typing import Any

from amp_rewrite.errors import ListError
from amp_rewrite.oplists import located
from amp_rewrite.oplists.entries import (
    Condition,
    Custom,
    Entry,
    ListFile,
    ListName,
    NodeRule,
    NoKernel,
    Removal,
)
from amp_rewrite.oplists.located import Located

FORMAT_VERSION = 1

_TOP = frozenset({"version", "precision", "target", "extend", "remove", "no_kernel", "nodes"})
_OPERATOR = frozenset({"op", "ops", "domain"})
_CUSTOM = frozenset({"outputs", "float32"})
_ENTRY = _OPERATOR | _CUSTOM | {"since", "until", "when", "no_kernel", "only_between", "why"}


@lru_cache(maxsize=32)
def parse(text: str, name: str, *, checked: bool = True) -> ListFile:
    """Return a parsed list file, which is shared between calls and must not be changed.

    `name` is the file as errors show it. Names are checked against schemas, types and targets, for
    which onnx and numpy are needed; a wheel is built without them (`checked` is False).
    """
    try:
        document = located.load(text, name)
    except ListError as error:
        return ListFile(name, problems=[error])
    if not checked:
        return _Parser(name, None).run(document)
    from amp_rewrite.oplists import validate

    return _Parser(name, validate).run(document)


class _Parser:
    """Reads one document into one ListFile."""

    def __init__(self, name: str, checks: ModuleType | None) -> None:
        self.file = ListFile(name)
        self.checks = checks

    def run(self, document: Located) -> ListFile:
        if not isinstance(document.value, dict):
            self.problem(document.line, "not an op list", document.kind, "a mapping of sections")
            return self.file
        top = document.value
        self.keys(top, _TOP | set(ListName))
        self.head(top, document.line)
        sections: tuple[tuple[str, Callable[[dict[str, Located], int], None]], ...] = (
            ("remove", self.removal),
            ("no_kernel", self.no_kernel),
            ("nodes", self.node_rule),
            *((name, partial(self.entry, name)) for name in ListName),
        )
        for section, read in sections:
            for item in self.items(top, section):
                read(item.value, item.line)
        self.repeated()
        return self.file

    def problem(
        self, line: int, what: str, content: object = None, expected: object = None
    ) -> None:
        where = f"{self.file.name}:{line}"
        self.file.problems.append(ListError(what, where=where, found=content, expected=expected))

    def keys(self, mapping: dict[str, Located], names: frozenset[str] | set[str]) -> None:
        for key in mapping.keys() - names:
            close = get_close_matches(str(key), names, n=1)
            expected = f"{close[0]}, if that is meant" if close else ", ".join(sorted(names))
            self.problem(mapping[key].line, "unknown key", key, expected)

    def head(self, top: dict[str, Located], line: int) -> None:
        version = top.get("version", Located(None, line))
        if version.value != FORMAT_VERSION:
            expected = f"version: {FORMAT_VERSION}"
            self.problem(version.line, "unknown version", version.kind, expected)
        self.file.precision = self.word(top, "precision", line)
        self.file.target = self.word(top, "target", line)
        self.file.extend = self.text(top, "extend", line)
        if "extend" in top:
            self.file.extend_where = f"{self.file.name}:{top['extend'].line}"

    def word(self, top: dict[str, Located], key: str, line: int) -> str:
        entry = top.get(key, Located(None, line))
        words = (entry.value,) if self.checks is None else self.checks.words(key)
        if entry.value in words:
            return entry.value
        self.problem(entry.line, f"unknown {key}", entry.kind, " or ".join(words))
        return "any"

    def text(
        self, mapping: dict[str, Located], key: str, line: int, *, exact: bool = False
    ) -> str | None:
        """Return an optional text; in one line unless exact, as names of nodes are."""
        entry = mapping.get(key)
        if entry is None:
            return None
        if isinstance(entry.value, str) and entry.value.strip():
            return entry.value if exact else " ".join(entry.value.split())
        self.problem(entry.line or line, f"`{key}` is not text", entry.kind, "text, in quotes")
        return None

    def required(
        self, mapping: dict[str, Located], key: str, line: int, *, exact: bool = False
    ) -> str:
        """Return a text that must be there ("" if it is not, with a problem noted)."""
        if key not in mapping:
            self.problem(line, f"`{key}` is missing", expected=f"{key}: text for users")
        return self.text(mapping, key, line, exact=exact) or ""

    def items(self, top: dict[str, Located], section: str) -> Iterator[Located]:
        entry = top.get(section)
        if entry is None or entry.value is None:
            return
        if not isinstance(entry.value, list):
            self.problem(entry.line, f"`{section}` is not a list", entry.kind, "a list of entries")
            return
        for item in entry.value:
            if isinstance(item.value, dict):
                yield item
            else:
                name = item.value if isinstance(item.value, str) else "..."
                self.problem(item.line, "not an entry", item.kind, f"a mapping: {{op: {name}}}")

    def operators(self, item: dict[str, Located], line: int) -> Iterator[tuple[str, str, int]]:
        """Yield (domain, op, line) of every known operator that an item names."""
        domain = self.domain(item)
        named = [item[k] for k in ("op", "ops") if k in item]
        if len(named) != 1:
            self.problem(line, "an entry names its operator once", expected="either `op` or `ops`")
            return
        names = named[0].value if isinstance(named[0].value, list) else [named[0]]
        for name in names:
            trouble = self.checks and self.checks.operator(domain, name.value)
            if trouble:
                self.problem(name.line, *trouble)
            else:
                yield domain, name.value, name.line

    def domain(self, item: dict[str, Located]) -> str:
        entry = item.get("domain", Located("", 0))
        if not isinstance(entry.value, str):
            self.problem(entry.line, "`domain` is not text", entry.kind, "text, in quotes")
            return ""
        return "" if entry.value == "ai.onnx" else entry.value

    def entry(self, name: ListName, item: dict[str, Located], line: int) -> None:
        self.keys(item, _ENTRY)
        why = self.required(item, "why", line)
        since, until = self.opset(item, "since"), self.opset(item, "until")
        when = self.conditions(item)
        no_kernel = self.text(item, "no_kernel", line)
        between = self.only_between(name, item)
        custom = self.custom(item)
        for domain, op, at in self.operators(item, line):
            where = f"{self.file.name}:{at}"
            said = (since, until, when, no_kernel, where, custom, between)
            entry = Entry(op, domain, name, why, *said)
            for trouble in () if self.checks is None else self.checks.entry(entry):
                self.problem(at, *trouble)
            self.file.entries.append(entry)

    def only_between(self, name: ListName, item: dict[str, Located]) -> bool:
        """Return the switch of an entry of the infer list."""
        entry = item.get("only_between", Located(False, 0))
        if not isinstance(entry.value, bool):
            self.problem(entry.line, "`only_between` is no switch", entry.kind, "true or false")
        elif entry.value and name is not ListName.INFER:
            what = f"`only_between` is about the {ListName.INFER} list"
            self.problem(entry.line, what, f"an entry of {name}", "an entry without it")
        return entry.value is True

    def custom(self, item: dict[str, Located]) -> Custom | None:
        """Return the ports of an operator without a schema, or None."""
        if _CUSTOM.isdisjoint(item):
            return None
        outputs = self.ports(item, "outputs", (int, str), "numbers of inputs and names of types")
        return Custom(outputs, self.ports(item, "float32", (int,), "numbers of inputs"))

    def ports(
        self, item: dict[str, Located], key: str, kinds: tuple[type, ...], expected: str
    ) -> tuple[Any, ...]:
        """Return a list of numbers of ports, or of names."""
        plain = self.plain(item.get(key))
        for value in plain:
            is_port = isinstance(value, kinds) and not isinstance(value, bool)
            if not is_port or (isinstance(value, int) and value < 0):
                what = f"`{key}` is not a list of ports"
                self.problem(item[key].line, what, str(value), expected)
                return ()
        return plain

    def plain(self, entry: Located | None) -> tuple[Any, ...]:
        """Return the values of a list, or a single one."""
        if entry is None:
            return ()
        return tuple(e.value for e in (entry.value if isinstance(entry.value, list) else [entry]))

    def opset(self, item: dict[str, Located], key: str) -> int | None:
        entry = item.get(key)
        if entry is None:
            return None
        if isinstance(entry.value, int) and not isinstance(entry.value, bool) and entry.value > 0:
            return entry.value
        self.problem(entry.line, f"`{key}` is not an opset", entry.kind, "a number from 1")
        return None

    def conditions(self, item: dict[str, Located]) -> tuple[Condition, ...]:
        entry = item.get("when")
        if entry is None:
            return ()
        if not isinstance(entry.value, dict) or not entry.value:
            self.problem(entry.line, "`when` is not a mapping", entry.kind, "attribute: [values]")
            return ()
        return tuple(Condition(k, self.values(k, v)) for k, v in entry.value.items())

    def values(self, attribute: str, entry: Located) -> tuple[object, ...]:
        plain = self.plain(entry)
        if not plain or any(v is None or isinstance(v, list | dict) for v in plain):
            what = f"`{attribute}` has no values"
            self.problem(entry.line, what, entry.kind, "value or [values]")
        return tuple(v for v in plain if not isinstance(v, list | dict))

    def removal(self, item: dict[str, Located], line: int) -> None:
        self.keys(item, _OPERATOR | {"list", "why"})
        name = self.text(item, "list", line)
        if name is not None and name not in set(ListName):
            self.problem(item["list"].line, "unknown list", name, ", ".join(ListName))
            return
        which = None if name is None else ListName(name)
        for domain, op, at in self.operators(item, line):
            self.file.removals.append(Removal(op, domain, which, f"{self.file.name}:{at}"))

    def no_kernel(self, item: dict[str, Located], line: int) -> None:
        self.keys(item, _OPERATOR | {"why"})
        why = self.required(item, "why", line)
        for domain, op, at in self.operators(item, line):
            self.file.no_kernels.append(NoKernel(op, domain, why, f"{self.file.name}:{at}"))

    def node_rule(self, item: dict[str, Located], line: int) -> None:
        self.keys(item, frozenset({"node", "variable", "list", "why"}))
        node = self.required(item, "node", line, exact=True)
        why = self.required(item, "why", line)
        name = self.required(item, "list", line)
        if name and name not in (ListName.ALLOW, ListName.DENY):
            self.problem(item["list"].line, "a node rule's list", name, "allow or deny")
            return
        variable = self.text(item, "variable", line)
        where = f"{self.file.name}:{line}"
        self.file.node_rules.append(NodeRule(node, variable, ListName(name), why, where))

    def repeated(self) -> None:
        by_operator: dict[tuple[str, str], list[Entry]] = {}
        for entry in self.file.entries:
            by_operator.setdefault(entry.key, []).append(entry)
        for entries in by_operator.values():
            for one, other in combinations(entries, 2):
                if one.list == other.list and one.overlaps(other):
                    line = int(other.where.rpartition(":")[2])
                    what = f"{other.qualified} is on the {other.list} list twice"
                    self.problem(line, what, f"the other entry at {one.where}", "one entry")
