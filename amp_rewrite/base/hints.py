"""Hints: what users may have meant by an attribute or a keyword argument that is not there."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache, wraps
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from amp_rewrite.base.removed import ARGUMENTS
from amp_rewrite.errors import KeywordError

Named = TypeVar("Named")

_MOST = 2
"""How many names a hint has."""

_MEANT: Mapping[str, str] = {
    "dtype": "precision",
    "keep_io": "keep_io_types",
    "ops": "deny_ops",
    **dict.fromkeys(("atol", "tol", "tolerance", "max_error", "threshold"), "rtol"),
    **dict.fromkeys(("inputs", "dataset", "samples", "input_data", "x"), "data feeds"),
    **dict.fromkeys(("path", "out", "output_path", "filename"), "output path"),
    **dict.fromkeys(("device", "devices", "execution_providers"), "providers"),
    **dict.fromkeys(("batch_size", "bs"), "batch"),
    **dict.fromkeys(("validation_data", "val_data", "eval_data"), "eval"),
    **dict.fromkeys(("outputs", "fetch", "output_names"), "fetches"),
    **dict.fromkeys(("init_scale", "initial_loss_scale"), "initial_loss_scale initial_scale"),
    **dict.fromkeys(("growth_interval",), "increment_period dynamic_growth_steps"),
    **dict.fromkeys(("variables", "params", "parameters"), "var_list"),
}
"""Keyword that users try first -> the arguments here, of which the first that there is."""

_REMEDIES: Mapping[str, str] = {
    "verify": "convert always verifies, and so does verify(model, result)",
    "output": "save what is returned: amp.save(result, path), or its own save(path)",
    **dict.fromkeys(
        ("learning_rate", "lr"), "the optimizer takes it: optimizers.Adam(learning_rate=0.001)"
    ),
    "rtol": "use convert(model, data, rtol=...), or tune",
    "precision": "TrainingSession(train_op, precision='float16') takes it",
}
"""Keyword of other functions -> what to do where a function has none of its kind."""


def no_attribute(
    owner: Any,
    name: str,
    instead: Mapping[str, str] | None = None,
    names: Iterable[str] | None = None,
) -> AttributeError:
    """Return the error about a name that a module or an object lacks, with a hint.

    `instead` has names of other packages -> what to write here; `names` are those that may be
    meant, where others than the owner's may be.
    """
    is_module = isinstance(owner, ModuleType)
    what = f"module {owner.__name__!r}" if is_module else f"{type(owner).__name__!r} object"
    text = f"{what} has no attribute {name!r}"
    if instead and name in instead:
        text += f"; use {instead[name]}"
    elif not name.startswith("_") and (close := _near(name, names or dir(owner))):
        text += f"; did you mean {close}?"
    return AttributeError(text, name=name)


def _near(name: str, names: Iterable[str]) -> str:
    from amp_rewrite.base.name_patterns import nearest  # needed by an error alone

    public = (each for each in names if not each.startswith("_") and each != name)
    return " or ".join(nearest(name, public)[:_MOST])


class Hinted:
    """An object that hints at what was meant by an unknown attribute, or keyword of a method."""

    __slots__ = ()
    _instead: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        """Let methods name the nearest argument."""
        super().__init_subclass__(**options)
        _hint_methods(cls)

    if not TYPE_CHECKING:  # types know the attributes that there are

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError, with a hint."""
            raise no_attribute(self, name, self._instead)


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
    function: Callable[..., Any] = thing

    @wraps(function)
    def checked(*args: Any, **keywords: Any) -> Any:
        if keywords and (names := _keywords(function)) and not names >= keywords.keys():
            for name in keywords:
                if name not in names and name not in also:
                    raise _unknown_keyword(function, name, names)
        return function(*args, **keywords)

    vars(checked)["_hinted"] = True
    return checked  # pyright: ignore[reportReturnType] of the same signature


def _hint_methods(kind: type) -> None:
    for name, member in list(vars(kind).items()):
        if isinstance(member, FunctionType) and (name == "__init__" or name[0] != "_"):
            setattr(kind, name, hinted(member))


@cache
def _keywords(function: Callable[..., Any]) -> frozenset[str]:
    """Return the names of all arguments; none if it passes unknown ones on."""
    parameters = inspect.signature(function).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return frozenset()
    return frozenset(parameters)


def _unknown_keyword(
    function: Callable[..., Any], name: str, names: Collection[str]
) -> KeywordError:
    where = f"{function.__qualname__.removesuffix('.__init__')}()"
    if name in ARGUMENTS:
        what = f"{name} was removed in 0.1.0"
        return KeywordError(what, where=where, remedy=ARGUMENTS[name])
    meant = next((each for each in _MEANT.get(name, "").split() if each in names), None)
    remedy = None if meant else _REMEDIES.get(name)
    expected = meant or _near(name, sorted(names)) or ", ".join(sorted({*names} - {"self"}))
    return KeywordError(
        "unknown keyword",
        where=where,
        found=name,
        expected=None if remedy else expected,
        remedy=remedy,
    )


def give_hints(module_name: str, instead: Mapping[str, str] | None = None) -> None:
    """Let the public names of a module hint at what was meant, and the module at its names."""
    module = sys.modules[module_name]
    for name in getattr(module, "__all__", ()):
        public = vars(module)[name]
        vars(module)[name] = found = hinted(public)
        home = sys.modules.get(getattr(public, "__module__", ""), module)
        if vars(home).get(name) is public:
            vars(home)[name] = found  # one object, wherever it is imported from

    def refuse(name: str) -> Any:
        raise no_attribute(module, name, instead)

    vars(module)["__getattr__"] = refuse
