"""The numbers of the corpus in mixed precision, emulated on a CPU: a table in Markdown.

    python benchmarks/bench_numerics.py                the corpus in AMP_CORPUS or .cache/corpus
    python benchmarks/bench_numerics.py silero_v6 magika  some of its models
    python benchmarks/bench_numerics.py --precision bfloat16 --json numerics.json

Every model is rewritten with the built-in lists and evaluated on the corpus inputs (several seeds)
against float32. Where that is not enough (an output not finite where float32 is, a cosine below
0.999, or another top-1 class) it is calibrated on the same data and rewritten again.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from exported import loss

import amp_rewrite as amp
from amp_rewrite.dtypes import FLOAT16, Precision
from amp_rewrite.graph.io.load import Source
from amp_rewrite.numerics.budget.tolerance import Tolerance
from amp_rewrite.numerics.emulate import Evaluator
from amp_rewrite.numerics.ranges.calibrate import calibrate

ROOT = Path(__file__).resolve().parent.parent
SEEDS = 3
COSINE = Tolerance.default("cosine", 0.0)

Feeds = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        model: The model's name.
        needed: "default lists" or "calibrate"; "nothing low" if no operator is worth it.
        nodes: Nodes converted.
        float_nodes: Nodes with a float32 type variable.
        compute: The low share of the multiply-accumulates.
        casts: Casts added.
        cosine: The lowest cosine of an output over all inputs.
        max_relative: The largest |low - float32| over the largest |float32| of an output.
        top1: The share of rows of class scores with the same largest element, or None.
        denied: Nodes that calibrate kept float32.
        holds: Whether the requirements are met in the end.
    """

    model: str
    needed: str
    nodes: int
    float_nodes: int
    compute: float
    casts: int
    cosine: float
    max_relative: float
    top1: float | None
    denied: int
    holds: bool


def numerics_table(
    folder: Path,
    names: Sequence[str] = (),
    *,
    precision: Precision = "float16",
    seeds: int = SEEDS,
    progress: Callable[[str], None] | None = None,
) -> list[Row]:
    """Return one row per model of a corpus folder, in the order of corpus.json."""
    entries = json.loads((folder / "corpus.json").read_text("utf-8"))
    rows: list[Row] = []
    for entry in entries:
        path = folder / "models" / f"{entry['name']}.onnx"
        if not path.exists() or (names and entry["name"] not in names):
            continue
        if progress is not None:
            progress(entry["name"])
        rows.append(_row(entry, path, precision, seeds))
    return rows


def to_markdown(rows: Iterable[Row]) -> str:
    """Return the table for the README."""
    lines = [
        "| model | nodes converted | compute | casts | cosine | worst error | top-1 | needed |",
        "|---|---|---|---|---|---|---|---|",
        *(_line(row) for row in rows),
    ]
    return "\n".join(lines)


def _line(row: Row) -> str:
    needed = row.needed if row.needed != "calibrate" else f"calibrate ({row.denied} nodes)"
    cells = (
        row.model,
        f"{row.nodes} of {row.float_nodes}",
        f"{row.compute:.0%}",
        str(row.casts),
        f"{row.cosine:.6f}",
        f"{row.max_relative:.1e}",
        "" if row.top1 is None else f"{row.top1:.0%}",
        needed if row.holds else f"{needed}: does not hold",
    )
    return f"| {' | '.join(cells)} |"


def _row(entry: Mapping[str, Any], path: Path, precision: Precision, seeds: int) -> Row:
    data = _data(entry, path, seeds)
    references = list(_outputs(str(path), data))
    result = amp.rewrite(str(path), precision=precision)
    denied = 0
    needed = "default lists" if result.changed else "nothing low"
    losses = _losses(references, _outputs(result.model, data))
    if not _holds(losses):
        found = calibrate(str(path), data, precision=precision)
        denied, needed = len(found.nodes), "calibrate"
        lists = _overlaid(found.to_yaml(), path.stem)
        result = amp.rewrite(str(path), precision=precision, lists=lists)
        losses = _losses(references, _outputs(result.model, data))
    summary = result.report.summary
    return Row(
        model=entry["name"],
        needed=needed,
        nodes=summary.nodes_converted,
        float_nodes=summary.float_nodes,
        compute=summary.compute_converted,
        casts=summary.casts_added,
        cosine=1 - losses["cosine"],
        max_relative=losses["max-relative"],
        top1=1 - losses["top1"] if _has_classes(references[0]) else None,
        denied=denied,
        holds=_holds(losses),
    )


def _overlaid(text: str, name: str) -> str:
    """Write an overlay into the cache, from where it is read as a user would."""
    path = ROOT / ".cache" / "numerics" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return str(path)


def _data(entry: Mapping[str, Any], path: Path, seeds: int) -> list[Feeds]:
    make_inputs = corpus_inputs().make_inputs
    model = onnx.load(path, load_external_data=False)
    return [make_inputs(model, entry.get("inputs", {}), seed) for seed in range(seeds)]


def corpus_inputs() -> Any:
    """Return the module tools/corpus/inputs.py."""
    spec = importlib.util.spec_from_file_location(
        "corpus_inputs", ROOT / "tools" / "corpus" / "inputs.py"
    )
    if spec is None or spec.loader is None:
        raise SystemExit("tools/corpus/inputs.py is missing")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _outputs(model: Source, data: Sequence[Feeds]) -> Iterator[dict[str, Any]]:
    """Yield the outputs for each feed; one model at a time is in memory."""
    evaluator = Evaluator(model)
    for feeds in data:
        yield evaluator.run(feeds)


def _losses(
    references: Sequence[Mapping[str, Any]], found: Iterable[Mapping[str, Any]]
) -> dict[str, float]:
    worst: dict[str, float] = {"cosine": 0.0, "max-relative": 0.0, "top1": 0.0}
    for reference, outputs in zip(references, found, strict=True):
        for metric in worst:
            measure = Tolerance(metric, 0.0)
            if metric == "top1":
                reference = {n: a for n, a in reference.items() if _is_scores(n, a)}
            worst[metric] = max(worst[metric], loss(measure, reference, outputs, FLOAT16))
    return worst


def _holds(losses: Mapping[str, float]) -> bool:
    return losses["cosine"] <= COSINE.limit and losses["top1"] == 0


def _has_classes(outputs: Mapping[str, Any]) -> bool:
    return any(_is_scores(name, array) for name, array in outputs.items())


def _is_scores(_: str, array: Any) -> bool:
    """Tell whether an output is class probabilities: rows of numbers from 0 to 1 that sum to 1."""
    if array.dtype.kind != "f" or array.ndim < 2 or not array.size:
        return False
    rows = array.reshape(array.shape[0], -1) if array.shape[-1] == 1 else array
    if rows.shape[-1] < 2 or not np.isfinite(rows).all() or (rows < 0).any():
        return False
    return bool(np.allclose(rows.sum(-1), 1, atol=1e-2))


def main() -> int:
    """Print the table; exit 1 if a model does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--precision", default="float16")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    corpus = Path(os.environ.get("AMP_CORPUS") or ROOT / ".cache" / "corpus")
    known = {path.stem for path in (corpus / "models").glob("*.onnx")}
    if unknown := [name for name in given.names if name not in known]:
        parser.error(f"no model of the corpus is called {unknown[0]!r}; there are {sorted(known)}")
    rows = numerics_table(
        corpus,
        given.names,
        precision=given.precision,
        seeds=given.seeds,
        progress=lambda name: print(name, file=sys.stderr, flush=True),
    )
    print(to_markdown(rows))
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(row) for row in rows], indent=1), "utf-8")
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
