"""The options of a rewrite on the command line, made from the fields of RewriteOptions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from amp_rewrite import targets
from amp_rewrite.cli.parameters import option as declare
from amp_rewrite.rewriting.plan.options import COMMAND_LINE, Declared, RewriteOptions

_KIND = inspect.Parameter.KEYWORD_ONLY

Command = Callable[..., None]


def with_rewrite_options(command: Command) -> Command:
    """Give a command the options of a rewrite in place of its parameter `options`.

    An option that is declared to be without the command is left out.
    """
    name = command.__name__.replace("_", "-")
    chosen = [option for option in COMMAND_LINE if name not in option.shown.without]

    def run(**arguments: Any) -> None:
        values = {option.name: _value(option, arguments) for option in chosen}
        if "precision" in arguments:  # a step's own, which may be float32
            from amp_rewrite.training.step.precision import low_of

            values |= low_of(
                arguments["precision"], targets.find(values["target"] or targets.DEFAULT)
            )
        command(**arguments, options=RewriteOptions(**values))

    parameters: list[inspect.Parameter] = []
    for own in inspect.signature(command, eval_str=True).parameters.values():
        if own.name == "options":
            parameters += [p for option in chosen for p in _parameters(option)]
        else:
            parameters.append(own.replace(kind=_KIND))
    functools.update_wrapper(run, command)
    run.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    return run


def _parameters(option: Declared) -> Iterator[inspect.Parameter]:
    """Yield an option of the command line: a value, a switch, names, or the last two."""
    shown, names = option.shown, option.shown.names
    if names is not None or not option.is_repeated:
        type_ = str | None if option.default is None else type(option.default)
        own = declare(option.default, shown.help, group=shown.group, choices=option.choices)
        yield inspect.Parameter(option.name, _KIND, default=own, annotation=type_)
    if option.is_repeated:
        own = declare(None, names or shown.help, option.flag, group=shown.group)
        name, several = _names_parameter(option), list[str] | None
        yield inspect.Parameter(name, _KIND, default=own, annotation=several)


def _names_parameter(option: Declared) -> str:
    """Return the parameter that gets the names of an option, which may be a switch as well."""
    return f"{option.name}_names" if option.shown.names else option.name


def _value(option: Declared, arguments: dict[str, Any]) -> Any:
    """Take an option's value out of what click gives a command."""
    value = arguments.pop(option.name)
    if option.shown.names is not None:
        return arguments.pop(_names_parameter(option)) or value
    return value or option.default if option.is_repeated else value
