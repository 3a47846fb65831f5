"""The kernels that the installed ONNX Runtime says that it has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from amp_rewrite.runtimes.ort.providers import devices_of, is_plugin
from amp_rewrite.runtimes.ort.runtime import import_runtime, import_state

_OPEN = 2**31 - 1
"""The last version of a kernel whose registration names no end."""


def runtime_in_words(provider: str | None = None, package: str | None = None) -> str:
    """Return the name and version of the installed runtime, or of a plugin that it has taken.

    Raises:
        OptionError: The plugin cannot be used.
    """
    runtime = f"onnxruntime {import_runtime().__version__}"
    if provider is None or not (package or is_plugin(provider)):
        return runtime
    return f"{runtime} + {provider} {devices_of(provider, package)[0].ep_metadata['version']}"


def kernel_rows(provider: str | None = None, package: str | None = None) -> list[dict[str, Any]]:
    """Return kernels as rows for a kernel table.

    A runtime that was built for CUDA ends the process where the CUDA libraries are missing.

    Args:
        provider: A plugin; otherwise the kernels of all providers that are built in are returned.
        package: The package that brings it, if no target says so.

    Raises:
        OptionError: The plugin cannot be used.
    """
    state = import_state()
    if provider is None or not (package or is_plugin(provider)):
        return [_row(kernel) for kernel in state.get_all_opkernel_def()]
    devices_of(provider, package)
    return [_row(kernel) for kernel in state.get_registered_ep_kernel_defs(provider)]


def _row(kernel: Any) -> dict[str, Any]:
    since, until = kernel.version_range
    types = kernel.type_constraints
    return row(kernel.provider, kernel.domain, kernel.op_name, since, until, types)


def row(
    provider: str,
    domain: str,
    op: str,
    since: int,
    until: int,
    types: Mapping[str, Iterable[str]],
) -> dict[str, Any]:
    """Return a registered kernel as a row for a kernel table."""
    return {
        "provider": provider,
        "domain": domain,
        "op": op,
        "since": since,
        "until": None if until >= _OPEN else until,
        "types": {name: sorted(names) for name, names in types.items()},
    }
