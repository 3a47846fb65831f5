"""Print what onnxruntime-gpu makes of models, one JSON line each; README.md says how to run it.

    {"model": "m.onnx", "operators": {"MatMul": 2, "LayerNormalization": 1}, "cpu": {"Shape": 1}}

`operators` counts those of the optimised graph, fused ones among them; `cpu` those of them that the
CUDA provider left to the CPU. A model that does not load has the key `error` instead. With `--cpu`
in front of the models the CPU provider takes everything.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import onnx
import onnxruntime

QUIET = 4
CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"

Provider = str | tuple[str, dict[str, str]]
"""A provider, or one with options."""


def place(model: str, providers: Sequence[Provider]) -> dict[str, object]:
    """Load a model and return its optimised graph's operators, and those on the CPU."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = QUIET
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    with tempfile.TemporaryDirectory() as folder:
        optimized = Path(folder) / "optimized.onnx"
        options.optimized_model_filepath = str(optimized)
        try:
            session = onnxruntime.InferenceSession(model, options, providers=providers)
        except Exception as error:  # noqa: BLE001 the runtime's errors have no common class
            return {"error": str(error)}
        operators = count(onnx.load(optimized, load_external_data=False).graph)
    parts = session.get_provider_graph_assignment_info()
    on_cpu = Counter(
        node.op_type for part in parts if part.ep_name == CPU for node in part.get_nodes()
    )
    return {"operators": dict(operators), "cpu": dict(on_cpu)}


def count(graph: onnx.GraphProto) -> Counter[str]:
    """Return how often each operator is in a graph and the graphs inside its nodes."""
    counts: Counter[str] = Counter()
    for node in graph.node:
        counts[node.op_type] += 1
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                counts += count(inner)
    return counts


def main() -> None:
    """Print a line for each model of the command line."""
    onnxruntime.set_default_logger_severity(QUIET)
    models = sys.argv[1:]
    providers: Sequence[Provider] = [CUDA, CPU]
    if models[:1] == ["--cpu"]:
        providers, models = [CPU], models[1:]
    for model in models:
        print(json.dumps({"model": model, **place(model, providers)}), flush=True)


if __name__ == "__main__":
    main()
