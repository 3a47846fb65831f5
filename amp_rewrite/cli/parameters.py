"""The parameters of a command: annotations of a function, as click's options and arguments."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

import click

Function = Callable[..., None]


MAIN, TYPES, RULES, CHECKING, OUTPUT = "Options", "Types", "Rules", "Checking", "Output"
TRAINING, ADVANCED = "Training", "Advanced"
GROUPS = (MAIN, TYPES, RULES, CHECKING, OUTPUT, TRAINING, ADVANCED)
"""The parts of a help, in their order. The first is what most users need."""


class Argument:
    """A word of the command line that has no flag: its help, and its value if it is left out."""

    def __init__(self, help: str, default: Any = ...) -> None:  # noqa: A002 as click calls it
        """Take the sentence that the help shows; without a default value it is needed."""
        self.help, self.default = help, default


class Option:
    """A flag, `--its-name`; of a bool that may be on by default `--its-name/--no-its-name`, too.

    Attributes:
        default: Its value if it is left out; `...` if it is needed.
        help: The sentence that the help shows.
        names: Other flags than its name; "--a/--no-a" is a switch with two.
        group: The part of the help where it stands, if that has parts.
        min: The smallest number.
        choices: Values that a shell offers.
        callback: Called with click's context, the parameter and the value.
        is_eager: Whether it counts before other options.
    """

    def __init__(
        self,
        *names: str,
        help: str,  # noqa: A002 as click calls it
        default: Any = ...,
        group: str = MAIN,
        min: int | None = None,  # noqa: A002
        choices: Iterable[str] = (),
        callback: Callable[..., Any] | None = None,
        is_eager: bool = False,
    ) -> None:
        """Take the attributes."""
        self.names, self.help, self.default, self.group = names, help, default, group
        self.choices, self.min = tuple(choices), min
        self.callback, self.is_eager = callback, is_eager


def option(default: Any, help: str, *names: str, **settings: Any) -> Any:  # noqa: A002
    """Declare an option of a command, as the default value of its parameter.

    Args:
        default: Its value if it is left out; `...` if it is needed.
        help: The sentence that the help shows.
        names: Other flags, as for `Option`.
        settings: The other settings of `Option`.
    """
    return Option(*names, help=help, default=default, **settings)


def argument(help: str, default: Any = ...) -> Any:  # noqa: A002 as click calls it
    """Declare an argument of a command, as the default value of its parameter."""
    return Argument(help, default)


class _ShownArgument(click.Argument):
    """An argument that stands in the help."""

    def __init__(self, *words: Any, sentence: str, **settings: Any) -> None:
        super().__init__(*words, **settings)
        self._sentence = sentence

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return its name and its sentence."""
        return self.make_metavar(ctx), self._sentence


class GroupedOption(click.Option):
    """An option that stands in a group of the help, a switch as `--[no-]its-name`."""

    def __init__(self, *words: Any, group: str, **settings: Any) -> None:
        """Take the settings of an option, and its group."""
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


def parameters_of(function: Function) -> list[click.Parameter]:
    """Return the parameters that the signature of a function declares."""
    signature = inspect.signature(function, eval_str=True)
    return [_parameter(own) for own in signature.parameters.values()]


def _parameter(own: inspect.Parameter) -> click.Parameter:
    annotation, declared, default = own.annotation, own.default, own.default
    if isinstance(declared, Argument | Option):
        default = declared.default
    else:  # Annotated, with an option that several commands have
        annotation, declared = get_args(annotation)
    is_needed = default in (inspect.Parameter.empty, ...)
    default = None if is_needed else default
    type_, several = _type_of(annotation)
    settings: dict[str, Any] = {"type": _checked_type(type_, declared), "required": is_needed}
    if several:
        settings["callback"] = lambda _, __, values: list(values) or default
    elif issubclass(type_, Enum):
        settings["callback"] = lambda _, __, value: None if value is None else type_(value)
        default = None if default is None else str(default.value)
    if not (is_needed or several):  # click takes None for a value that was given
        settings["default"] = default
    if isinstance(declared, Argument):
        settings |= {"nargs": -1} if several else {}
        return _ShownArgument([own.name], sentence=declared.help, **settings)
    sentence = declared.help
    if several:
        settings["multiple"] = True
        sentence = f"{sentence.removesuffix('.')}; repeatable."
    if declared.callback is not None:
        settings["callback"] = declared.callback
    return GroupedOption(
        [
            own.name,
            *_flags(own.name, declared.names, is_switch=type_ is bool and default is not False),
        ],
        help=sentence,
        group=declared.group,
        show_default=True,
        is_flag=True if type_ is bool else None,
        is_eager=declared.is_eager,
        shell_complete=_completing(declared.choices) if declared.choices else None,
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


def _checked_type(type_: type, declared: Argument | Option) -> click.ParamType | type:
    least = getattr(declared, "min", None)
    if least is not None:
        return click.IntRange(min=least)
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


def _completing(choices: Iterable[str]) -> Callable[[click.Context, click.Parameter, str], Any]:
    return lambda _, __, begun: [choice for choice in choices if choice.startswith(begun)]


def command_of(
    function: Function, kind: type[click.Command], settings: Mapping[str, Any], **more: Any
) -> click.Command:
    """Return a function as a command; its docstring is the help."""
    return kind(
        callback=function,
        params=parameters_of(function),
        help=inspect.getdoc(function),
        context_settings={**settings},
        **more,
    )
