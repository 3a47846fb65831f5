"""docs/from_tensorflow.md has every name and argument of the documents, and is true."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import tensorflow_signatures as documents

import amp_rewrite as amp
from amp_rewrite import optimizers as opt

PAGE = (Path(__file__).parents[2] / "docs" / "from_tensorflow.md").read_text("utf-8")
WORKS, DIFFERS, NOT_HERE = "works", "differs", "not here"

OURS: dict[str, Any] = {
    documents.ENABLE: amp,
    documents.SCALER: amp.LossScaleOptimizer,
    documents.V1_SCALER: amp.MixedPrecisionLossScaleOptimizer,
    documents.SCALES[0]: amp.LossScale,
    documents.SCALES[1]: amp.FixedLossScale,
    documents.SCALES[2]: amp.DynamicLossScale,
    documents.SHARDS: amp.CrossShardOptimizer,
    documents.V1: opt.GradientDescent,
    documents.KERAS: opt.GradientDescent,
    documents.LATER_SCALER: amp.LossScaleOptimizer,
    documents.V1_OPTIMIZERS: opt,
    documents.KERAS_OPTIMIZERS: opt,
    documents.KERAS_SCHEDULES: opt,
}


def table() -> dict[tuple[str, str, str], tuple[str, str]]:
    """Return (document, name, argument) -> (verdict, reason), as the page has them."""
    found: dict[tuple[str, str, str], tuple[str, str]] = {}
    document = ""
    for line in PAGE.splitlines():
        document = line.removeprefix("### ") if line.startswith("#") else document
        row = re.fullmatch(r"\| `([^`]+)` \| (?:`([^`]+)`)? ?\| ([a-z ]+?) \| (.*?) ?\|", line)
        if row and document in OURS:
            key = document, row[1], row[2] or ""
            assert key not in found, key
            found[key] = row[3], row[4]
    return found


TABLE = table()


def test_the_page_has_every_name_and_argument_of_the_documents_and_no_other() -> None:
    assert list(TABLE) == documents.entries()
    assert len(TABLE) > 200


def test_what_differs_or_is_not_here_says_why() -> None:
    without = [key for key, (verdict, why) in TABLE.items() if verdict != WORKS and not why]
    assert {verdict for verdict, _ in TABLE.values()} == {WORKS, DIFFERS, NOT_HERE}
    assert without == []


def taken(document: str, name: str) -> set[str]:
    """Return the arguments that a name takes here; "**" if it takes any keyword."""
    ours = OURS[document]
    is_class = isinstance(ours, type) and name in (document, ours.__name__)
    found = ours if is_class else getattr(ours, name)
    if not callable(found):
        return set()
    parameters = inspect.signature(found).parameters.values()
    return {"**" if p.kind is p.VAR_KEYWORD else p.name for p in parameters}


@pytest.mark.parametrize("document", documents.DOCUMENTS)
def test_the_verdicts_are_those_of_our_signatures(document: str) -> None:
    for (of, name, argument), (verdict, _) in TABLE.items():
        if of != document or not argument or argument.startswith("**"):
            continue
        arguments = taken(document, name)
        if verdict == NOT_HERE:
            assert argument not in arguments, (name, argument)
        elif verdict == WORKS:
            assert arguments & {argument, "**"}, (name, argument)


@pytest.mark.parametrize("document", [documents.V1_OPTIMIZERS, documents.KERAS_SCHEDULES])
def test_arguments_by_position_are_in_the_order_of_the_documents(document: str) -> None:
    for name, arguments in documents.DOCUMENTS[document].items():
        ours = list(inspect.signature(getattr(opt, name)).parameters)
        assert ours[: len(arguments.split())] == arguments.split(), name


def test_hyperparameters_of_keras_come_in_its_order() -> None:
    same = {"beta_1": "beta1", "beta_2": "beta2"}
    for name, arguments in documents.DOCUMENTS[documents.KERAS_OPTIMIZERS].items():
        theirs = arguments.split(" weight_decay ")[0].split()
        ours = list(inspect.signature(getattr(opt, name)).parameters)
        wanted = [same.get(a, a) for a in theirs if a != "amsgrad"]  # which is a keyword here
        assert ours[: len(wanted)] == wanted, name


def second_names() -> list[tuple[str, str]]:
    """Return the aliases of the page and what each denotes."""
    section = PAGE.partition("## Second names")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \| `(\w+(?:\.\w+)?)` \|$", section, re.MULTILINE)
    return [(alias, name) for cell, name in rows for alias in re.findall(r"`([\w.]+)`", cell)]


def test_second_names_denote_what_the_page_says() -> None:
    pairs = [pair for pair in second_names() if pair[0] != "SGD"]
    assert len(pairs) == 7
    for alias, name in pairs:
        ours = [amp if "." not in each else opt for each in (alias, name)]
        found = [getattr(m, e.rpartition(".")[2]) for m, e in zip(ours, (alias, name), strict=True)]
        assert found[0] is found[1]
    assert isinstance(opt.SGD(), opt.GradientDescent)
    assert isinstance(opt.SGD(momentum=0.5), opt.Momentum)


def refused_of_keras() -> list[str]:
    """Return the calls of the table of what Keras 3 takes and this package refuses."""
    section = PAGE.split("### What Keras 3's optimizers take and these refuse")[1].split("###")[0]
    rows = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    return [call for row in rows for call in re.findall(r"`([^`]+)`", row)]


@pytest.mark.parametrize("call", refused_of_keras())
def test_what_keras_takes_and_the_page_says_is_refused_is_refused(call: str) -> None:
    assert len(refused_of_keras()) >= 18
    names = {name: getattr(opt, name) for name in opt.__all__}
    with pytest.raises((amp.AmpError, AttributeError, TypeError)):
        eval(call, names)


def replacements_of_keras() -> list[str]:
    """Return what that table says to write, as far as it is a whole call."""
    section = PAGE.split("### What Keras 3's optimizers take and these refuse")[1].split("###")[0]
    rows = [line.split(" | ")[-1] for line in section.splitlines() if line.startswith("| `")]
    calls = [call for row in rows for call in re.findall(r"`([A-Z][^`]+\))`", row)]
    return [call for call in calls if "..." not in call]


@pytest.mark.parametrize("call", replacements_of_keras())
def test_what_the_page_says_to_write_instead_works(call: str) -> None:
    names = {name: getattr(opt, name) for name in opt.__all__}
    scaling = {name: getattr(amp, name) for name in ("LossScaleOptimizer", "FixedLossScale")}
    assert isinstance(eval(call, {**names, **scaling}), opt.Optimizer)
