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


def amp_rewrite(source: Path, precision: Any) -> Any:
    """Convert with this project, with default options."""
    import amp_rewrite as amp

    return amp.to_proto(amp.rewrite(source, precision=precision).model)


def onnxconverter_common(source: Path, _: str) -> Any:
    """Convert with onnxconverter-common."""
    import onnx
    from onnxconverter_common import float16

    return float16.convert_float_to_float16(onnx.load(str(source)), keep_io_types=True)


def onnxruntime(source: Path, _: str) -> Any:
    """Convert with ONNX Runtime's float16 tool."""
    import onnx
    from onnxruntime.transformers import float16

    return float16.convert_float_to_float16(onnx.load(str(source)), keep_io_types=True)


def autocast(source: Path, precision: str) -> Any:
    """Convert with AutoCast of NVIDIA's Model Optimizer."""
    from modelopt.onnx.autocast import (  # pyright: ignore[reportMissingImports] it is optional
        convert_to_mixed_precision,
    )

    short = "fp16" if precision == FLOAT16 else "bf16"
    return convert_to_mixed_precision(str(source), low_precision_type=short, keep_io_types=True)


TOOLS: dict[str, Callable[[Path, str], Any]] = {
    "amp_rewrite": amp_rewrite,
    "onnxconverter-common": onnxconverter_common,
    "onnxruntime": onnxruntime,
    "autocast": autocast,
}
FLOAT16_ONLY = ("onnxconverter-common", "onnxruntime")


def main(arguments: list[str]) -> int:
    """Convert every model."""
    import onnx

    tool, precision, folder, *models = arguments
    for source in map(Path, models):
        target = Path(folder) / source.name
        try:
            onnx.save(TOOLS[tool](source, precision), str(target))
        except Exception as error:  # noqa: BLE001 whatever a tool fails with is a result
            text = " ".join(str(error).split())[:200]
            target.with_suffix(".error").write_text(text or type(error).__name__, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
