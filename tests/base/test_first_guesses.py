"""What the tables of first guesses name is there."""

from __future__ import annotations

import inspect
import pickle
import re
from functools import reduce

import pytest

import amp_rewrite as amp
from amp_rewrite.base.first_guesses import ATTRIBUTES, KEYWORDS, REMEDIES
from amp_rewrite.base.hints import Hinted

DOTTED = re.compile(
    r"\b((?:amp_rewrite|TrainingSession|Trainer|LossScaleOptimizer|losses|optimizers|callbacks)\b"
    r"(?:\([a-z_, ='0-9]*\))?(?:\.\w+)*)"
)
"""A name of this package in a hint, with or without a call between."""


def test_every_name_in_a_hint_is_there() -> None:
    texts = " ".join((*ATTRIBUTES, *REMEDIES))
    found = [re.sub(r"\(.*?\)", "", name) for name in DOTTED.findall(texts)]
    assert len(found) > 15
    for name in found:
        path = name.removeprefix("amp_rewrite.").split(".")
        assert reduce(getattr, path, amp) is not None  # pyright: ignore[reportArgumentType]


def test_every_keyword_in_a_hint_is_an_argument_of_something_public() -> None:
    owners = [getattr(amp, name) for name in dir(amp) if not name.startswith("__")]
    for face in (amp.losses, amp.optimizers, amp.loss_scaling, amp.callbacks):
        owners += [getattr(face, name) for name in vars(face)["__all__"]]
    for kind in [each for each in owners if isinstance(each, type)]:
        owners += [member for member in vars(kind).values() if inspect.isfunction(member)]
    names: set[str] = set()
    for each in owners:
        if callable(each) and not (isinstance(each, type) and issubclass(each, Exception)):
            names |= inspect.signature(each).parameters.keys()
    assert {*KEYWORDS} <= names


def test_what_is_public_can_be_pickled() -> None:
    for name in vars(amp)["__all__"]:
        public = getattr(amp, name)
        if inspect.isfunction(public) or inspect.isclass(public):
            assert pickle.loads(pickle.dumps(public)) is public


def test_the_error_of_a_property_is_its_own() -> None:
    class Model(Hinted):
        @property
        def history(self) -> object:
            return [].missing  # pyright: ignore

    with pytest.raises(AttributeError, match="'list' object has no attribute 'missing'"):
        Model().history  # noqa: B018
    assert not hasattr(Model(), "__name__")  # which a class has
