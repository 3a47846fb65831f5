"""Convert models with one tool, many in a process: what bench_exported.py starts.

    python benchmarks/exported_jobs.py TOOL PRECISION FOLDER MODEL ...

Writes FOLDER/<stem>.onnx for every model, or FOLDER/<stem>.error with what the tool said. Needs no
package but the tool's own, so that another interpreter can run it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

FLOAT16 = "float16"


def amp_rewrite(source: Path, target: Path, precision: Any) -> None:
    """Convert with this project, with default options."""
    import amp_rewrite as amp

    amp.rewrite(source, precision=precision).save(target)


def amp_rewrite_webgpu(source: Path, target: Path, precision: Any) -> None:
    """Convert with this project, for WebGPU instead of CUDA."""
    import amp_rewrite as amp

    amp.rewrite(source, precision=precision, target="webgpu").save(target)


def onnxconverter_common(source: Path, target: Path, _: str) -> None:
    """Convert with onnxconverter-common."""
    import onnx
    from onnxconverter_common import float16

    model = float16.convert_float_to_float16(onnx.load(str(source)), keep_io_types=True)
    onnx.save(model, str(target))


def onnxruntime(source: Path, target: Path, _: str) -> None:
    """Convert with ONNX Runtime's float16 tool."""
    import onnx
    from onnxruntime.transformers import float16

    model = float16.convert_float_to_float16(onnx.load(str(source)), keep_io_types=True)
    onnx.save(model, str(target))


def autocast(source: Path, target: Path, precision: str) -> None:
    """Convert with AutoCast of NVIDIA's Model Optimizer."""
    import onnx
    from modelopt.onnx.autocast import (  # pyright: ignore[reportMissingImports] it is optional
        convert_to_mixed_precision,
    )

    short = "fp16" if precision == FLOAT16 else "bf16"
    model = convert_to_mixed_precision(str(source), low_precision_type=short, keep_io_types=True)
    onnx.save(model, str(target))


def onnxsim(source: Path, target: Path, _: str) -> None:
    """Convert with onnxsim: all to float16, for its mixed precision is one of integers."""
    import onnx
    import onnxsim as simplifier  # pyright: ignore[reportMissingImports] it is optional

    onnx.save(simplifier.quantize_fp16(str(source), keep_io_types=True), str(target))


def repaired(convert: Callable[[Path, Path, str], None]) -> Callable[[Path, Path, str], None]:
    """Return a conversion after which this project repairs what was written."""

    def run(source: Path, target: Path, precision: str) -> None:
        import amp_rewrite as amp

        low = target.with_name(f"low_{target.name}")
        convert(source, low, precision)
        amp.check(low, run=False)  # it has to take what repair takes
        amp.repair(low).save(target)

    return run


TOOLS: dict[str, Callable[[Path, Path, str], None]] = {
    "amp_rewrite": amp_rewrite,
    "amp_rewrite_webgpu": amp_rewrite_webgpu,
    "onnxconverter-common": onnxconverter_common,
    "onnxruntime": onnxruntime,
    "autocast": autocast,
    "onnxsim": onnxsim,
    "onnxconverter-common, repaired": repaired(onnxconverter_common),
    "onnxruntime, repaired": repaired(onnxruntime),
}
FLOAT16_ONLY = ("onnxconverter-common", "onnxruntime", "onnxsim")


def main(arguments: list[str]) -> int:
    """Convert every model."""
    tool, precision, folder, *models = arguments
    for source in map(Path, models):
        target = Path(folder) / source.name
        try:
            TOOLS[tool](source, target, precision)
        except Exception as error:  # noqa: BLE001 whatever a tool fails with is a result
            text = " ".join(str(error).split())[:200]
            target.with_suffix(".error").write_text(text or type(error).__name__, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
