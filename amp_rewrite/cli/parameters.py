"""The parameters of a command: those of a function, as click's options and arguments."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

import click

Function = Callable[..., None]


MAIN, TYPES, RULES, CHECKING, OUTPUT = "Options", "Types", "Rules", "Checking", "Output"
TRAINING, ADVANCED = "Training", "Advanced"
GROUPS = (MAIN, TYPES, RULES, CHECKING, OUTPUT, TRAINING, ADVANCED)
"""The parts of a help, in their order. The first is what most users need."""


@dataclass(frozen=True, kw_only=True)
class _Declared:
    """The declaration of a parameter, which is the default value in a command's signature.

    Attributes:
        default: Its value if it is omitted; `...` if it is needed.
        names: Other flags than its name; "--a/--no-a" is a switch with two. None of an argument.
        group: The part of the help where it stands, if that has parts.
        choices: Values that a shell offers.
        callback: Called with click's context, the parameter and the value.
        is_eager: Whether it counts before other options.
    """

    help: str
    default: Any
    names: tuple[str, ...] | None = None
    group: str = MAIN
    min: int | None = None
    choices: Collection[str] = ()
    callback: Callable[..., Any] | None = None
    is_eager: bool = False


def option(default: Any, help: str, *names: str, **settings: Any) -> Any:  # noqa: A002
    """Declare a flag, `--its-name`; a bool that is not off by default has `--no-its-name`, too.

    The other arguments are the attributes of `_Declared`.
    """
    return _Declared(help=help, default=default, names=names, **settings)


def argument(help: str, default: Any = ...) -> Any:  # noqa: A002 as click calls it
    """Declare a word without a flag."""
    return _Declared(help=help, default=default)


class _ShownArgument(click.Argument):
    """An argument that stands in the help."""

    def __init__(self, *words: Any, sentence: str, **settings: Any) -> None:
        super().__init__(*words, **settings)
        self._sentence = sentence

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return its name and its sentence."""
        return self.make_metavar(ctx), self._sentence


class _GroupedOption(click.Option):
    """An option that stands in a group of the help, a switch as `--[no-]its-name`."""

    def __init__(self, *words: Any, group: str, **settings: Any) -> None:
        super().__init__(*words, **settings)
        self.group = group

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return its flags, and its sentence with what it is by default."""
        self.show_default = self.default != "default"
        record = super().get_help_record(ctx)
        if record is None or not self.secondary_opts:
            return record
        flag = f"--[no-]{self.opts[0].removeprefix('--')}"
        return flag, f"{self.help}  [default: on]" if self.default else f"{self.help}"


def _parameter(own: inspect.Parameter) -> click.Parameter:
    declared: _Declared = own.default
    is_needed = declared.default is ...
    default = None if is_needed else declared.default
    type_, several = _type_of(own.annotation)
    settings: dict[str, Any] = {"type": _checked_type(type_, declared.min), "required": is_needed}
    if several:
        settings["callback"] = lambda _, __, values: list(values) or default
    elif issubclass(type_, Enum):
        settings["callback"] = lambda _, __, value: None if value is None else type_(value)
        default = None if default is None else str(default.value)
    if not (is_needed or several):  # click takes None for a value that was given
        settings["default"] = default
    if declared.names is None:
        settings |= {"nargs": -1} if several else {}
        return _ShownArgument([own.name], sentence=declared.help, **settings)
    sentence = declared.help
    if several:
        settings["multiple"] = True
        sentence = f"{sentence} Repeatable."
    if declared.callback is not None:
        settings["callback"] = declared.callback
    choices = declared.choices
    flags = _flags(own.name, declared.names, is_switch=type_ is bool and default is not False)
    return _GroupedOption(
        [own.name, *flags],
        help=sentence,
        group=declared.group,
        show_default=True,
        is_flag=True if type_ is bool else None,
        is_eager=declared.is_eager,
        shell_complete=(lambda _, __, begun: [c for c in choices if c.startswith(begun)])
        if choices
        else None,
        **settings,
    )


def _type_of(annotation: Any) -> tuple[type, bool]:
    """Return the type of a value, and whether there may be several; None is left aside."""
    kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
    inner = annotation if get_origin(annotation) is list or not kinds else kinds[0]
    return (get_args(inner)[0], True) if get_origin(inner) is list else (inner, False)


class NewFolder(type(Path())):
    """A path that was given with a slash at its end."""


class _PathType(click.Path):
    """A path, a NewFolder where it ends with a slash."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the path."""
        found: Any = super().convert(value, param, ctx)
        return NewFolder(found) if str(value).endswith(("/", os.sep)) else found


class _NumberType(click.types.FloatParamType):
    """A number, also as a percentage."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the number."""
        plain: Any = str(value).removesuffix("%")
        return super().convert(plain, param, ctx) / (1 if plain == str(value) else 100)


def _checked_type(type_: type, least: int | None) -> click.ParamType | type:
    if least is not None:
        return click.IntRange(min=least)
    if type_ is float:
        return _NumberType()
    if issubclass(type_, Path):
        return _PathType(path_type=Path)
    if issubclass(type_, Enum):
        return click.Choice([str(member.value) for member in type_])
    return type_


def _flags(name: str, names: tuple[str, ...], *, is_switch: bool) -> tuple[str, ...]:
    """Return the flags of an option: those given, and its own name if none of them is long."""
    if any(given.startswith("--") for given in names):
        return names
    words = name.strip("_").replace("_", "-")
    return (f"--{words}/--no-{words}" if is_switch else f"--{words}", *names)


def command_of(
    function: Function, kind: type[click.Command], settings: Mapping[str, Any], **more: Any
) -> click.Command:
    """Return a function as a command; its docstring is the help."""
    signature = inspect.signature(function, eval_str=True)
    return kind(
        callback=function,
        params=[_parameter(own) for own in signature.parameters.values()],
        help=inspect.getdoc(function),
        context_settings={**settings},
        **more,
    )
