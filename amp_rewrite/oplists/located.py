"""YAML text -> values that know their line, without ever building an object other than data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml
from yaml.composer import ComposerError

from amp_rewrite.errors import ListError

Scalar = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Located:
    """A YAML value and the line (from 1) on which it starts.

    Attributes:
        value: A scalar, None, a list of Located, or a dict of str to Located.
        line: The line.
    """

    value: Any
    line: int

    @property
    def kind(self) -> str:
        """The kind of the value, in words for an error message."""
        if isinstance(self.value, dict):
            return "a mapping"
        if isinstance(self.value, list):
            return "a list"
        return "nothing" if self.value is None else f"{self.value!r}"


class _Loader(yaml.SafeLoader):
    """SafeLoader without aliases: nested ones make a small file expand without bound."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose a node as the base class does, refusing an alias."""
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise ComposerError(None, None, "aliases are not allowed", event.start_mark)
        return super().compose_node(parent, index)


def load(text: str, name: str) -> Located:
    """Return the document in `text`.

    Args:
        text: The YAML text: one document.
        name: The file as errors show it.

    Raises:
        ListError: The text is not YAML, or uses aliases, non-text keys, a key twice, or a tag.
    """
    try:
        # Constructing the loader reads the text already: it refuses control characters.
        loader = _Loader(text)
        node = loader.get_single_node()
        return Located({}, 1) if node is None else _convert(node, loader, name)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}" if mark else name
        raise ListError(f"not readable as YAML: {error.problem}", where=where) from error
    except (yaml.YAMLError, ValueError) as error:
        raise ListError(f"not readable as YAML: {error}", where=name) from error
    except RecursionError:
        raise ListError("not readable as YAML: nested too deeply", where=name) from None


def _convert(node: yaml.Node, loader: _Loader, name: str) -> Located:
    line = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        return Located(_mapping(node, loader, name), line)
    if isinstance(node, yaml.SequenceNode):
        return Located([_convert(item, loader, name) for item in node.value], line)
    try:
        value = loader.construct_object(node, deep=True)
    except (ValueError, IndexError, KeyError, AttributeError, OverflowError) as error:
        # What PyYAML lets through for a tag that does not fit, such as `!!int ""`, `!!bool x`.
        what = f"not readable as YAML: {type(error).__name__}: {error}"
        raise ListError(what, where=f"{name}:{line}", found=node.tag) from error
    if value is not None and not isinstance(value, Scalar):
        raise ListError(
            "unexpected kind of value",
            where=f"{name}:{line}",
            found=f"a {type(value).__name__}",
            expected="text or a number",
            remedy="put it in quotes",
        )
    return Located(value, line)


def _mapping(node: yaml.MappingNode, loader: _Loader, name: str) -> dict[str, Located]:
    entries: dict[str, Located] = {}
    for key_node, value_node in node.value:
        where = f"{name}:{key_node.start_mark.line + 1}"
        key = _convert(key_node, loader, name).value
        if not isinstance(key, str):
            raise ListError("a key is not text", where=where, found=repr(key), remedy="quote it")
        if key in entries:
            raise ListError("the same key twice", where=where, found=key)
        entries[key] = _convert(value_node, loader, name)
    return entries
