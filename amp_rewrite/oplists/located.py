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
    """A YAML value (scalar, None, list or dict of Located) and its first line, from 1."""

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
    """Return the one document in a YAML text; `name` is the file as errors show it.

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
    where = f"{name}:{line}"
    if isinstance(node, yaml.SequenceNode):
        return Located([_convert(item, loader, name) for item in node.value], line)
    if isinstance(node, yaml.MappingNode):
        entries: dict[str, Located] = {}
        for key_node, value_node in node.value:
            place, key = f"{name}:{key_node.start_mark.line + 1}", _convert(key_node, loader, name)
            if not isinstance(key.value, str):
                found = repr(key.value)
                raise ListError("a key is not text", where=place, found=found, remedy="quote it")
            if key.value in entries:
                raise ListError("the same key twice", where=place, found=key.value)
            entries[key.value] = _convert(value_node, loader, name)
        return Located(entries, line)
    try:
        value = loader.construct_object(node, deep=True)
    except (ValueError, IndexError, KeyError, AttributeError, OverflowError) as error:
        # What PyYAML lets through for a tag that does not fit, such as `!!int ""`, `!!bool x`.
        what = f"not readable as YAML: {type(error).__name__}: {error}"
        raise ListError(what, where=where, found=node.tag) from error
    if value is not None and not isinstance(value, Scalar):
        raise ListError(
            "unexpected kind of value",
            where=where,
            found=f"a {type(value).__name__}",
            expected="text or a number",
            remedy="put it in quotes",
        )
    return Located(value, line)
