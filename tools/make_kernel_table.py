#!/usr/bin/env python3
"""Write lists/kernels/<provider>_<version>.json: the kernels of an ONNX Runtime.

Usage: make_kernel_table.py [--rows ROWS.json --version VERSION] [--provider NAME] [--output DIR]

Without --rows the installed runtime is asked, in a process of its own: a runtime built for CUDA
dies when it is asked on a machine without the CUDA libraries, and takes its process with it. A
provider that is a package of its own has to be named. ROWS is what was asked elsewhere:
{"runtime": "...", "source": "...", "kernels": [{"provider", "domain", "op", "since", "until" (null:
no end), "types": {"T": ["tensor(float)"]}}]}.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from amp_rewrite.errors import AmpError, KernelTableError
from amp_rewrite.kernels import FORMAT_VERSION
from amp_rewrite.ort.plugins import is_plugin
from amp_rewrite.targets import WEBGPU

DEFAULT_OUTPUT = Path(__file__).resolve().parent.parent / "lists" / "kernels"

SOURCE = "onnxruntime.capi.onnxruntime_pybind11_state"

ASK = """
import json, sys
from amp_rewrite.ort.listing import kernel_rows, runtime_in_words
provider = sys.argv[1] or None
json.dump({"runtime": runtime_in_words(provider), "kernels": kernel_rows(provider)}, sys.stdout)
"""

AGREEING = {
    (WEBGPU, "BatchNormalization", 14): "U",
    (WEBGPU, "BatchNormalization", 15): "T1 T2",
    (WEBGPU, "LayerNormalization", 1): "V",
    (WEBGPU, "RMSNormalization", 23): "V",
    (WEBGPU, "SimplifiedLayerNormalization", 1): "V",
}
"""(provider, operator, since) -> the variables that must have T's type though the registration does
not say so: "raw_hash_map::at" is all that WebGPU says of float16 data with a float32 scale."""

Row = tuple[int, int | None, dict[str, tuple[str, ...]]]


def ask_runtime(python: str = sys.executable, provider: str | None = None) -> dict[str, Any]:
    """Return the kernels of the runtime that `python` has installed.

    Args:
        python: The interpreter.
        provider: A provider that is a package of its own; otherwise all that are built in.

    Raises:
        KernelTableError: There is no runtime, it cannot list its kernels, or it died trying.
    """
    # -P: run in a checkout, the folder amp_rewrite would stand before the installed package.
    command = [python, "-P", "-c", ASK, provider or ""]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        died = f"it was killed by signal {-done.returncode}" if done.returncode < 0 else lines[-1]
        raise KernelTableError(
            "the installed ONNX Runtime cannot list its kernels",
            found=died,
            expected="a runtime with get_all_opkernel_def() and the libraries of its providers",
            remedy="run this where its GPU libraries are, or pass --rows with the rows made there",
        )
    answer = json.loads(done.stdout)
    plugin = provider is not None and is_plugin(provider)
    asked = "get_registered_ep_kernel_defs" if plugin else "get_all_opkernel_def"
    version = answer["runtime"].split()[-1]
    return {"source": f"{SOURCE}.{asked}()", "version": version, **answer}


def read_rows(path: Path, version: str) -> dict[str, Any]:
    """Return rows that were asked of a runtime elsewhere.

    Raises:
        KernelTableError: The file cannot be read.
    """
    try:
        return {**json.loads(path.read_text("utf-8")), "version": version}
    except (OSError, ValueError) as error:
        raise KernelTableError("the rows cannot be read", where=path, found=str(error)) from error


def merge(rows: Iterable[Row]) -> list[Row]:
    """Return fewer rows with the same meaning.

    Two rows become one only if they differ in a single constraint; the union of two that differ in
    more would admit combinations of types that have no kernel.
    """
    merged = list(rows)
    while (smaller := _merge_once(merged)) is not None:
        merged = smaller
    return sorted(merged, key=lambda r: (r[0], r[1] or 0, sorted(r[2].items())))


def _merge_once(rows: list[Row]) -> list[Row] | None:
    for name in sorted({name for _, _, types in rows for name in types}):
        groups: dict[object, list[Row]] = {}
        for since, until, types in rows:
            rest = tuple(sorted((n, t) for n, t in types.items() if n != name))
            groups.setdefault((since, until, name in types, rest), []).append((since, until, types))
        if len(groups) < len(rows):
            return [_union(group, name) for group in groups.values()]
    return None


def _union(group: list[Row], name: str) -> Row:
    since, until, types = group[0]
    if name not in types:
        return since, until, types
    return since, until, {**types, name: tuple(sorted({t for r in group for t in r[2][name]}))}


ONLY = {(WEBGPU, "Resize", "T1"): {"T2": ["tensor(float)"]}}
"""(provider, operator, a variable of the row) -> the types of others that the registration leaves
open: WebGPU reads the region of interest as float32."""


def split_agreeing(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a row for each type of T where other variables must agree with it, else the row."""
    for variable in list(row["types"]):
        only = ONLY.get((row["provider"], row["op"], variable), {})
        row = {**row, "types": {**row["types"], **only}}
    others = AGREEING.get((row["provider"], row["op"], row["since"]), "").split()
    if not others:
        yield row
        return
    for type_ in row["types"]["T"]:
        yield {**row, "types": {name: [type_] for name in ("T", *others)}}


def tables(answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield one table for every provider in `answer`."""
    for provider in sorted({row["provider"] for row in answer["kernels"]}):
        grouped: dict[str, dict[str, list[Row]]] = {}
        for row in chain.from_iterable(map(split_agreeing, answer["kernels"])):
            if row["provider"] == provider:
                types = {name: tuple(sorted(t)) for name, t in row["types"].items()}
                ops = grouped.setdefault(row["domain"], {})
                ops.setdefault(row["op"], []).append((row["since"], row["until"], types))
        yield _table(answer, provider, grouped)


def _table(
    answer: dict[str, Any], provider: str, grouped: dict[str, dict[str, list[Row]]]
) -> dict[str, Any]:
    sets: dict[tuple[str, ...], int] = {}
    kernels = {
        domain: {
            op: [
                [since, until, {n: sets.setdefault(t, len(sets)) for n, t in types.items()}]
                for since, until, types in merge(grouped[domain][op])
            ]
            for op in sorted(grouped[domain])
        }
        for domain in sorted(grouped)
    }
    return {
        "version": FORMAT_VERSION,
        "runtime": answer["runtime"],
        "provider": provider,
        "source": answer["source"],
        "types": [list(t) for t in sets],
        "kernels": kernels,
    }


def to_text(table: dict[str, Any]) -> str:
    """Return a table as JSON with one operator a line, so that a change reads well in a diff."""
    head = {k: v for k, v in table.items() if k not in ("types", "kernels")}
    types = ",\n  ".join(json.dumps(t) for t in table["types"])
    domains = ",\n  ".join(
        f"{json.dumps(domain)}: {{\n   "
        + ",\n   ".join(f"{json.dumps(op)}: {json.dumps(rows)}" for op, rows in ops.items())
        + "}"
        for domain, ops in table["kernels"].items()
    )
    opening = json.dumps(head)[:-1]
    return f'{opening},\n "types": [\n  {types}],\n "kernels": {{\n  {domains}}}}}\n'


def main(arguments: list[str] | None = None) -> int:
    """Make the tables; return the exit status."""
    parser = argparse.ArgumentParser(description="Write the kernel tables of an ONNX Runtime.")
    parser.add_argument("--rows", type=Path, help="rows asked of a runtime elsewhere")
    parser.add_argument("--version", help="the version of the runtime that ROWS came from")
    parser.add_argument("--provider", help="only this execution provider")
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT)
    options = parser.parse_args(arguments)
    if options.rows and not options.version:
        parser.error("--rows needs --version")
    try:
        if options.rows:
            answer = read_rows(options.rows, options.version)
        else:
            answer = ask_runtime(provider=options.provider)
        for table in tables(answer):
            if options.provider in (None, table["provider"]):
                path = options.output / f"{table['provider']}_{answer['version']}.json"
                path.write_text(to_text(table), "utf-8")
                print(f"{sum(map(len, table['kernels'].values()))} operators -> {path}")
    except (AmpError, OSError) as error:
        print(f"make_kernel_table: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
