"""Export networks with random weights as the current exporters write them.

    python tools/corpus/export_models.py DEST [NAME ...] [--exporter dynamo torchscript]

Needs the packages of the extra "exporters"; nothing is downloaded, weights are those that the
libraries initialise, with fixed seeds. Without names: all that language_networks.py and
vision_networks.py have.

Writes DEST/models/NAME.EXPORTER.onnx, DEST/inputs/NAME/CASE.npz (what the model is fed, by what is
special about it) and DEST/corpus.json, in which a model that an exporter cannot write has an
"error". Models of other names stay.
"""

# What exports is optional, and not there where types are checked.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import sys
import time
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from catalog import Source
from fetch_corpus import Entry, describe
from language_networks import LANGUAGE
from networks import SHORT, Cases, Network
from vision_networks import VISION

EXPORTERS = ("dynamo", "torchscript")
OPSET = {"dynamo": 20, "torchscript": 17}
"""The default of the first one, and what the second one was made for."""
LIBRARIES = ("torch", "torchvision", "transformers", "diffusers", "onnxscript")


def export(network: Network, exporter: str, path: Path) -> None:
    """Write the model of a network."""
    feeds = network.cases[SHORT]
    tensors = tuple(torch.from_numpy(array) for array in feeds.values())
    options: dict[str, Any] = {
        "input_names": list(feeds),
        "output_names": list(network.outputs),
        "opset_version": OPSET[exporter],
        "external_data": False,
        "verbose": False,
    }
    axes = [dict(network.free.get(name, {})) for name in feeds]
    if exporter == "dynamo":
        options |= {"dynamo": True, "dynamic_shapes": (tuple(axes),)}
    else:
        options |= {"dynamo": False, "dynamic_axes": dict(zip(feeds, axes, strict=True))}
    with torch.no_grad():
        torch.onnx.export(network.module, tensors, str(path), **options)


def written(name: str, network: Network, exporter: str, dest: Path) -> Entry:
    """Export one network and return its entry, with the error if the exporter fails."""
    stem = f"{name}.{exporter}"
    path = dest / "models" / f"{stem}.onnx"
    start = time.perf_counter()
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # an exporter that fails prints its graph
            export(network, exporter, path)
    except Exception as error:  # noqa: BLE001 whatever an exporter fails with is a result
        path.unlink(missing_ok=True)
        text = " ".join(str(error.__cause__ or error).split())[:300]
        return {"name": stem, "network": name, "exporter": exporter, "error": text}
    seconds = round(time.perf_counter() - start, 1)
    print(f"{stem}: {len(onnx.load(path).graph.node)} nodes in {seconds} s", flush=True)
    source = Source(stem, exporter, name, (network.module.__doc__ or "").strip(), {})
    cases = {case: f"inputs/{name}/{case}.npz" for case in network.cases}
    return {
        **describe(source, path, None, exporter),
        "network": name,
        "exporter": exporter,
        "cases": cases,
    }


def write_cases(cases: Cases, folder: Path) -> None:
    """Write what a network is fed, a file a case."""
    folder.mkdir(parents=True, exist_ok=True)
    for case, feeds in cases.items():
        arrays: dict[str, Any] = dict(feeds)
        np.savez_compressed(folder / f"{case}.npz", **arrays)


def versions() -> dict[str, str]:
    """Return the versions of the libraries that build and export."""
    return {library: metadata.version(library) for library in LIBRARIES}


def main(arguments: list[str]) -> int:
    """Export the networks that the command line asks for."""
    networks = {**LANGUAGE, **VISION}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dest", type=Path)
    parser.add_argument("names", nargs="*", choices=[*networks, []], metavar="NAME")
    parser.add_argument("--exporter", nargs="+", choices=EXPORTERS, default=EXPORTERS)
    options = parser.parse_args(arguments)
    dest: Path = options.dest.resolve()
    (dest / "models").mkdir(parents=True, exist_ok=True)
    entries: list[Entry] = []
    for name in options.names or networks:
        network = networks[name]()
        write_cases(network.cases, dest / "inputs" / name)
        entries += [written(name, network, exporter, dest) for exporter in options.exporter]
    _write_index(dest / "corpus.json", entries)
    failed = {entry["name"]: entry["error"] for entry in entries if "error" in entry}
    for name, error in failed.items():
        print(f"{name}: {error}", file=sys.stderr)
    return 0


def _write_index(path: Path, entries: list[Entry]) -> None:
    """Write corpus.json, with the entries of other models that it has."""
    known: dict[str, Entry] = {}
    if path.exists():
        known = {entry["name"]: entry for entry in json.loads(path.read_text("utf-8"))}
    merged = {**known, **{entry["name"]: {**entry, "versions": versions()} for entry in entries}}
    path.write_text(json.dumps(list(merged.values()), indent=1), "utf-8")


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # the exporters' own, by the hundred
    logging.disable(logging.CRITICAL)
    sys.exit(main(sys.argv[1:]))
