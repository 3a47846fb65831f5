"""What the installed ONNX Runtime says that it has: operators and kernels."""

from __future__ import annotations

from typing import Any

from amp_rewrite.ort.runtime import import_runtime, import_state

_OPEN = 2**31 - 1
"""The last version of a kernel whose registration names no end."""


def runtime_in_words() -> str:
    """Return the name and version of the installed runtime.

    Raises:
        RuntimeMissingError: There is none.
    """
    return f"onnxruntime {import_runtime().__version__}"


def operator_schemas() -> list[Any]:
    """Return the schemas of all operators, in all their versions.

    Raises:
        RuntimeMissingError: There is no runtime.
    """
    return import_state().get_all_operator_schema()


def kernel_rows() -> list[dict[str, Any]]:
    """Return the kernels of all built-in providers as rows for tools/make_kernel_table.py.

    A runtime that was built for CUDA ends the process where the CUDA libraries are missing.

    Raises:
        RuntimeMissingError: There is no runtime.
    """
    return [_row(kernel) for kernel in import_state().get_all_opkernel_def()]


def _row(kernel: Any) -> dict[str, Any]:
    since, until = kernel.version_range
    return {
        "provider": kernel.provider,
        "domain": kernel.domain,
        "op": kernel.op_name,
        "since": since,
        "until": None if until >= _OPEN else until,
        "types": {name: sorted(types) for name, types in kernel.type_constraints.items()},
    }
