"""Which kernels a runtime has: lists/kernels/<provider>_<version>.json as a frozen table.

A table is made by a script in tools/. Its JSON, version 1:

    {"version": 1, "runtime": "onnxruntime-gpu 1.31.1 ...", "provider": "CUDAExecutionProvider",
     "source": "...", "types": [["tensor(float)", "tensor(float16)"], ...],
     "kernels": {"<domain>": {"<op>": [[since, until or null, {"T": <index into types>}], ...]}}}

One row is one registered kernel, or several that differ in a single constraint; a row never stands
for a combination of types that has no kernel. A table may have "uncast": {"<domain>": {"<op>":
[index of an input, ...]}}: float32 inputs that must not come from a Cast; and "unloadable":
{"<domain>": {"<op>": [[first, last opset or null], ...]}}: where float16 does not load at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, reduce
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

from amp_rewrite import targets
from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.errors import KernelTableError
from amp_rewrite.graph import schemas
from amp_rewrite.graph.elements import tensor

FORMAT_VERSION = 1

T = TypeVar("T")

FLOAT16_TENSOR = tensor(FLOAT16.number)

_REINSTALL = "reinstall the package"


@dataclass(frozen=True, slots=True)
class Kernel:
    """One row of a table.

    Attributes:
        since: The first operator version that the kernel was registered for.
        until: The last one, or None if the registration names no end.
        types: (constraint name, admitted type strings) pairs.
    """

    since: int
    until: int | None
    types: tuple[tuple[str, frozenset[str]], ...]

    def serves(self, version: int) -> bool:
        """Return whether the kernel serves an operator of this since-version.

        ONNX Runtime takes a kernel without a registered end for its start version only (its
        kernel registry's rule; RandomNormalLike-22 does not load with the kernel "since 1").
        """
        if self.since == version:
            return True
        return self.until is not None and self.since < version <= self.until

    def admits(self, types: Mapping[str, str]) -> bool:
        """Return whether every constraint in `types` admits its type.

        A constraint that admits nothing is met by calls that omit its variable.
        """
        return all(types[name] in admitted for name, admitted in self.types if name in types)


@dataclass(frozen=True, slots=True, eq=False)
class KernelTable:
    """The kernels of one execution provider in one version of ONNX Runtime, by (domain, op).

    Attributes:
        runtime: The runtime in words.
        uncast: The inputs that in float32 must not come from a Cast, through operators that only
            move elements.
        unloadable: The opsets, the first and the last (None for all from there on), at which the
            runtime does not load the operator in float16, not even with casts.
    """

    provider: str
    version: str
    runtime: str
    kernels: Mapping[tuple[str, str], tuple[Kernel, ...]]
    uncast: Mapping[tuple[str, str], frozenset[int]]
    unloadable: Mapping[tuple[str, str], tuple[tuple[int, int | None], ...]]

    @staticmethod
    def load(provider: str = targets.CUDA, version: str | None = None) -> KernelTable:
        """Return the shipped table of a provider, by default for the newest runtime on file."""
        return _load(provider, version)

    def has_kernel(self, domain: str, op: str, opset: int, types: Mapping[str, str]) -> bool:
        """Return whether one kernel takes all of `types` at once.

        They are type variable of the node -> type string such as "tensor(float16)". A variable that
        a kernel does not constrain, and a constraint whose name is not in `types` (some kernels
        constrain a formal input such as "shape"), decide nothing.
        """
        return _has_kernel(self, _plain_domain(domain), op, opset, tuple(types.items()))

    def loads(self, domain: str, op: str, opset: int, types: Iterable[str]) -> bool:
        """Return whether the runtime loads an operator of these types, if with casts around it."""
        if FLOAT16_TENSOR not in types:
            return True
        ranges = self.unloadable.get((_plain_domain(domain), op), ())
        return not any(first <= opset <= (last or opset) for first, last in ranges)

    def common(self, other: KernelTable) -> KernelTable:
        """Return the kernels that both tables have: for each operator, types that both admit."""
        return _common_table(self, other)

    def matching(self, domain: str, op: str, opset: int) -> tuple[Kernel, ...]:
        """Return the kernels that serve `domain::op` as of `opset`."""
        return _matching_kernels(self, _plain_domain(domain), op, opset)


def table_of(target: targets.Target) -> KernelTable | None:
    """Return the kernels of a target, of several those that all have; None admits everything."""
    if target.parts:
        tables = [table for part in target.parts if (table := table_of(part)) is not None]
        return reduce(KernelTable.common, tables) if tables else None
    if target.kernels is None:
        return None
    if targets.is_table(target.kernels):
        return _load_file(target.kernels)
    return KernelTable.load(target.kernels)


def versions(provider: str) -> tuple[str, ...]:
    """Return the runtime versions that a table of `provider` is on file for, oldest first."""
    head = f"{provider}_"
    files = (p.name for p in targets.DATA.joinpath("kernels").iterdir())
    named = (n[len(head) : -len(".json")] for n in files if n.startswith(head))
    return tuple(
        sorted(
            named, key=lambda v: [(int(p), "") if p.isdigit() else (-1, p) for p in v.split(".")]
        )
    )


def _plain_domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


@cache
def _matching_kernels(table: KernelTable, domain: str, op: str, opset: int) -> tuple[Kernel, ...]:
    rows = table.kernels.get((domain, op), ())
    schema = schemas.find(domain, op, opset)
    return tuple(k for k in rows if k.serves(schema.since if schema else opset))


@cache
def _has_kernel(
    table: KernelTable, domain: str, op: str, opset: int, types: tuple[tuple[str, str], ...]
) -> bool:
    wanted = dict(types)
    return any(k.admits(wanted) for k in table.matching(domain, op, opset))


@cache
def _load(provider: str, version: str | None) -> KernelTable:
    on_file = versions(provider)
    chosen = version if version is not None else (on_file[-1] if on_file else None)
    if chosen is None or chosen not in on_file:
        raise KernelTableError(
            "there is no kernel table for this execution provider and version",
            where=provider,
            found=version or "no version at all",
            expected=", ".join(on_file) or "a provider with a table under lists/kernels",
            remedy="make one with tools/make_kernel_table.py, or use target='schema'",
        )
    path = targets.DATA.joinpath("kernels", f"{provider}_{chosen}.json")
    remedy = f"{_REINSTALL} or remake it with tools/make_kernel_table.py"
    return _read(path, lambda data: parse(data, chosen), remedy)


def _load_file(name: str) -> KernelTable:
    """Return the table in a user's file, read again only when the file has changed."""
    try:
        stat = Path(name).stat()
        state = stat.st_mtime_ns, stat.st_size
    except OSError:
        state = None  # reading it says why
    return _load_as_of(name, state)


@cache
def _load_as_of(name: str, _state: tuple[int, int] | None) -> KernelTable:
    return _read(Path(name), parse, "make one with tools/make_kernel_table.py")


def _read(
    path: Traversable, make: Callable[[Any], T], remedy: str, what: str = "kernel table"
) -> T:
    try:
        return make(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise KernelTableError(
            f"the {what} cannot be read",
            where=path,
            found=f"{type(error).__name__}: {error}",
            remedy=remedy,
        ) from error


def shipped(
    folder: str, name: str, what: str, parse: Callable[[Any], T], remedy: str = _REINSTALL
) -> T:
    """Return the table of something that the package brings as JSON, parsed."""
    path = targets.DATA.joinpath(folder, f"{name}.json")
    return _read(path, parse, remedy, f"table of {what}")


def check_format(data: Mapping[str, Any], what: str, version: int) -> None:
    """Refuse a table of something whose format has another version than the known one."""
    if data["version"] != version:
        raise KernelTableError(
            f"unknown format of a table of {what}", found=data["version"], expected=version
        )


def by_operator(data: Mapping[str, Any], make: Callable[[Any], T]) -> dict[tuple[str, str], T]:
    """Return (domain, op) -> what is made of its rows, of a table by domain and operator."""
    return {(domain, op): make(rows) for domain, ops in data.items() for op, rows in ops.items()}


@cache
def _common_table(one: KernelTable, other: KernelTable) -> KernelTable:
    kernels: dict[tuple[str, str], tuple[Kernel, ...]] = {}
    for key, rows in one.kernels.items():
        pairs = (_common_kernel(a, b) for a in rows for b in other.kernels.get(key, ()))
        kernels[key] = tuple(filter(None, pairs))
    uncast, unloadable = {**one.uncast}, {**one.unloadable}
    for key, inputs in other.uncast.items():
        uncast[key] = uncast.get(key, frozenset()) | inputs
    for key, opsets in other.unloadable.items():
        unloadable[key] = unloadable.get(key, ()) + opsets
    provider, version = f"{one.provider} and {other.provider}", f"{one.version} and {other.version}"
    runtime = f"{one.runtime} and {other.runtime}"
    return KernelTable(provider, version, runtime, kernels, uncast, unloadable)


def _common_kernel(one: Kernel, other: Kernel) -> Kernel | None:
    """Return what two kernels of one operator both serve and admit, or None if that is nothing."""
    since = max(one.since, other.since)
    last = min(one.since if one.until is None else one.until, other.until or other.since)
    theirs = dict(other.types)
    types = {name: admitted & theirs.pop(name, admitted) for name, admitted in one.types} | theirs
    if last < since:
        return None
    return Kernel(since, last, tuple(types.items()))


def parse(data: Mapping[str, Any], version: str | None = None) -> KernelTable:
    """Return the table in a decoded JSON file, whose `runtime` ends with the version by default."""
    check_format(data, "kernels", FORMAT_VERSION)
    sets = [frozenset(names) for names in data["types"]]

    def kernels(rows: Any) -> tuple[Kernel, ...]:
        return tuple(
            Kernel(since, until, tuple((name, sets[index]) for name, index in types.items()))
            for since, until, types in rows
        )

    uncast = by_operator(data.get("uncast", {}), lambda inputs: frozenset(map(int, inputs)))
    runtime: str = data["runtime"]
    version = version or runtime.split()[-1]
    rows_of = by_operator(data["kernels"], kernels)
    unloadable = by_operator(
        data.get("unloadable", {}), lambda ranges: tuple((int(a), b) for a, b in ranges)
    )
    return KernelTable(data["provider"], version, runtime, rows_of, uncast, unloadable)
