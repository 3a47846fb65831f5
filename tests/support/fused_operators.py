"""What ONNX Runtime makes of a model: the operators of its optimised graph, fused ones included."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx
import onnxruntime


def optimized_operators(model: onnx.ModelProto, folder: Path) -> Counter[str]:
    """Return how often each operator is in the graph that the CPU provider runs.

    Args:
        model: The model.
        folder: An empty folder; the optimised model is written there and removed.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    path = folder / "optimized.onnx"
    options.optimized_model_filepath = str(path)
    onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    optimized = onnx.load(path)
    path.unlink()
    return operators(optimized.graph)


def operators(graph: onnx.GraphProto) -> Counter[str]:
    """Return how often each operator is in a graph and the graphs inside its nodes."""
    counts: Counter[str] = Counter()
    for node in graph.node:
        counts[node.op_type] += 1
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                counts += operators(inner)
    return counts
