"""The recipes run, learn, and lose what PyTorch loses."""

from __future__ import annotations

import itertools
import re
import runpy
import sys
from pathlib import Path

import pytest
from thinned import thinned

EXAMPLES = Path(__file__).parents[2] / "examples"
PRECISIONS = ("float32", "float16")
FAST = (("finetune_resnet", "float16"), ("finetune_bert", "float32"))
LIMITS = {"finetune_resnet": 0.5, "finetune_bert": 1.0}
"""Recipe -> how far losses may be from PyTorch's, in percent of these."""
ACCURACIES = {"finetune_resnet": 75, "finetune_bert": 75}
"""Recipe -> what it recognises at least, in percent."""
STEPS = {"finetune_resnet": "22", "finetune_bert": "24"}
"""Recipe -> steps after which it has learned something."""
_RUN = re.compile(
    r"amp-rewrite: loss ([\d.]+) to ([\d.]+), held out [\d.]+, accuracy ([\d.]+)%, "
    r"[\d.]+ ms of processor time a batch"
)
_APART = re.compile(r"apart by at most ([\d.]+)% of the loss of a step, ([\d.]+)% of that held out")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Return a function that runs a recipe in this process and returns what it printed."""

    def run(recipe: str, *words: str) -> str:
        monkeypatch.syspath_prepend(EXAMPLES)
        monkeypatch.setattr(sys, "argv", [recipe, *words])
        runpy.run_path(str(EXAMPLES / f"{recipe}.py"), run_name="__main__")
        return capsys.readouterr().out

    pytest.importorskip("sklearn")
    return run


@pytest.mark.parametrize(
    ("recipe", "precision"),
    thinned(itertools.product(LIMITS, PRECISIONS), lambda pair: pair not in FAST),
)
def test_a_recipe_lowers_the_loss_in_few_steps(run, recipe: str, precision: str) -> None:
    found = _RUN.search(run(recipe, "--precision", precision, "--steps", STEPS[recipe]))
    assert found is not None
    first, last = map(float, found.groups()[:2])
    assert last < 0.995 * first


@pytest.mark.slow
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("recipe", LIMITS)
def test_a_recipe_loses_what_pytorch_loses(run, recipe: str, precision: str) -> None:
    pytest.importorskip("torch")
    text = run(recipe, "--precision", precision)
    found, apart = _RUN.search(text), _APART.search(text)
    assert found is not None, text
    assert apart is not None, text
    assert float(found[3]) >= ACCURACIES[recipe]
    assert max(map(float, apart.groups())) <= LIMITS[recipe], text
