"""Compare what the painting of two trees says of random models.

    PYTHONPATH=OLD python tools/compare_marks.py old.json           records the marks of a tree
    PYTHONPATH=NEW python tools/compare_marks.py new.json
    python tools/compare_marks.py old.json new.json                 lists what differs

Every keeping pass marks three paintings of each model: one in which all is low, one with holes,
half of them denied, and that one as if the model had come so ("given"). The model is painted and
its casts are planned besides ("whole"). The models are made of pieces that passes look for, put
together at random, so that few of them make sense; some nodes say that they are gradients. Of 2,600
models each pass marks something in 32 or more.
"""

from __future__ import annotations

import argparse
import json
import random
import string
import warnings
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

from amp_rewrite.graph.metadata_keys import PART_KEY, SOURCE_KEY
from amp_rewrite.graph.step_part import Part
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.painting import Color, Mark, Painting, Reason
from amp_rewrite.rewriting.paint.pass_table import PASSES
from amp_rewrite.rewriting.plan.casts import plan_casts
from amp_rewrite.rewriting.plan.options import RewriteOptions
from amp_rewrite.rewriting.plan.paint_context import lists_of, paint_context, painted
from amp_rewrite.rewriting.read_source import read_source

KEEPING = {p.name: p for p in PASSES if p.name.startswith("keep-") and p.name != "keep-parts"}
TARGETS: tuple[tuple[Any, Any], ...] = (
    *(("float16", "schema"), ("bfloat16", "schema"), ("float16", "webgpu")),
    *(("bfloat16", "openvino"), ("float16", "tensorrt"), ("bfloat16", "cpu")),
    *(("float16", "cuda"), ("bfloat16", "tensorrt"), ("bfloat16", "cuda"), ("float16", "tensorrt")),
)
_WORDS, _PIECES = Path(__file__).with_suffix(".txt").read_text("utf-8").split("\n\n")
CHOICES = {k: v.split() for k, v in (line.split(": ") for line in _WORDS.splitlines())}
"""Placeholder -> the words of which one takes its place; $a and $b are values, $o is the result."""

PIECES = _PIECES.replace("\n ", " ").splitlines()
STEP = "${o}p = $mul($i, $v) $o = $lin(${o}p, $b) "
CURVE = '<domain: "local", opset_import: ["" : 18]> curve (x) => (y) { t = Abs(x) y = Exp(t) }'


def constants() -> dict[str, Any]:
    """Return the constants that pieces name."""
    rng = np.random.default_rng(0)
    scalars = "two 2 one 1 half 0.5 tiny 1e-12 eps 1e-5 huge -1e9 low -3.4e38 minus -1 big 1e3"
    scalars += " root 1.4142135"
    words = iter(f"{scalars} k6 3e-6 zero 0 six 6".split())
    floats: dict[str, Any] = {
        name: float(number) for name, number in zip(words, words, strict=True)
    }
    w = rng.standard_normal((4, 4))
    floats |= {"w": w, "wt": w.T, "pos": np.abs(w), "ones": np.ones((4, 4)), "eye": np.eye(4)}
    floats |= {
        "squares": np.tile((w**2).sum(0), (4, 1)),
        "ramp": 50.0 * np.arange(16).reshape(4, 4),
    }
    floats |= {"causal": np.triu(np.full((4, 4), -1e9), 1), "row": np.ones(4), "rows": w[:2]}
    floats |= {"little": np.full(4, 1e-8), "rw": np.ones((1, 4, 4)) / 2}
    floats |= {"year": 2024, "even": np.full((4, 4), 0.25), "kernel": np.ones((1, 1, 3, 3))}
    floats["gw"] = np.ones((1, 12, 4)) / 2
    floats |= {"broad": rng.standard_normal((4, 5000)), "tall": rng.standard_normal((5000, 4))}
    others: dict[str, Any] = {"last": [-1], "ax": [0], "z0": [0], "z4": [4], "trip": 20}
    others |= {"one1": [1, 1], "grid4": [1, 4, 4, 2], "image4": [1, 1, 4, 4]}
    others |= {"spots": [[0], [1]], "wide9": [9, 4], "shape44": [4, 4], "free4": [1, 1, -1, 4]}
    arrays = {name: np.asarray(number, np.float32) for name, number in floats.items()}
    arrays |= {name: np.asarray(number, np.int64) for name, number in others.items()}
    return arrays | {"byte": np.asarray(128, np.uint8)}


def model_of(seed: int) -> onnx.ModelProto:
    """Return a random model."""
    dice, held = random.Random(seed), constants()
    values, body = ["x", "z", "m"], ""
    for number in range(dice.randint(3, 9)):
        piece = dice.choice([*PIECES, STEP])
        words = {name: dice.choice(some) for name, some in CHOICES.items()}
        words |= {name: dice.choice([*values, values[-1], values[-1]]) for name in "ab"}
        words |= {"x": dice.choice([words["b"], words["k"], words["w"]]), "o": f"v{number}"}
        words["x4"] = dice.choice([words["b"], words["w"]])
        if piece == STEP:  # a recurrence that was unrolled
            words["mul"], words["v"] = dice.choice([("MatMul", words["w"]), ("Mul", "row")])
            places = [words["a"], *(f"v{number}s{i}" for i in range(12)), words["o"]]
            steps = [{"i": one, "o": other} for one, other in pairwise(places)]
            piece = "".join(string.Template(piece).substitute(words | step) for step in steps)
        body += string.Template(piece).substitute(words) + "\n"
        values.append(words["o"])
    state, more = "", ""
    if dice.random() < 0.2:  # a state that goes out of a call and into the next
        state = f"x_out = {dice.choice(CHOICES['lin'])}({dice.choice(values)}, x)\n"
        more = ", float[4,4] x_out"
    text = f"""<ir_version: 9, opset_import: ["" : 18, "local" : 1]> g (float[4,4] x, float[4,4] z,
        float[4,4] m, float[N,4] n, bool cond, bool[4,4] cond4) => (float[4,4] {values[-1]}{more})
        {{ {body}{state} }} {CURVE}"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in held.items())
    for number, node in enumerate(model.graph.node):
        if number and dice.random() < 0.1:
            source = dice.choice(model.graph.node[:number])
            source.name = source.output[0]
            node.metadata_props.add(key=PART_KEY, value=Part.GRADIENT)
            node.metadata_props.add(key=SOURCE_KEY, value=source.output[0])
    return model


def marks_of(seed: int) -> dict[str, Any]:
    """Return what each pass marks in a random model, by the name of the pass."""
    precision, target = TARGETS[seed % len(TARGETS)]
    options = RewriteOptions(precision=precision, target=target)
    flat = read_source(model_of(seed), inline_functions=seed % 2 == 0)
    context = paint_context(flat, lists_of(options), options)
    dice, size = random.Random(seed), len(context.type_graph)
    found: dict[str, Any] = {}
    allow, deny = Mark(Color.ALLOW, Reason.ALLOW_LIST), Mark(Color.DENY, Reason.DENY_LIST)
    dealt = dice.choices([allow, None, deny], [14, 3, 3], k=size)
    holes = {v: mark for v, mark in enumerate(dealt) if mark is not None}
    for part in ("all", "holes", "given"):
        colors = dict.fromkeys(range(size), allow) if part == "all" else holes
        painting = Painting.blank(context.type_graph).with_marks(colors)
        asked = replace(context, given=painting.allow) if part == "given" else context
        for name, step in KEEPING.items():
            marks = step.run(asked, painting).changes(painting)
            if marks:
                found[f"{name} {part}"] = spelled(context, marks)
    result = painted(context)
    plan = plan_casts(result.context, result.painting)
    marks = spelled(context, result.painting.marks)
    weights = [(weight.name, weight.value, weight.saturate) for weight in plan.weights]
    return found | {"whole": [marks, repr((plan.casts, weights, plan.fills))]}


def spelled(context: PaintContext, marks: Any) -> list[Any]:
    """Return marks in words."""
    name = context.type_graph.name
    return [
        [name(v), m.reason, None if m.because is None else name(m.because), m.detail, m.constant]
        for v, m in sorted(marks.items())
    ]


def compare(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Print which marks differ, and in what."""
    kinds: dict[str, list[str]] = {}
    for seed in old:
        for name in sorted({*old[seed], *new[seed]}):
            one, other = old[seed].get(name, []), new[seed].get(name, [])
            if one != other:
                same = name != "whole" and {m[0] for m in one} == {m[0] for m in other}
                kinds.setdefault(f"{name}: {'words' if same else 'what'}", []).append(seed)
    for kind, seeds in sorted(kinds.items()):
        print(f"{kind} differ in {len(seeds)} models, such as {', '.join(seeds[:5])}")
    print(f"{len(old)} models compared")


def main() -> None:
    """Record the marks of a tree, or compare those of two."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--models", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    if len(options.files) > 1:
        compare(*(json.loads(path.read_text()) for path in options.files))
        return
    warnings.simplefilter("ignore")
    seeds = range(options.first, options.first + options.models)
    found = {str(seed): marks_of(seed) for seed in seeds}
    options.files[0].write_text(json.dumps(found))
    print(Counter(name for marks in found.values() for name in {k.split()[0] for k in marks}))


if __name__ == "__main__":
    main()
