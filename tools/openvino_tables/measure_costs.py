#!/usr/bin/env python3
"""Write the table of costs of OpenVINO by measuring: lists/costs/openvino_<version>.json.

Usage: measure_costs.py [--output DIR] [--threads N] [--sessions N] [--only FAMILY|pairs ...]

Models of one operator, and of two where it is asked what they cost together, run with the profile
of the engine, in float32 and in bfloat16 by turns. A time is the least of many runs in several
sessions, less what running an empty model takes.
Of every family's times c + e x elements + m x multiply-accumulates is fitted with relative errors
and no negative number. What a join saves is what two operators apart take less what they take
together. What parting two operators costs is what they take with a cast between them, one way and
the other, less what they take in one type and in the other: their own times, and what the ends of a
model take, cancel. The casts between them cost what of that is not lost by a join. Takes five
minutes on two quiet cores; --only measures some families, or the pairs, and takes the rest from the
table that is there. Needs the extra openvino and a processor with bfloat16.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx
from cost_calls import CALLS, FAMILIES, ONE_TYPE, SPLITS, WITH_PRODUCTS, Call, model_of
from cost_pairs import pairs
from cost_timing import TYPES, fitted, microseconds

from amp_rewrite.dtypes import BFLOAT16
from amp_rewrite.runtimes.openvino.package import computes_in, import_runtime, runtime_version

DEFAULT_OUTPUT = Path(__file__).resolve().parents[2] / "lists" / "costs"


def rates(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the rows of costs."""
    for family, calls in CALLS.items():
        if options.only and family not in options.only:
            continue
        models = [model_of(call, dtype) for call in calls for dtype in TYPES]
        if family == "convolution":  # in a row, for at the ends of a model layouts change
            pairs = [_in_rows(model, options) for model in models]
            took = [max(0.0, longer - one) / 2 for one, longer in pairs]
        else:
            took = microseconds(models, options, layouts=family == "recurrent")
        for offset, dtype in enumerate(TYPES):
            times = took[offset :: len(TYPES)]
            for least, part in _parts(calls, SPLITS.get(family, ())):
                chosen = [index for index in part if times[index] > 0]  # else it was all layouts
                sizes = [(calls[i].elements, calls[i].macs) for i in chosen]
                row = fitted(sizes, [times[i] for i in chosen])
                yield {"family": family, "type": dtype.name, "from": least, **row}
        print(family, [f"{a:.0f}/{b:.0f}" for a, b in zip(took[::2], took[1::2], strict=True)])


def _in_rows(model: onnx.ModelProto, options: argparse.Namespace) -> list[float]:
    """Return what a model of one node takes, and what three such nodes in a row take."""
    row = onnx.ModelProto()
    row.CopyFrom(model)
    for index in range(2):
        node = row.graph.node.add()
        node.CopyFrom(model.graph.node[0])
        row.graph.node[index].output[0] = node.input[0] = f"h{index}"
    return microseconds([model, row], options)


def _parts(calls: Sequence[Call], splits: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """Yield the least size of a row, and which calls it is fitted to."""
    sizes = [call.macs or call.elements for call in calls]
    for least, end in zip((0, *splits), (*splits, float("inf")), strict=True):
        yield least, [i for i, size in enumerate(sizes) if least <= size < end]


def device(threads: int) -> str:
    """Return the processor in words."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text("utf-8").splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()}, {threads} threads"


def to_text(table: dict[str, Any]) -> str:
    """Return a table as JSON, a row a line."""
    lines = [f" {json.dumps(key)}: {json.dumps(table[key])}," for key in (*table,)[:-4]]
    for key in (*table,)[-4:]:
        content = table[key]
        named = isinstance(content, dict)
        rows = (
            [f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in content.items()]
            if named
            else [f"  {json.dumps(row)}" for row in content]
        )
        ends = "{}" if named else "[]"
        lines.append(f" {json.dumps(key)}: {ends[0]}\n" + ",\n".join(rows) + f"\n {ends[1]},")
    return "{\n" + "\n".join(lines).rstrip(",") + "\n}\n"


def completed(
    table: dict[str, Any], before: dict[str, Any], measured: Sequence[str]
) -> dict[str, Any]:
    """Return a table with what was not measured from the one before."""
    kept = [row for row in before["costs"] if row["family"] not in measured]
    order = [*FAMILIES]
    costs = sorted([*kept, *table["costs"]], key=lambda row: order.index(row["family"]))
    told = table if "pairs" in measured else before
    return {**table, "costs": costs, "casts": told["casts"], "joins": told["joins"]}


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description="Write the table of costs of OpenVINO.")
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sessions", type=int, default=4, help="how often each model is loaded")
    parser.add_argument("--only", nargs="+", default=[], choices=(*FAMILIES, "pairs"))
    options = parser.parse_args()
    if not computes_in(BFLOAT16.name):
        sys.exit("the processor has no instructions for bfloat16")
    version = runtime_version(import_runtime())
    path = options.output / f"openvino_{version.rpartition('.')[0]}.json"
    measured = pairs(options) if not options.only or "pairs" in options.only else None
    table = {
        "version": 1,
        "runtime": f"openvino {version}",
        "device": device(options.threads),
        "source": "tools/openvino_tables/measure_costs.py",
        "with_products": WITH_PRODUCTS,
        "one_type": ONE_TYPE,
        "families": FAMILIES,
        "costs": [*rates(options)],
        "casts": measured.casts if measured else [],
        "joins": measured.joins if measured else [],
    }
    if options.only:
        table = completed(table, json.loads(path.read_text("utf-8")), options.only)
    options.output.mkdir(exist_ok=True)
    path.write_text(to_text(table), "utf-8")
    print(path)


if __name__ == "__main__":
    main()
