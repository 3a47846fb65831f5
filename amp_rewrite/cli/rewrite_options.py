"""The options of a rewrite on the command line, made from the fields of RewriteOptions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import Field, fields
from typing import Annotated, Any

import typer

from amp_rewrite.rewrite.options import RewriteOptions

_PARAMETER = "options"

Command = Callable[..., None]


def with_rewrite_options(*without: str) -> Callable[[Command], Command]:
    """Return a decorator that gives a command the options of a rewrite.

    The command has a parameter `options`, where it gets RewriteOptions; on the command line the
    fields stand in its place, all but those in `without`.
    """
    chosen = [option for option in fields(RewriteOptions) if option.name not in without]

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(**given: Any) -> None:
            values = {option.name: _value(option, given) for option in chosen}
            command(**given, options=RewriteOptions(**values))

        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            replaced = parameter.name == _PARAMETER
            parameters += [p for o in chosen for p in _parameters(o)] if replaced else [parameter]
        keywords = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
        run.__signature__ = inspect.Signature(keywords)  # pyright: ignore[reportAttributeAccessIssue]
        return run

    return decorate


def _parameters(option: Field[Any]) -> Iterator[inspect.Parameter]:
    """Yield what a field is on the command line: a value, a switch, names one by one, or both."""
    help_, flag, names = (option.metadata[key] for key in ("help", "flag", "names"))
    if flag is None or names is not None:
        kind = type(option.default)
        yield _parameter(option.name, Annotated[kind, typer.Option(help=help_)], option.default)
    if flag is not None:
        several = Annotated[list[str] | None, typer.Option(flag, help=names or help_)]
        yield _parameter(_names_parameter(option), several, None)


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def _names_parameter(option: Field[Any]) -> str:
    return f"{option.name}_names" if option.metadata["names"] else option.name


def _value(option: Field[Any], given: dict[str, Any]) -> Any:
    """Take a field's value out of what typer gives a command."""
    value = given.pop(option.name)
    if option.metadata["names"] is not None:
        return given.pop(_names_parameter(option)) or value
    return value if option.metadata["flag"] is None else value or option.default
