"""Switch painting passes and rules of values off, one at a time; print which paintings change.

    python tools/ablate.py                    over the corpus and tests/conformance
    python tools/ablate.py PLACE ...          over models, folders of models, scripts, tests
    python tools/ablate.py --without UNIT PLACE     run a script, or tests, without a unit

A unit is a pass ("keep-masks"), a rule ("intervals:Softmax"), or any function of the package and
what it returns instead ("amp_rewrite.values.sum_lengths:count_terms=None"). Every painting that is
made in a place is made again without each pass that marked something in it, and without each rule
of values. What changes no painting is listed last: it needs another reason to stay.
"""

from __future__ import annotations

import argparse
import ast
import os
import runpy
import sys
from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import amp_rewrite as amp
from amp_rewrite.rewriting.paint import pipeline
from amp_rewrite.rewriting.paint.pass_table import PASSES
from amp_rewrite.rewriting.plan import paint_context
from amp_rewrite.values.counts import count_rules
from amp_rewrite.values.intervals import interval, propagate
from amp_rewrite.values.magnitudes import estimates, outliers

CORPUS = Path(os.environ.get("AMP_CORPUS", ".cache/corpus")) / "models"
PASS_OF = {step.name: step for step in PASSES}
TABLES: dict[str, tuple[Any, str, Any]] = {
    "intervals": (propagate.RULES, "", lambda _: interval.ANY),
    "estimates": (vars(estimates)["_RULES"], "", lambda *_: None),
    "contributed estimates": (vars(estimates)["_RULES"], "com.microsoft", lambda *_: None),
    "outliers": (vars(outliers)["_RULES"], "", lambda *_: None),
    "contributed outliers": (vars(outliers)["_RULES"], "com.microsoft", lambda *_: None),
    "counts": (vars(count_rules), "_BY_NAME", lambda *_: None),
}
"""Domain of values -> where its rules stand by operator, and the rule that knows nothing."""


@contextmanager
def without(unit: str) -> Generator[None]:
    """Let a unit do nothing."""
    patch = pytest.MonkeyPatch()
    domain, _, operator = unit.partition(":")
    if unit in PASS_OF:
        patch.setattr(PASS_OF[unit], "run", lambda *given: given[-1])
    elif domain in TABLES:
        place, key, nothing = TABLES[domain]
        patch.setitem(place, key, {**place[key], operator: nothing} if operator else {})
    else:
        name, _, value = operator.partition("=")
        function, result = getattr(sys.modules[domain], name), ast.literal_eval(value)
        for other in [m for n, m in sys.modules.items() if n.startswith("amp_rewrite")]:
            if vars(other).get(name) is function:
                patch.setattr(other, name, lambda *_, **__: result)
    try:
        yield
    finally:
        patch.undo()


class Ablation:
    """What each unit changes: unit -> where."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.place = ""
        self.changed: dict[str, set[str]] = defaultdict(set)
        self._paint: Callable[..., Any] = pipeline.paint

    def paint(self, context: Any) -> Any:
        """Paint a model as it is, and again without each unit that has a say in it."""
        start, used, patch = context, set[str](), pytest.MonkeyPatch()
        for name, step in PASS_OF.items():
            patch.setattr(step, "run", partial(_noting, step.run, name, used))
        painted = self._paint(replace(start, values=replace(context.values)))
        patch.undo()
        where = os.environ.get("PYTEST_CURRENT_TEST", self.place).partition(" ")[0]
        names = {o.op_type for o in context.type_graph.flat.operators}
        units = [*used, *TABLES]
        for unit in units:  # which grows: a table that matters is tried rule by rule
            with without(unit):
                again = self._paint(replace(start, values=replace(start.values)))
            if not np.array_equal(again.painting.allow, painted.painting.allow):
                self.changed[unit].add(where)
                place, key, _ = TABLES.get(unit, ({"": ()}, "", None))
                units += [f"{unit}:{name}" for name in place[key] if name in names]
        return painted

    def run(self, place: str) -> None:
        """Make the paintings of a place."""
        path, self.place = Path(place), Path(place).name
        models = [path] if path.suffix == ".onnx" else sorted(path.glob("*.onnx"))
        for model in models:
            self.place = model.name
            for target in ("cuda", "webgpu"):
                amp.rewrite(model, precision="float16", target=target)
            amp.rewrite(model, precision="bfloat16", target="cuda")
        if not models and (path.is_dir() or path.name.startswith("test")):
            pytest.main(["-q", "-m", "not slow", "-p", "no:cacheprovider", place])
        elif not models:
            with suppress(SystemExit):
                runpy.run_path(place, run_name="__main__")


def _noting(run: Any, name: str, used: set[str], *given: Any) -> Any:
    after = run(*given)
    used.update([name] if after.changes(given[-1]) else ())
    return after


def main() -> None:
    """Print what each unit changes."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("places", nargs="*", default=[str(CORPUS), "tests/conformance"])
    parser.add_argument("--without", metavar="UNIT")
    options = parser.parse_args()
    ablation = Ablation()
    if options.without:
        with without(options.without):
            for place in options.places:
                ablation.run(place)
        return
    paint_context.paint = ablation.paint
    for place in options.places:
        ablation.run(place)
    for unit, where in sorted(ablation.changed.items(), key=lambda item: -len(item[1])):
        print(f"{unit}: {len(where)}: {', '.join(sorted(where)[:3])}")
    rules = [f"{domain}:{name}" for domain, (at, key, _) in TABLES.items() for name in at[key]]
    print("change nothing:", ", ".join(u for u in [*PASS_OF, *rules] if u not in ablation.changed))


if __name__ == "__main__":
    main()
