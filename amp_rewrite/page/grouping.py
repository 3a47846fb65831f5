"""Nodes in folders: by their modules, or the prefixes of their names, and in runs if too many."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from amp_rewrite.graph.flat import MAIN, FlatGraph
from amp_rewrite.graph.modules import noted_module

MOST = 120
"""How many things a folder holds: what a layout and a reader can take in at once."""

_ELLIPSIS = " \N{HORIZONTAL ELLIPSIS} "


@dataclass(slots=True)
class Group:
    """A folder of nodes and folders; `owner` is the node whose graphs are inside, or None."""

    label: str
    members: list[int | Group] = field(default_factory=list["int | Group"])
    owner: int | None = None


def group_nodes(flat: FlatGraph, drawn: Sequence[bool]) -> Group:
    """Return the folders of a model: one for each graph inside a node, and by names inside each."""
    return _of_body(flat, MAIN, drawn)


def _of_body(flat: FlatGraph, number: int, drawn: Sequence[bool]) -> Group:
    body = flat.bodies[number]
    nodes = [node for node in body.nodes if drawn[node]]
    owners = {n: group for n in nodes if (group := _of_owner(flat, n, drawn)) is not None}
    modules = {node: noted_module(flat, node) for node in nodes}
    return _group_by_name(body.name, nodes, flat.node_names, modules, owners)


def _of_owner(flat: FlatGraph, node: int, drawn: Sequence[bool]) -> Group | None:
    """Return the folder that a node with graphs inside it is; None for any other node."""
    inside = [_of_body(flat, body, drawn) for body in flat.bodies_in(node)]
    if not inside:
        return None
    members = inside[0].members if len(inside) == 1 else list[int | Group](inside)
    return Group(last_part(flat.node_names[node]), members, node)


def _group_by_name(
    label: str,
    nodes: Sequence[int],
    names: Sequence[str],
    modules: Mapping[int, str],
    owners: Mapping[int, Group],
) -> Group:
    """Return a folder of nodes, with folders inside for modules, or for prefixes of their names."""
    root = Group(label)
    groups: dict[tuple[str, ...], Group] = {(): root}
    for node in nodes:
        module = modules[node]
        path = tuple(module.split(".") if module else _parts(names[node])[:-1])
        _folder(path, groups).members.append(owners.get(node, node))
    _simplify(root)
    _divide(root, names)
    return root


def _folder(path: tuple[str, ...], groups: dict[tuple[str, ...], Group]) -> Group:
    """Return the folder of a path, made with those around it where it is new."""
    depth = len(path)
    while path[:depth] not in groups:
        depth -= 1
    group = groups[path[:depth]]
    for end in range(depth + 1, len(path) + 1):
        inner = groups[path[:end]] = Group(path[end - 1])
        group.members.append(inner)
        group = inner
    return group


def _parts(name: str) -> list[str]:
    """Return the parts of a name: between slashes, or between dots if it has no slash."""
    separator = "/" if "/" in name.strip("/") else "."
    parts = [part for part in name.split(separator) if part] or [name]
    if len(parts) > 1 and parts[-1].isdecimal():  # "Add.12" is a counter, not a thing in "Add"
        parts[-2:] = [separator.join(parts[-2:])]
    return parts


def last_part(name: str) -> str:
    """Return what a node is called inside its folder."""
    return _parts(name)[-1]


def _simplify(group: Group) -> None:
    """Put what is alone in a folder in its place; a folder in a folder is called after both."""
    for place, member in enumerate(group.members):
        if not isinstance(member, Group) or member.owner is not None:
            continue
        _simplify(member)
        if len(member.members) == 1:
            only = member.members[0]
            if isinstance(only, Group) and only.owner is None:
                only.label = f"{member.label}/{only.label}"
            group.members[place] = only


def _divide(group: Group, names: Sequence[str]) -> None:
    """Divide what has too many members into runs of equal length."""
    for member in group.members:
        if isinstance(member, Group) and member.owner is None:
            _divide(member, names)
    while len(group.members) > MOST:
        length = math.ceil(len(group.members) / math.ceil(len(group.members) / MOST))
        starts = range(0, len(group.members), length)
        runs = [group.members[start : start + length] for start in starts]
        labels = [_ELLIPSIS.join(_label(run[end], names) for end in (0, -1)) for run in runs]
        group.members = [Group(*each) for each in zip(labels, runs, strict=True)]


def _label(member: int | Group, names: Sequence[str]) -> str:
    """Return what a member is called; of a run, its beginning or end is enough."""
    if isinstance(member, Group):
        return member.label.split(_ELLIPSIS)[0]
    return last_part(names[member])
