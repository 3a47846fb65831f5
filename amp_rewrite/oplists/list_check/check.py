"""The CI check of op lists: do they parse, agree with the schemas and kernels, and cover models?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import onnx_ir as ir

from amp_rewrite import targets
from amp_rewrite.base import arguments
from amp_rewrite.base.name_patterns import suggestion
from amp_rewrite.base.printable import few
from amp_rewrite.dtypes import LOW
from amp_rewrite.errors import AmpError, KernelTableError
from amp_rewrite.graph import schemas
from amp_rewrite.graph.elements import FLOAT32_TYPES, tensor, with_element
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.graph.modules import all_names, nodes_by_name
from amp_rewrite.kernels.kernel_table import Kernel, KernelTable, table_of
from amp_rewrite.oplists import OpLists, conflict_error, parse, validate
from amp_rewrite.oplists import files as list_files
from amp_rewrite.oplists.entries import Entry
from amp_rewrite.oplists.list_check.report import CheckReport, Finding, Severity
from amp_rewrite.oplists.validate import has_float32

__all__ = ["CheckReport", "Finding", "Severity", "check_lists"]

_SHOWN = 20


def check_lists(
    files: Sequence[str | Path] | str | Path | None = None,
    *,
    models: Sequence[str | Path] = (),
) -> CheckReport:
    """Check op lists, and models against them.

    For every list with those that it extends: it parses; its keys, operators, opset ranges and
    attributes exist; no operator is on two lists; every operator with a float32 port of the
    installed onnx and of com.microsoft is on a list or unlisted; every allow, infer and clear entry
    has a kernel for the 16-bit type on its target or, else, says why not. For every model: it can
    be read, and its operators that have floats, or no schema, are on all lists; nodes that a list
    names are in it, else a warning says so.

    Args:
        files: Paths or built-in names; all built-in lists if there is none. A path that ends in
            ".onnx" is a model, so that a tool that appends file names needs no option.
        models: ONNX files; their weights are not read.
    """
    paths = arguments.paths("files", files)
    models = [*arguments.paths("models", models), *(f for f in paths if _is_model(f))]
    named = [f for f in paths if not _is_model(f)]
    checked = [_Checked(item) for item in named or list_files.builtin_names()]
    findings = [finding for one in checked for finding in one.findings()]
    lists = {one.name: one.lists for one in checked}
    for model in models:
        findings.extend(_check_model(model, lists))
    return CheckReport(tuple(lists), tuple(map(str, models)), tuple(dict.fromkeys(findings)))


def _is_model(file: str | Path) -> bool:
    return Path(file).suffix.lower() == ".onnx"


class _Checked:
    """One list file with what it extends."""

    def __init__(self, item: str | Path) -> None:
        merged = list_files.read([item], precision=None, targets=None, parse=parse.parse)
        self.name = merged.shown
        self.problems = merged.problems
        self.precision, self.target = merged.precision, merged.target
        self.lists = OpLists(self.precision, self.target, merged.entries, merged.node_rules)

    def findings(self) -> Iterator[Finding]:
        """Yield everything that does not hold."""
        yield from map(Finding.of, self.problems)
        for one, other in self.lists.conflicts():
            yield Finding.of(conflict_error(one, other))
        if self.problems:
            return  # what cannot be read would be reported as missing, too
        missing = [o for o in validate.float_operators() if not self.lists.knows(*o)]
        if missing:
            yield Finding.at(
                f"{self.name}:1",
                f"{len(missing)} operators with floats are on no list: {_names(missing)}; "
                "put them on a list or under `unlisted`, or `extend` a built-in list",
            )
        yield from self.kernels()

    def kernels(self) -> Iterator[Finding]:
        """Yield entries whose `no_kernel` disagrees with the kernel table of their target."""
        if "any" in (self.target, self.precision):
            return
        try:
            table = table_of(targets.find(self.target))
        except KernelTableError as error:
            yield Finding.at(self.name, str(error), Severity.WARNING)
            return
        if table is None:
            return
        for entry in self.lists.entries:
            if entry.list in list_files.PAINTED:
                yield from self.kernel(entry, table)

    def kernel(self, entry: Entry, table: KernelTable) -> Iterator[Finding]:
        """Yield a finding if an entry's `no_kernel` is missing or needless.

        It is about this list, which may extend one of another precision or target.
        """
        has_kernel = has_low_kernel(table, entry, self.precision)
        place = f"{table.provider} {table.version}"
        later = has_later_kernel(table, entry, self.precision)
        if not has_kernel and not later and entry.no_kernel is None:
            is_own = entry.where.startswith(f"{self.name}:")
            yield Finding.at(
                entry.where if is_own else self.name,
                f"{entry.qualified} is on the {entry.list} list"
                f"{'' if is_own else f' ({entry.where})'}, but {place} has no "
                f"{self.precision} kernel of it; say why in `no_kernel`, or take it off",
            )
        if has_kernel and entry.no_kernel is not None:
            yield Finding.at(
                entry.where,
                f"{entry.qualified} says `no_kernel`, but {place} has a {self.precision} kernel "
                "of it; remove the remark",
            )


@cache
def has_low_kernel(table: KernelTable, entry: Entry, precision: str) -> bool:
    """Return whether some kernel computes an entry's operator in the low type, at some opset."""
    newest = schemas.newest_opset(entry.domain) or 1
    last = newest if entry.until is None else min(entry.until, newest)
    opsets = range(entry.since or 1, last + 1)
    return any(_has_low_kernel(table, entry.domain, entry.op, o, precision) for o in opsets)


def has_later_kernel(table: KernelTable, entry: Entry, precision: str) -> bool:
    """Return whether there is a low kernel at an opset that is newer than the installed onnx."""
    if entry.domain != "":
        return False
    newest = schemas.newest_opset("") or 1
    rows = table.kernels.get(("", entry.op), ())
    kernels = (kernel for kernel in rows if kernel.until is None or kernel.until > newest)
    low = tensor(LOW[precision].number)
    return any(low in types for kernel in kernels for _, types in kernel.types)


def _has_low_kernel(table: KernelTable, domain: str, op: str, opset: int, precision: str) -> bool:
    schema = schemas.find(domain, op, opset)
    if schema is None:
        return False
    low = {
        variable: {with_element(t, LOW[precision]) for t in types & FLOAT32_TYPES} & types
        for variable, types in schema.variables.items()
    }
    retyped = {variable: types for variable, types in low.items() if types}
    return any(_computes(kernel, retyped) for kernel in table.matching(domain, op, opset))


def _computes(kernel: Kernel, retyped: dict[str, set[str]]) -> bool:
    """Return whether a kernel takes a low type of one variable, or constrains none of them."""
    constrained = {name: types for name, types in kernel.types if name in retyped}
    if not constrained:
        return bool(retyped)
    return any(types & retyped[name] for name, types in constrained.items())


def _names(operators: Sequence[tuple[str, str]]) -> str:
    return few([f"{d}::{o}" if d else o for d, o in operators], _SHOWN)


class _Use(NamedTuple):
    """One node of a model: its operator, opset, plain attributes and name."""

    domain: str
    op: str
    opset: int
    attributes: Mapping[str, object]
    node: str


def _check_model(path: str | Path, lists: Mapping[str, OpLists]) -> Iterator[Finding]:
    """Yield a finding for every operator of a model that is on none of the sections of a list.

    A rule about a node that the model does not have is a warning. An operator whose schema has no
    float32 needs no list, nor does the call of a function that the model brings along: its body is
    checked instead. A custom operator needs an `unlisted` entry.
    """
    try:
        model = load(path)
    except AmpError as error:
        yield Finding.at(str(path), f"the model cannot be read: {error}; expected an ONNX file")
        return
    missing: dict[tuple[str, str], list[_Use]] = {}
    for use in _uses(model):
        schema = schemas.find(use.domain, use.op, use.opset)
        needs_list = schema is None or has_float32(schema)
        if needs_list and not all(_knows_use(one, use) for one in lists.values()):
            missing.setdefault((use.domain, use.op), []).append(use)
    for uses in missing.values():
        yield Finding.at(str(path), _unknown_text(uses, lists))
    rules = [rule for one in lists.values() for rule in one.node_rules]
    if rules:
        flat = read_flat(path)
        there, names = nodes_by_name(flat, (rule.node for rule in rules)), all_names(flat)
        for rule in (rule for rule in rules if rule.node not in there):
            meant = suggestion(rule.node, names, "a name that `amp-rewrite explain MODEL` lists")
            message = f"{path} has no node or module {rule.node!r}; expected {meant}"
            yield Finding.at(rule.where, message, Severity.WARNING)


def _uses(model: ir.Model) -> Iterator[_Use]:
    """Yield every node of a model, in subgraphs and function bodies too."""
    for graph in (model.graph, *model.functions.values()):
        opsets = {_plain_domain(domain): opset for domain, opset in graph.opset_imports.items()}
        for node in graph.all_nodes():
            if node.op_identifier() not in model.functions:
                domain = _plain_domain(node.domain)
                opset = opsets.get(domain) or schemas.newest_opset(domain) or 1
                attributes = {a.name: a.value for a in node.attributes.values() if not a.is_ref()}
                yield _Use(domain, node.op_type, opset, attributes, node.name or "")


def _plain_domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _knows_use(op_lists: OpLists, use: _Use) -> bool:
    return op_lists.classify(use.domain, use.op, use.opset, use.attributes) is not None


def _unknown_text(uses: list[_Use], lists: Mapping[str, OpLists]) -> str:
    use = uses[0]
    name = f"{use.domain}::{use.op}" if use.domain else use.op
    silent = [n for n, op_lists in lists.items() if not all(_knows_use(op_lists, u) for u in uses)]
    which = "no list knows it" if len(silent) == len(lists) else f"not on {', '.join(silent)}"
    node = f", first in node {use.node!r}" if use.node else ""
    return (
        f"operator {name} (opset {use.opset}, {len(uses)} times{node}): {which}; "
        "put it on a list of a list file, or under `unlisted` to leave it alone"
    )
