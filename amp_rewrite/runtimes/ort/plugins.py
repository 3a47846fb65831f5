"""Providers that come as packages of their own, which ONNX Runtime has to be told of."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from amp_rewrite.errors import OptionError
from amp_rewrite.runtimes.ort.runtime import import_runtime, one_line
from amp_rewrite.targets import CPU, NEEDS_A_DRIVER, of_provider

_DEVICE = "device_id"
"""The option that says which of its devices a provider uses, as for those that are built in."""


def is_plugin(provider: str) -> bool:
    """Return whether a provider comes as a package of its own."""
    target = of_provider(provider)
    return target is not None and target.plugin is not None


def devices_of(provider: str, package: str | None = None) -> list[Any]:
    """Return the OrtEpDevices of a provider, which is registered if it is a plugin.

    Raises:
        OptionError: ONNX Runtime takes no plugins, the package is not installed, or the machine
            has no device for it.
        RunError: ONNX Runtime refuses the plugin.
    """
    runtime = import_runtime()
    if not hasattr(runtime, "register_execution_provider_library"):
        raise OptionError(
            "the installed ONNX Runtime takes no execution providers from other packages",
            found=f"onnxruntime {runtime.__version__}",
            remedy="pip install --upgrade onnxruntime",
        )
    target = of_provider(provider)
    devices = _known_devices(provider)
    plugin = package or (None if target is None else target.plugin)
    if not devices and plugin is not None:
        _register(plugin)
        devices = _known_devices(provider)
    if not devices:
        raise OptionError(
            "there is no device for the execution provider",
            where=provider,
            remedy=NEEDS_A_DRIVER if target is None else target.needs,
        )
    return devices


def _known_devices(provider: str) -> list[Any]:
    return [d for d in import_runtime().get_ep_devices() if d.ep_name == provider]


@cache
def _register(package: str) -> None:
    """Register the library of a package, which ONNX Runtime takes once per process."""
    try:
        plugin: Any = importlib.import_module(package)
    except ImportError as error:
        raise OptionError(
            "the package of the execution provider is not installed",
            where=package,
            remedy=f"pip install {package.replace('_', '-')}",
        ) from error
    with one_line(f"ONNX Runtime cannot register {package}"):
        import_runtime().register_execution_provider_library(package, plugin.get_library_path())


def add_to_options(options: Any, providers: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """Have a session use providers by way of their devices, as plugins are used.

    Args:
        options: SessionOptions; those that name devices already are left as they are.
        providers: (name, options), the preferred one first. The CPU provider needs no mention.

    Raises:
        OptionError: There is no such device.
        RunError: ONNX Runtime refuses an option.
    """
    if options.has_providers():
        return
    for name, options_of in providers:
        if name == CPU:
            continue
        settings = {key: str(value) for key, value in options_of.items()}
        devices, number = devices_of(name), int(settings.pop(_DEVICE, 0))
        if number >= len(devices):
            raise OptionError(
                "the execution provider has no such device",
                where=name,
                found=number,
                expected=f"a number below {len(devices)}",
            )
        with one_line(f"ONNX Runtime cannot use {name}"):
            options.add_provider_for_devices([devices[number]], settings)
