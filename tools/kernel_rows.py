"""From what a runtime says of its kernels to a table, the JSON that kernel_table.py describes.

Rows are what a runtime registers, one kernel each:

    {"provider": "...", "domain": "", "op": "MatMul", "since": 13, "until": null, "types":
     {"T": ["tensor(float)"]}}

`until` is null where the registration names no end.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from runtime_kernels import kernel_rows, runtime_in_words

from amp_rewrite.base.processor import is_arm
from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.errors import KernelTableError
from amp_rewrite.graph.elements import tensor
from amp_rewrite.kernels.kernel_table import FORMAT_VERSION
from amp_rewrite.runtimes.ort.providers import is_plugin
from amp_rewrite.targets import ARM64, CPU, DIRECTML, WEBGPU, target_hint

_SOURCE = "onnxruntime.capi.onnxruntime_pybind11_state"

_ASK = """
import json, sys
sys.path.append(sys.argv[3])
from amp_rewrite.errors import AmpError
from runtime_kernels import kernel_rows, runtime_in_words
provider, package = (text or None for text in sys.argv[1:3])
try:
    json.dump({"runtime": runtime_in_words(provider, package),
               "kernels": kernel_rows(provider, package)}, sys.stdout)
except AmpError as error:
    sys.exit(str(error))
"""

AGREEING = {
    (WEBGPU, "BatchNormalization", 14): "U",
    (WEBGPU, "BatchNormalization", 15): "T1 T2",
    (WEBGPU, "LayerNormalization", 1): "V",
    (WEBGPU, "RMSNormalization", 23): "V",
    (WEBGPU, "SimplifiedLayerNormalization", 1): "V",
    (DIRECTML, "BatchNormalization", 14): "U",
    (DIRECTML, "BatchNormalization", 15): "T1 T2",
}
"""(provider, operator, since) -> the variables that must have T's type though the registration does
not say so: "raw_hash_map::at" is all that WebGPU says of float16 data with a float32 scale, and
DML_BATCH_NORMALIZATION_OPERATOR_DESC takes tensors of one type."""

ONLY = {(WEBGPU, "Resize", "T1"): {"T2": ["tensor(float)"]}}
"""(provider, operator, a variable of the row) -> the types of others that the registration leaves
open: WebGPU reads the region of interest as float32."""

LAYOUTS = "com.ms.internal.nhwc"
"""The domain of what ONNX Runtime makes of an operator when it moves channels to the last axis."""

UNLOADABLE = {
    (ARM64, "", "MaxPool"): ((8, 11),),
    (ARM64, "", "AveragePool"): ((19, None),),
}
"""(provider, domain, operator) -> the opsets, the first and the last, at which ONNX Runtime does
not load it in float16: it moves channels to the last axis, where the operator of that version has
no kernel (tools/arm64/probe_layouts.py asks)."""

LOST = {(ARM64, "", "MaxPool"): ("I",)}
"""(provider, domain, operator) -> variables of outputs that ONNX Runtime 1.32.0 loses in float16
where it moves channels to the last axis: who reads them ends with "Missing Input"."""

_Row = tuple[int, int | None, dict[str, tuple[str, ...]]]


def ask_runtime(
    provider: str | None = None, package: str | None = None, python: str = sys.executable
) -> dict[str, Any]:
    """Return the kernels of an installed runtime, and what it is.

    It is asked in a process of its own: a runtime built for CUDA dies when it is asked on a machine
    without the CUDA libraries, and takes its process with it.

    Args:
        provider: A provider that is a package of its own; otherwise all that are built in.
        package: The package, if no target knows the provider.
        python: The interpreter whose runtime it is.

    Raises:
        KernelTableError: There is no runtime or no such processor, it cannot list its kernels, or
            it died trying.
    """
    if provider == ARM64:
        if not is_arm():
            raise KernelTableError(
                "this machine has no Arm processor",
                where=ARM64,
                remedy="run this on an Arm machine; the package has the table of "
                "ONNX Runtime 1.32.0",
            )
        return arm_kernels(kernel_rows(), runtime_in_words())
    # -P: run in a checkout, the folder amp_rewrite would stand before the installed package.
    here = str(Path(__file__).parent)
    command = [python, "-P", "-c", _ASK, provider or "", package or "", here]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        died = f"it was killed by signal {-done.returncode}" if done.returncode < 0 else lines[-1]
        raise KernelTableError(
            "the installed ONNX Runtime cannot list its kernels",
            found=died,
            expected="a runtime with get_all_opkernel_def() and the libraries of its providers",
            remedy="run this where its GPU libraries are",
        )
    answer = json.loads(done.stdout)
    plugin = provider is not None and (package is not None or is_plugin(provider))
    asked = "get_registered_ep_kernel_defs" if plugin else "get_all_opkernel_def"
    return {"source": f"{_SOURCE}.{asked}()", **answer}


def arm_kernels(rows: Iterable[dict[str, Any]], runtime: str) -> dict[str, Any]:
    """Return the kernels of the CPU provider on Arm, without those of other layouts."""
    of_nodes = [each for each in rows if each["provider"] == CPU and each["domain"] != LAYOUTS]
    kernels = [{**each, "provider": ARM64} for each in of_nodes]
    source = f"{_SOURCE}.get_all_opkernel_def() on aarch64"
    return {"source": source, "runtime": runtime, "kernels": kernels}


def table_for(answer: dict[str, Any], provider: str) -> dict[str, Any]:
    """Return the table of a provider.

    Raises:
        KernelTableError: The answer has no kernel of it.
    """
    asked = (each for each in answer["kernels"] if each["provider"] == provider)
    rows = [each for each in map(loadable, asked) if each is not None]
    if not rows:
        providers = sorted({row["provider"] for row in answer["kernels"]})
        raise KernelTableError(
            "the runtime has no kernels of this execution provider",
            where=provider,
            found=answer["runtime"],
            expected=" or ".join(providers) or "a provider that registers kernels",
            remedy=target_hint(provider)
            or "install the runtime that it is built into, or name its package with --package",
        )
    grouped: dict[str, dict[str, list[_Row]]] = {}
    for each in chain.from_iterable(map(split_agreeing, rows)):
        types = {name: tuple(sorted(t)) for name, t in each["types"].items()}
        ops = grouped.setdefault(each["domain"], {})
        ops.setdefault(each["op"], []).append((each["since"], each["until"], types))
    return _table(answer, provider, grouped)


def merge(rows: Iterable[_Row]) -> list[_Row]:
    """Return fewer rows with the same meaning.

    Two rows become one only if they differ in a single constraint; the union of two that differ in
    more would admit combinations of types that have no kernel.
    """
    merged = list(rows)
    while (smaller := _merge_once(merged)) is not None:
        merged = smaller
    return sorted(merged, key=lambda r: (r[0], r[1] or 0, sorted(r[2].items())))


def _merge_once(rows: list[_Row]) -> list[_Row] | None:
    for name in sorted({name for _, _, types in rows for name in types}):
        groups: dict[object, list[_Row]] = {}
        for since, until, types in rows:
            rest = tuple(sorted((n, t) for n, t in types.items() if n != name))
            groups.setdefault((since, until, name in types, rest), []).append((since, until, types))
        if len(groups) < len(rows):
            return [_union(group, name) for group in groups.values()]
    return None


def _union(group: list[_Row], name: str) -> _Row:
    since, until, types = group[0]
    if name not in types:
        return since, until, types
    return since, until, {**types, name: tuple(sorted({t for r in group for t in r[2][name]}))}


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


def loadable(row: dict[str, Any]) -> dict[str, Any] | None:
    """Return a row without float16 if the runtime does not load it so; None if nothing is left."""
    key = row["provider"], row["domain"], row["op"]
    ranges = UNLOADABLE.get(key, ())
    if [tensor(FLOAT16.number)] in row["types"].values():
        row = {**row, "types": {**row["types"], **{name: [] for name in LOST.get(key, ())}}}
    if not any(first <= row["since"] <= (last or row["since"]) for first, last in ranges):
        return row
    low = tensor(FLOAT16.number)
    types = {name: [t for t in types if t != low] for name, types in row["types"].items()}
    return {**row, "types": types} if all(types.values()) else None


def _table(
    answer: dict[str, Any], provider: str, grouped: dict[str, dict[str, list[_Row]]]
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
    table = {
        "version": FORMAT_VERSION,
        "runtime": answer["runtime"],
        "provider": provider,
        "source": answer["source"],
        "types": [list(t) for t in sets],
        "kernels": kernels,
    }
    unloadable: dict[str, dict[str, Any]] = {}
    for (owner, domain, op), ranges in UNLOADABLE.items():
        if owner == provider:
            unloadable.setdefault(domain, {})[op] = [list(each) for each in ranges]
    return {**table, "unloadable": unloadable} if unloadable else table


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
