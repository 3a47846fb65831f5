"""Whatever a public function is given in place of an argument, it works or raises an AmpError.

The tables have a call that works for each function; its parameters come from the signature. Each of
them is replaced by each of the things below, one at a time. Python's own TypeErrors,
AttributeErrors, KeyErrors and the like never come out, and an error is one line.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import model_calls
import numpy as np
import public_names
import pytest
import training_calls
from thinned import every

from amp_rewrite import optimizers as opt
from amp_rewrite.errors import AmpError

TABLE = {**training_calls.TABLE, **model_calls.TABLE}
Call = tuple[Callable[..., Any], dict[str, Any]]

JUNK: dict[str, Any] = {
    "None": None,
    "a number": 3,
    "a negative number": -1,
    "a number above any float": 10**400,
    "NaN": float("nan"),
    "a word": "junk",
    "no word": "",
    "what UTF-8 cannot encode": "\ud800",
    "bytes": b"x",
    "an object": object(),
    "an empty list": [],
    "a list of objects": [object()],
    "lists of two lengths": [[1], [2, 3]],
    "an empty mapping": {},
    "a mapping to an object": {"a": object()},
    "an array": np.zeros((2, 2)),
    "an array of objects": np.array([object()]),
    "a class": list,
    "a function": lambda *_: 3,
    "a truth value": True,
    "a complex number": 1j,
    "a set": {1, 2},
}

PARTS = 11
"""Of what is no argument, the fast suite tries one part on each parameter, another on the next."""

_KEYWORDS = ("clipnorm",)

OTHERS_FAULT = {
    *(("progress", "a class"), ("variables", "a class"), ("nodes", "a class")),
    ("data", "a function"),
    ("estimate", "a class"),
}
"""Functions of the user's that take other arguments: their own error comes out."""


def parameters(make: Callable[[], Call]) -> list[str]:
    """Return the parameters of a call by their names; with any keyword, one that is known."""
    function, known = make()
    given = inspect.signature(function).parameters.values()
    named = [
        p.name
        for p in given
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        and not (p.name in model_calls.OPTIONS and p.name not in known)  # rewrite tries them all
    ]
    clips = inspect.isclass(function) and issubclass(function, opt.Optimizer)
    any_keyword = any(p.kind is p.VAR_KEYWORD for p in given) and clips
    return list(dict.fromkeys([*named, *known, *(_KEYWORDS if any_keyword else [])]))


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write into a folder of the test's own."""
    monkeypatch.chdir(tmp_path)


def complaint(function: Callable[..., Any], arguments: dict[str, Any]) -> str | None:
    """Return what is wrong with what comes out of a call, or None."""
    try:
        function(**arguments)
    except AmpError as error:
        return None if error.what and "\n" not in str(error) else f"not one line: {error}"
    except Exception as error:  # noqa: BLE001 what else comes out is the question
        return f"{type(error).__name__}: {error}"
    return None


@pytest.mark.filterwarnings("ignore::amp_rewrite.errors.AmpWarning")
@pytest.mark.parametrize("step", every([PARTS, 1], 2), ids=["some", "all"])
@pytest.mark.parametrize("name", TABLE)
def test_what_is_no_argument_is_an_amp_error_in_one_line(name: str, step: int) -> None:
    found: dict[str, str] = {}
    for number, parameter in enumerate(parameters(TABLE[name]), len(name)):
        function, known = TABLE[name]()
        for kind, junk in list(JUNK.items())[number % step :: step]:
            if (parameter, kind) in OTHERS_FAULT:
                continue
            text = complaint(function, {**known, parameter: junk})
            found |= {f"{parameter}={kind}": text} if text else {}
    assert found == {}


INSIDE_A_LAMBDA = {
    "rewriting.report.rewrite_report:Report.lines",
    "training.graph.value_arithmetic:Arithmetic.reshape",
    "training.optimizers.train_op:group",
    "training.optimizers.parameter_groups:ParameterGroup",
}
"""What takes any number of arguments, is looked at when its result is used, or is closed."""


def test_every_public_function_and_method_is_in_the_tables() -> None:
    called = {public_names.qualified(make()[0]) for make in TABLE.values()}
    wanted = {name for name in public_names.callables() if public_names.is_called_by_users(name)}
    assert wanted - called == INSIDE_A_LAMBDA


def test_what_users_do_not_call_is_public() -> None:
    assert public_names.unused_patterns() == []
