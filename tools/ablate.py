#!/usr/bin/env python3
"""Switch painting passes and rules of values off, one at a time; print which paintings change.

    python tools/ablate.py                    over the corpus and tests/conformance
    python tools/ablate.py PLACE ...          over models, folders of models, scripts, test folders
    python tools/ablate.py --rules PLACE ...  the rules of values too: operator by operator
    python tools/ablate.py --without UNIT SCRIPT     run a script, or tests, without a unit

A unit is a pass ("keep-masks"), a rule ("intervals:Softmax"), or any function of the package and
what it returns instead ("amp_rewrite.values.sum_lengths:count_terms=None"). Every painting that is
made in a place is made again without each pass that marked something in it, and without each rule
of an operator that it has. What changes no painting anywhere is listed last: it needs another
reason to stay. The corpus is in AMP_CORPUS or .cache/corpus.
"""

from __future__ import annotations

import argparse
import ast
import os
import runpy
import sys
from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import amp_rewrite as amp
from amp_rewrite.numerics.repaint import repaint
from amp_rewrite.rewriting import api
from amp_rewrite.rewriting.paint import pipeline
from amp_rewrite.rewriting.paint.pass_table import PASSES
from amp_rewrite.values.counts import count_rules
from amp_rewrite.values.intervals import interval, propagate
from amp_rewrite.values.magnitudes import estimates, outliers

ROOT = Path(__file__).resolve().parent.parent
CORPUS = Path(os.environ.get("AMP_CORPUS", ROOT / ".cache" / "corpus")) / "models"
FORMS = (("float16", "cuda"), ("float16", "webgpu"), ("bfloat16", "cuda"), ("bfloat16", "openvino"))

TABLES: dict[str, tuple[Any, str, Any]] = {
    "intervals": (propagate.RULES, "", lambda _: interval.ANY),
    "estimates": (estimates._RULES, "", lambda *_: None),
    "contributed estimates": (estimates._RULES, "com.microsoft", lambda *_: None),
    "outliers": (outliers._RULES, "", lambda *_: None),
    "contributed outliers": (outliers._RULES, "com.microsoft", lambda *_: None),
    "counts": (vars(count_rules), "_BY_NAME", lambda *_: None),
}
"""Domain of values -> where its rules stand by operator, and the rule that knows nothing."""

NAMES = [step.name for step in PASSES]


@contextmanager
def without(unit: str) -> Generator[None]:
    """Let a unit do nothing."""
    patch = pytest.MonkeyPatch()
    if unit in NAMES:
        patch.setattr(type(PASSES[NAMES.index(unit)]), "run", lambda _, context, painting: painting)
    elif unit.partition(":")[0] in TABLES:
        domain, _, operator = unit.partition(":")
        place, key, nothing = TABLES[domain]
        patch.setitem(place, key, {**place[key], operator: nothing} if operator else {})
    else:
        place, _, value = unit.partition("=")
        module, _, name = place.partition(":")
        function, result = getattr(sys.modules[module], name), ast.literal_eval(value)
        for other in [m for n, m in sys.modules.items() if n.startswith("amp_rewrite")]:
            if vars(other).get(name) is function:
                patch.setattr(other, name, lambda *_, **__: result)
    try:
        yield
    finally:
        patch.undo()


class Ablation:
    """What each unit changes: unit -> where."""

    def __init__(self, *, rules: bool) -> None:
        """Begin with nothing."""
        self.rules, self.place, self.paintings = rules, "", 0
        self.changed: dict[str, set[str]] = defaultdict(set)
        self._paint: Callable[..., Any] = pipeline.paint

    def paint(self, context: Any, like: Any = None) -> Any:
        """Paint a model as it is, and again without each unit that has a say in it."""
        start = replace(context, values=replace(context.values))
        used, patch = set[str](), pytest.MonkeyPatch()
        for step in PASSES:
            patch.setattr(type(step), "run", _noting(type(step).run, step.name, used))
        try:
            painted = self._paint(context, like)
        finally:
            patch.undo()
        self.paintings += 1
        where = os.environ.get("PYTEST_CURRENT_TEST", self.place).partition(" ")[0]
        names = {o.op_type for o in context.type_graph.flat.operators}
        units = [*used, *(TABLES if self.rules else ())]
        for unit in units:  # which grows: a table that matters is tried rule by rule
            with without(unit):
                again = self._paint(replace(start, values=replace(start.values)))
            if np.array_equal(again.painting.allow, painted.painting.allow):
                continue
            self.changed[unit].add(where)
            place, key, _ = TABLES.get(unit, ({"": ()}, "", None))
            units += [f"{unit}:{name}" for name in place[key] if name in names]
        return painted

    def run(self, place: str) -> None:
        """Make the paintings of a place."""
        path = self.place = place
        if Path(path).is_dir() and any(Path(path).glob("*.onnx")):
            for model in sorted(Path(path).glob("*.onnx")):
                self.run(str(model))
        elif path.endswith(".onnx"):
            self.place = Path(path).name
            for precision, target in FORMS:
                amp.rewrite(path, precision=precision, target=target)  # pyright: ignore[reportArgumentType] names
        elif Path(path).name.startswith("test") or Path(path).is_dir():
            pytest.main(["-q", "-m", "not slow", "-p", "no:cacheprovider", path])
        else:
            try:
                runpy.run_path(path, run_name="__main__")
            except (Exception, SystemExit) as error:  # noqa: BLE001 a script ends as it likes
                print(f"{path} ended with {error!r}")


def _noting(run: Callable[..., Any], name: str, used: set[str]) -> Callable[..., Any]:
    def noted(self: Any, context: Any, painting: Any) -> Any:
        after = run(self, context, painting)
        if after.changes(painting):
            used.add(name)
        return after

    return noted


def main() -> None:
    """Print what each unit changes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("places", nargs="*", default=[str(CORPUS), str(ROOT / "tests/conformance")])
    parser.add_argument("--rules", action="store_true")
    parser.add_argument("--without", metavar="UNIT")
    options = parser.parse_args()
    ablation = Ablation(rules=options.rules)
    if options.without:
        with without(options.without):
            for place in options.places:
                ablation.run(place)
        return
    for module in (api, repaint):
        vars(module)["paint"] = ablation.paint
    for place in options.places:
        ablation.run(place)
    print(f"\n{ablation.paintings} paintings")
    for unit, where in sorted(ablation.changed.items(), key=lambda item: -len(item[1])):
        print(f"{unit}: {len(where)}: {', '.join(sorted(where)[:3])}")
    tables = TABLES.items() if options.rules else ()
    units = NAMES + [f"{domain}:{name}" for domain, (at, key, _) in tables for name in at[key]]
    print("change nothing:", ", ".join(unit for unit in units if unit not in ablation.changed))


if __name__ == "__main__":
    main()
