"""Several list files -> one set of entries: extending, overlaying, removing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path

from amp_rewrite import targets
from amp_rewrite.base.name_patterns import nearest
from amp_rewrite.errors import ListError
from amp_rewrite.oplists import compiled
from amp_rewrite.oplists.entries import (
    OWN_LIST,
    Condition,
    Entry,
    ListFile,
    ListName,
    NodeRule,
    NoKernel,
    Removal,
)

Parse = Callable[[str, str], ListFile]
"""(text, name) -> what a list file says."""

PAINTED = frozenset({ListName.ALLOW, ListName.INFER, ListName.CLEAR})
"""The lists whose operators can end up in low precision, so that a kernel matters."""


@dataclass(frozen=True, slots=True)
class Merged:
    """The merged content of the files, in the order of application.

    `problems` is empty if they can be used; `shown` is the last given file, as errors show it.
    """

    entries: tuple[Entry, ...]
    node_rules: tuple[NodeRule, ...]
    files: tuple[str, ...]
    problems: tuple[ListError, ...]
    shown: str
    precision: str
    target: str


def builtin_names() -> tuple[str, ...]:
    """Return the names of the built-in lists, such as "float16_cuda"."""
    files = (p.name for p in targets.DATA.iterdir())
    return tuple(sorted(n.removesuffix(".yaml") for n in files if n.endswith(".yaml")))


def read(
    sources: Sequence[str | Path],
    *,
    precision: str | None,
    targets: Collection[str] | None,
    parse: Parse = compiled.list_file,
) -> Merged:
    """Return the given files, a later one laid over the earlier ones.

    An entry replaces the entries of the same operator on the same list that it overlaps, and those
    that say "unlisted". A reason why there is no kernel is about one precision and target, so a
    file of another one does not inherit it.

    Args:
        sources: Paths, or names of built-in lists; several names with commas between are the
            entries that all of them allow.
        precision: The precision that the files must be about; None accepts any.
        targets: The targets likewise, as the files name them.
        parse: Reads a file.
    """
    stack = _Stack(parse)
    shown = ""
    for item in sources:
        source = _locate(item)
        shown = source.shown
        stack.include(source, extended_by=())
        stack.require(source, None if precision is None else {precision}, targets)
    return Merged(
        tuple(stack.entries),
        tuple(stack.node_rules),
        tuple(stack.files),
        tuple(stack.problems),
        shown,
        *stack.about.get(shown, ("any", "any")),
    )


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a list file is: a built-in one by name, several by their names, or a path."""

    name: str
    path: Path | None
    parts: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        if self.parts:
            return " and ".join(f"lists/{name}.yaml" for name in self.parts)
        return f"lists/{self.name}.yaml" if self.path is None else self.name

    def text(self) -> str:
        if self.path is None:
            return targets.DATA.joinpath(f"{self.name}.yaml").read_text("utf-8")
        return self.path.read_text("utf-8")


def _locate(item: str | Path, folder: Path | None = None) -> _Source:
    if isinstance(item, str) and item in builtin_names() and not Path(item).is_file():
        return _Source(item, None)
    parts = tuple(str(item).split(","))
    if len(parts) > 1 and set(parts) <= {*builtin_names()}:
        return _Source(str(item), None, parts)
    path = Path(item) if folder is None else folder / item
    return _Source(str(path), path)


@dataclass(slots=True)
class _Stack:
    """The entries so far, while files are laid over one another."""

    parse: Parse
    entries: list[Entry] = field(default_factory=list[Entry])
    node_rules: list[NodeRule] = field(default_factory=list[NodeRule])
    files: list[str] = field(default_factory=list[str])
    problems: list[ListError] = field(default_factory=list[ListError])
    about: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    last: tuple[str, str] | None = None

    def include(
        self, source: _Source, extended_by: tuple[str, ...], where: str | None = None
    ) -> None:
        """Apply a file after the one that it extends, each file once.

        `extended_by` are the files that extend it, the outermost first; `where` is the file and
        line that name it.
        """
        if source.shown in extended_by:
            chain = " -> ".join((*extended_by, source.shown))
            self.problem(source.shown, "a list extends itself", chain, "no cycle")
            return
        if source.shown in self.about:
            return
        if source.parts:
            self.include_common(source)
            return
        try:
            parsed = self.parse(source.text(), source.shown)
        except (OSError, ValueError) as error:  # not text, or no file name
            meant = nearest(source.shown.strip("./"), builtin_names()) or builtin_names()
            expected = f"a file, or one of the built-in lists: {', '.join(meant)}"
            found = error.strerror if isinstance(error, OSError) else "no text"
            at = source.shown if where is None else where
            self.problem(at, "the list cannot be read", found or str(error), expected)
            return
        if parsed.extend is not None:
            folder = None if source.path is None else source.path.parent
            extending = (*extended_by, source.shown)
            self.include(_locate(parsed.extend, folder), extending, parsed.extend_where)
        self.about[source.shown] = (parsed.precision, parsed.target)
        if source.path is not None:
            own = [replace(entry, asked=OWN_LIST) for entry in parsed.entries]
            parsed = replace(parsed, entries=own)
        self.apply(parsed)

    def include_common(self, source: _Source) -> None:
        """Apply what all of the built-in lists that a source names allow."""
        lists = [read([n], precision=None, targets=None, parse=self.parse) for n in source.parts]
        for merged in lists:
            self.problems.extend(merged.problems)
            self.files.extend(file for file in merged.files if file not in self.files)
        precisions = {merged.precision for merged in lists}
        if len(precisions) > 1:
            names = " and ".join(sorted(precisions))
            self.problem(source.shown, "the lists are for several precisions", names, "one")
        self.about[source.shown] = (lists[0].precision, "any")
        # An operator that one of them does not know is on none, a boundary.
        self.add(reduce(common_entries, (merged.entries for merged in lists)))

    def require(
        self, source: _Source, precisions: Collection[str] | None, targets: Collection[str] | None
    ) -> None:
        """Note a problem if a given file is about another precision or target."""
        said = self.about.get(source.shown, ("any", "any"))
        for what, own, expected in zip(
            ("precision", "target"), said, (precisions, targets), strict=True
        ):
            if expected is not None and own not in (*expected, "any"):
                wanted = " or ".join(expected)
                self.problem(source.shown, f"the list is for another {what}", own, wanted)

    def problem(self, where: str, what: str, content: str, expected: str) -> None:
        self.problems.append(ListError(what, where=where, found=content, expected=expected))

    def apply(self, file: ListFile) -> None:
        self.files.append(file.name)
        self.problems.extend(file.problems)
        if file.problems:
            return  # what it says is not known whole, and would make errors that are none
        about = (file.precision, file.target)
        if self.last is not None and about != self.last and "any" not in about:
            self.entries = [replace(e, no_kernel=None) if e.no_kernel else e for e in self.entries]
        self.last = about if "any" not in about else self.last
        for removal in file.removals:
            self.remove(removal)
        self.add(file.entries)
        self.explain(file.no_kernels)
        self.node_rules.extend(file.node_rules)

    def remove(self, removal: Removal) -> None:
        key = (removal.domain, removal.op)
        lists = set(ListName) if removal.list is None else {removal.list}
        kept = [e for e in self.entries if e.key != key or e.list not in lists]
        if len(kept) == len(self.entries):
            reason = f"{removal.op} is not on {removal.list or 'any list'}"
            self.problem(removal.where, "nothing to remove", reason, "an entry read before")
        self.entries = kept

    def add(self, entries: Iterable[Entry]) -> None:
        earlier: dict[tuple[str, str], list[Entry]] = {}
        for old in self.entries:
            earlier.setdefault(old.key, []).append(old)
        added = list(entries)
        gone = {
            id(old)
            for new in added
            for old in earlier.get(new.key, ())
            if old.overlaps(new) and old.list in (new.list, ListName.UNLISTED)
        }
        self.entries = [e for e in self.entries if id(e) not in gone] + added

    def explain(self, reasons: Iterable[NoKernel]) -> None:
        whys = {(reason.domain, reason.op): reason.why for reason in reasons}
        painted = {e.key for e in self.entries if e.list in PAINTED}
        for i, e in enumerate(self.entries):
            if e.list in PAINTED and e.key in whys:
                self.entries[i] = replace(e, no_kernel=whys[e.key])
        for reason in reasons:
            if (reason.domain, reason.op) not in painted:
                what = "a missing kernel is explained for an operator that never becomes 16-bit"
                self.problem(reason.where, what, reason.op, "an entry on allow, infer or clear")


_CAREFUL = (ListName.DENY, ListName.UNLISTED, ListName.INFER, ListName.CLEAR, ListName.ALLOW)
"""The lists, the most careful first: what is denied stays float32 and so does what follows."""


def common_entries(one: Sequence[Entry], other: Sequence[Entry]) -> list[Entry]:
    """Return the stricter entries about nodes that both are about."""
    theirs: dict[tuple[str, str], list[Entry]] = {}
    for entry in other:
        theirs.setdefault(entry.key, []).append(entry)
    return [
        _stricter_entry(entry, match)
        for entry in one
        for match in theirs.get(entry.key, ())
        if entry.overlaps(match)
    ]


def _stricter_entry(one: Entry, other: Entry) -> Entry:
    ends = [entry.until for entry in (one, other) if entry.until is not None]
    when = {condition.attribute: condition for condition in (*other.when, *one.when)}
    for condition in other.when:
        both = when[condition.attribute].values
        values = tuple(value for value in both if value in condition.values)
        when[condition.attribute] = Condition(condition.attribute, values)
    return replace(
        min(one, other, key=lambda entry: _CAREFUL.index(entry.list)),
        since=max(one.since or 0, other.since or 0) or None,
        until=min(ends, default=None),
        when=tuple(when.values()),
        no_kernel=one.no_kernel or other.no_kernel,
        only_between=one.only_between or other.only_between,
    )
