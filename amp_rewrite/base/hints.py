"""Hints: what users may have meant by an attribute or a keyword argument that is not there."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache, wraps
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from amp_rewrite.base.name_patterns import did_you_mean, suggestion
from amp_rewrite.errors import KeywordError

Named = TypeVar("Named")


def _meant(name: str, table: Mapping[str, str]) -> Iterator[str]:
    return (here for here, elsewhere in table.items() if name in elsewhere.split())


def no_attribute(owner: Any, name: str, names: Iterable[str] | None = None) -> AttributeError:
    """Return the error about a name that a module or an object lacks, with what may be meant.

    That is what another package's name is here, or is among `names`: by default the owner's.
    """
    from amp_rewrite.base.first_guesses import ATTRIBUTES
    from amp_rewrite.base.removed import NAMES

    is_module = isinstance(owner, ModuleType)
    what = f"module {owner.__name__!r}" if is_module else f"{type(owner).__name__!r} object"
    here = next(_meant(name, ATTRIBUTES), None)
    hint = NAMES.get(name) if here is None else f"use {here}"
    if hint is None and not name.startswith("_"):  # tools ask for many of those
        public = (each for each in names or dir(owner) if not each.startswith("_"))
        hint = did_you_mean(name, public) or "docs/api.md has the names"
    text = f"{what} has no attribute {name!r}"
    return AttributeError(text if hint is None else f"{text}; {hint}", name=name)


class Hinted:
    """An object that hints at what was meant by an unknown attribute, or keyword of a method."""

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        """Let methods name the nearest argument."""
        super().__init_subclass__(**options)
        _hint_methods(cls)

    if not TYPE_CHECKING:  # types know the attributes that there are

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError, with a hint; that of a property as it was."""
            for kind in type(self).__mro__:
                if name in vars(kind):
                    return vars(kind)[name].__get__(self, type(self))
            raise no_attribute(self, name)


def hinted(thing: Named, also: Collection[str] = ()) -> Named:
    """Return a function, or a class, that names the nearest argument for an unknown keyword.

    `also` are keywords that a function takes beside those of its signature.
    """
    if isinstance(thing, type):
        for kind in thing.__mro__:
            if kind.__module__.startswith("amp_rewrite"):
                _hint_methods(kind)
    if not isinstance(thing, FunctionType) or hasattr(thing, "_hinted"):
        return thing
    return _checked(thing, frozenset(also))


@cache  # a function of two names stays one
def _checked(function: Any, also: frozenset[str]) -> Any:
    @wraps(function)
    def checked(*args: Any, **keywords: Any) -> Any:
        names = _keywords(function) if keywords else ()
        if names and not keywords.keys() <= {*names, *also}:
            raise _unknown_keyword(function, min(keywords.keys() - {*names, *also}), names)
        return function(*args, **keywords)

    vars(checked)["_hinted"] = True
    return checked


def _hint_methods(kind: type) -> None:
    for name, member in list(vars(kind).items()):
        if isinstance(member, FunctionType) and (name == "__init__" or name[0] != "_"):
            setattr(kind, name, hinted(member))


@cache
def _keywords(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of all arguments; none if it passes unknown ones on."""
    parameters = inspect.signature(function).parameters
    passes_on = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    return () if passes_on else tuple(name for name in parameters if name != "self")


def _unknown_keyword(
    function: Callable[..., Any], name: str, names: Collection[str]
) -> KeywordError:
    from amp_rewrite.base.first_guesses import KEYWORDS, REMEDIES

    meant = next((each for each in _meant(name, KEYWORDS) if each in names), None)
    remedy = None if meant else next(_meant(name, REMEDIES), None)
    expected = repr(meant) if meant else suggestion(name, names, ", ".join(names))
    return KeywordError(
        "unknown keyword",
        where=f"{function.__qualname__.removesuffix('.__init__')}()",
        found=name,
        expected=None if remedy else expected,
        remedy=remedy,
    )


def hinted_in(module: ModuleType, name: str) -> Any:
    """Return a public name of a module, hinted: one object, wherever it is imported from."""
    public = getattr(module, name)
    found = hinted(public)
    for home in (module, sys.modules.get(getattr(public, "__module__", ""), module)):
        if vars(home).get(name) is public:
            vars(home)[name] = found
    return found


def give_hints(module_name: str) -> None:
    """Let a module hint at its names, and its public functions and classes at their keywords."""
    module = sys.modules[module_name]
    for name in getattr(module, "__all__", ()):
        hinted_in(module, name)

    def refuse(name: str) -> Any:
        raise no_attribute(module, name)

    vars(module)["__getattr__"] = refuse
