"""The options of a rewrite on the command line, made from the fields of RewriteOptions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import Field
from typing import Annotated, Any

from amp_rewrite import targets
from amp_rewrite.cli.parameters import Option
from amp_rewrite.rewriting.plan.options import COMMAND_LINE, RewriteOptions

_PARAMETER = "options"
_KIND = inspect.Parameter.KEYWORD_ONLY

Command = Callable[..., None]


def with_rewrite_options(*without: str) -> Callable[[Command], Command]:
    """Return a decorator that gives a command the options of a rewrite.

    The command has a parameter `options`, where it gets RewriteOptions; on the command line the
    fields stand in its place, all but those in `without`.
    """
    chosen = [option for option in COMMAND_LINE if option.name not in without]

    def decorate(command: Command) -> Command:
        def run(**arguments: Any) -> None:
            values = {option.name: _value(option, arguments) for option in chosen}
            if "precision" in arguments:  # a step's own, which may be float32
                from amp_rewrite.training.step.precision import low_of

                values |= low_of(
                    arguments["precision"], targets.find(values["target"] or targets.DEFAULT)
                )
            command(**arguments, options=RewriteOptions(**values))

        return with_parameters(run, command, [p for option in chosen for p in _parameters(option)])

    return decorate


def with_parameters(
    run: Command, command: Command, replacements: list[inspect.Parameter]
) -> Command:
    """Return `run` with a command's name, words and parameters, others in place of `options`."""
    parameters: list[inspect.Parameter] = []
    for own in inspect.signature(command, eval_str=True).parameters.values():
        if own.name == _PARAMETER:
            parameters += replacements
        else:
            parameters.append(own.replace(kind=_KIND))
    functools.update_wrapper(run, command)
    run.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    return run


def _parameters(option: Field[Any]) -> Iterator[inspect.Parameter]:
    """Yield what a field is on the command line: a value, a switch, names one by one, or both."""
    help_, flag, names = (option.metadata[key] for key in ("help", "flag", "names"))
    if flag is None or names is not None:
        type_ = str | None if option.default is None else type(option.default)
        kind = Annotated[type_, Option(help=help_, choices=option.metadata["choices"])]
        yield inspect.Parameter(option.name, _KIND, default=option.default, annotation=kind)
    if flag is not None:
        several = Annotated[list[str] | None, Option(flag, help=names or help_)]
        yield inspect.Parameter(_names_parameter(option), _KIND, default=None, annotation=several)


def _names_parameter(option: Field[Any]) -> str:
    """Return the parameter that gets the names of a field, which may be a switch as well."""
    return f"{option.name}_names" if option.metadata["names"] else option.name


def _value(option: Field[Any], arguments: dict[str, Any]) -> Any:
    """Take a field's value out of what click gives a command."""
    value = arguments.pop(option.name)
    if option.metadata["names"] is not None:
        return arguments.pop(_names_parameter(option)) or value
    return value if option.metadata["flag"] is None else value or option.default
