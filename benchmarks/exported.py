"""Models that tools/corpus/export_models.py made, and how near to float32 their numbers stay."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import amp_rewrite as amp
from amp_rewrite import dtypes, targets
from amp_rewrite.dtypes import DType
from amp_rewrite.graph import elements
from amp_rewrite.graph.io.read_object import infer_types
from amp_rewrite.numerics.budget.tolerance import Tolerance
from amp_rewrite.numerics.compare.distance import Comparer, Tolerances
from amp_rewrite.numerics.emulate import Evaluator
from amp_rewrite.numerics.emulate.low_sums import kept_low

ROOT = Path(__file__).resolve().parent.parent
SHORT = "short"
COSINES = {"float16": 0.9999, "bfloat16": 0.999}
"""What every output must reach, on every input."""

_COSINE = Tolerance.default("cosine", 0.0)
_PRODUCTS = ("Attention", "Conv", "ConvTranspose", "Einsum", "Gemm", "GRU", "LSTM", "MatMul", "RNN")

Feeds = Mapping[str, Any]


@dataclass(frozen=True)
class Exported:
    """One model and what it is fed.

    Attributes:
        network: What was exported.
        exporter: Which exporter wrote it.
        path: The file.
        cases: Case -> file with its inputs.
    """

    network: str
    exporter: str
    path: Path
    cases: Mapping[str, Path]

    @property
    def name(self) -> str:
        """The network and its exporter."""
        return f"{self.network}.{self.exporter}"

    def feeds(self) -> dict[str, Feeds]:
        """Return case -> inputs."""
        return {case: dict(np.load(path)) for case, path in self.cases.items()}


def folder() -> Path:
    """Return where exported models are: what AMP_EXPORTED names, or the cache."""
    return Path(os.environ.get("AMP_EXPORTED") or ROOT / ".cache" / "exported")


def exported() -> list[Exported]:
    """Return the models of the folder; none if there is no such folder."""
    index = folder() / "corpus.json"
    entries = json.loads(index.read_text("utf-8")) if index.exists() else []
    return [_exported(entry) for entry in entries if "error" not in entry]


def _exported(entry: Mapping[str, Any]) -> Exported:
    return Exported(
        network=entry["network"],
        exporter=entry["exporter"],
        path=folder() / "models" / f"{entry['name']}.onnx",
        cases={case: folder() / path for case, path in entry["cases"].items()},
    )


def references(model: Exported) -> dict[str, dict[str, Any]]:
    """Return case -> outputs in float32."""
    evaluator = Evaluator(str(model.path))
    return {case: evaluator.run(feeds) for case, feeds in model.feeds().items()}


def cosines(
    model: Exported, expected: Mapping[str, Mapping[str, Any]], converted: Path, low: DType
) -> dict[str, float]:
    """Return case -> the least cosine of an output, as `verify` emulates target cuda.

    It is minus infinity where a number is infinite or NaN that is finite in float32.
    """
    kernels = targets.find("cuda")
    evaluator = Evaluator(in_order(converted), accumulate_low=kept_low(kernels, low))
    return {
        case: 1 - loss(_COSINE, _floats(expected[case]), evaluator.run(feeds), low)
        for case, feeds in model.feeds().items()
    }


def loss(
    tolerance: Tolerance, expected: Mapping[str, Any], found: Mapping[str, Any], low: DType
) -> float:
    """Return the loss of the worst of some outputs."""
    comparers = {name: Comparer(name, Tolerances.of(low)) for name in expected}
    for name, comparer in comparers.items():
        comparer.add(expected[name], found[name])
    return tolerance.loss(comparer.result() for comparer in comparers.values())


def _floats(outputs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: array for name, array in outputs.items() if array.dtype.kind == "f"}


def in_order(path: Path) -> onnx.ModelProto:
    """Return a model with its nodes in order, which ONNX Runtime's tool does not care for."""
    model = onnx.load(path)
    nodes = list(model.graph.node)
    makers = {name: i for i, node in enumerate(nodes) for name in node.output}
    needs = {i: {makers[n] for n in _reads(node) if n in makers} for i, node in enumerate(nodes)}
    del model.graph.node[:]
    model.graph.node.extend(nodes[i] for i in TopologicalSorter(needs).static_order())
    return model


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names that a node reads, inside subgraphs as well."""
    yield from node.input
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from _reads(inner)


def low_products(path: Path) -> tuple[int, int]:
    """Return how many products of matrices are low, and how many there are."""
    model = amp.load(in_order(path))
    types = infer_types(model)
    low = {dtype.number for dtype in dtypes.LOW.values()}
    products = [node for node in model.graph.all_nodes() if node.op_type in _PRODUCTS]
    kinds = [_element(types, node.inputs[0]) for node in products]
    return sum(kind in low for kind in kinds), len(products)


def _element(types: Mapping[Any, str], value: Any) -> int | None:
    return elements.element(types[value]) if value in types else None
