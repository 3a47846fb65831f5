"""One job in a process of its own, which processes.py starts and measures.

python benchmarks/bench_jobs.py amp_rewrite|onnxconverter-common|onnxruntime|floor IN OUT
python benchmarks/bench_jobs.py check MODEL    prints one line of JSON, as does count
python benchmarks/bench_jobs.py count MODEL
python benchmarks/bench_jobs.py webgpu MODEL INPUTS.npz
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

_PROTOBUF_LIMIT = 2**31 - 1
_LOAD_NODES = 20_000
"""ONNX Runtime's CPU load time of a float16 graph grows quadratically: 47 s at 20,000 nodes."""
_LOAD_BYTES = 2**30
_CHUNK = 1 << 22  # elements


def size_of(model: Path) -> int:
    """Return the bytes of a model and of the external data beside it, by this project's names."""
    return model.stat().st_size + sum(p.stat().st_size for p in data_of(model))


def data_of(model: Path) -> list[Path]:
    """Return the external-data files of a model, whatever the tool calls them."""
    names = {model.with_suffix(".data"), model.with_name(f"{model.name}.data")}
    return sorted(p for p in names if p.exists())


def amp_rewrite(source: Path, target: Path) -> None:
    """Convert with this project, with default options."""
    import amp_rewrite as amp

    amp.rewrite(source).save(target)


def _peer(convert: Callable[..., Any], source: Path, target: Path) -> None:
    import onnx

    big = size_of(source) > _PROTOBUF_LIMIT
    model = onnx.load(str(source))
    # Shape inference serialises the model, which protobuf cannot do beyond 2 GB.
    converted = convert(model, keep_io_types=True, disable_shape_infer=big)
    onnx.save(
        converted,
        str(target),
        save_as_external_data=big,
        location=f"{target.name}.data" if big else None,
    )


def onnxconverter_common(source: Path, target: Path) -> None:
    """Convert with onnxconverter-common."""
    from onnxconverter_common import float16

    _peer(float16.convert_float_to_float16, source, target)


def onnxruntime(source: Path, target: Path) -> None:
    """Convert with ONNX Runtime's float16 tool."""
    from onnxruntime.transformers import float16

    _peer(float16.convert_float_to_float16, source, target)


def floor(source: Path, target: Path) -> None:
    """Copy the files of a model, then convert all its weights with numpy and write them.

    The least that any converter must do with the weights, in chunks of 4 Mi elements.
    """
    import numpy as np

    shutil.copyfile(source, target)
    for i, data in enumerate(data_of(source)):
        copy = target.with_suffix(f".copy{i}")
        shutil.copyfile(data, copy)
        with copy.open("rb") as stream, target.with_suffix(".low").open("ab") as low:
            while chunk := stream.read(4 * _CHUNK):
                values = np.frombuffer(chunk[: len(chunk) // 4 * 4], np.float32)
                with np.errstate(all="ignore"):
                    low.write(values.astype(np.float16).data)


def _verdict(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except Exception as error:  # noqa: BLE001 any failure of a tool's output is a result
        return " ".join(str(error).split())[:200] or type(error).__name__
    return "yes"


def check(path: Path) -> dict[str, Any]:
    """Return whether a model passes the checker and loads in ONNX Runtime on a CPU."""
    import onnx
    import onnx.checker
    import onnxruntime as ort

    model = onnx.load(str(path), load_external_data=False)
    verdicts = {
        "checker": _verdict(lambda: onnx.checker.check_model(str(path), full_check=True)),
        "loads": "not tried",
    }
    if len(model.graph.node) <= _LOAD_NODES and size_of(path) <= _LOAD_BYTES:
        options = ort.SessionOptions()
        options.log_severity_level = 4
        providers = ["CPUExecutionProvider"]
        verdicts["loads"] = _verdict(lambda: ort.InferenceSession(str(path), options, providers))
    return verdicts


def on_webgpu(path: Path, inputs: Path) -> dict[str, Any]:
    """Return whether ONNX Runtime's WebGPU provider runs a model."""
    import numpy as np
    import onnxruntime as ort

    from amp_rewrite.runtimes.ort.providers import add_to_options
    from amp_rewrite.targets import WEBGPU

    options = ort.SessionOptions()
    options.log_severity_level = 4
    add_to_options(options, [(WEBGPU, {})])

    def run() -> None:
        session = ort.InferenceSession(str(path), options)
        session.run(None, dict(np.load(inputs)))

    return {"webgpu": _verdict(run)}


def taken(original: Path, path: Path) -> dict[str, Any]:
    """Return whether `check` and `verify` come to a verdict of a model, whichever it is.

    It is one as well that ONNX Runtime does not load it.
    """
    import amp_rewrite as amp

    def ask() -> None:
        amp.check(path, run=False)
        with suppress(amp.errors.RunError):
            amp.verify(original, path, stress=False)

    return {"taken": _verdict(ask)}


def count(path: Path) -> dict[str, Any]:
    """Return the number of nodes of a model, those of subgraphs included."""
    import onnx

    return {"nodes": _nodes(onnx.load(str(path), load_external_data=False).graph)}


def _nodes(graph: Any) -> int:
    subgraphs = (
        inner
        for node in graph.node
        for attribute in node.attribute
        for inner in (attribute.g, *attribute.graphs)
    )
    return len(graph.node) + sum(map(_nodes, subgraphs))


CONVERSIONS: dict[str, Callable[[Path, Path], None]] = {
    "amp_rewrite": amp_rewrite,
    "onnxconverter-common": onnxconverter_common,
    "onnxruntime": onnxruntime,
    "floor": floor,
}
QUESTIONS: dict[str, Callable[..., dict[str, Any]]] = {
    "check": check,
    "count": count,
    "taken": taken,
    "webgpu": on_webgpu,
}


def main(arguments: list[str]) -> int:
    """Run one job."""
    job, *names = arguments
    paths = list(map(Path, names))
    if job in QUESTIONS:
        print(json.dumps(QUESTIONS[job](*paths)))
    else:
        CONVERSIONS[job](*paths)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
