"""Execution providers: how they are named, and whether the installed ONNX Runtime has them."""

from __future__ import annotations

import importlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from amp_rewrite.errors import OptionError, RunError
from amp_rewrite.runtimes.ort.runtime import import_runtime, one_line
from amp_rewrite.runtimes.session import Provider, name_and_options
from amp_rewrite.targets import CPU, CUDA, NEEDS_A_DRIVER, OPENVINO, of_provider, provider_hint

_NOT_MADE = "Error creating execution provider"
_FAILED_CHECK = "was false."
"""The texts of ONNX Runtime's errors about a provider, and what stands before the reason."""

_DEVICE = "device_id"
"""The option that says which of its devices a provider uses, as for those that are built in."""


def available_providers() -> tuple[str, ...]:
    """Return the names of the providers that the installed ONNX Runtime has built in."""
    return tuple(import_runtime().get_available_providers())


def has_provider(name: str) -> bool:
    """Return whether sessions can use a provider; of a plugin an error says why not."""
    return bool(devices_of(name)) if is_plugin(name) else name in available_providers()


def check_providers(providers: Sequence[Provider]) -> None:
    """Refuse a list that is none of providers, and those that the installed ONNX Runtime lacks."""
    check_form(providers)
    for name, _ in map(name_and_options, providers):
        check_provider(name)


def check_provider(name: str) -> None:
    """Refuse a provider that the installed ONNX Runtime lacks."""
    if not has_provider(name):
        raise OptionError(
            "the installed ONNX Runtime has no such execution provider",
            found=repr(name),
            expected=" or ".join((*available_providers(), OPENVINO)),
            remedy=provider_hint(name)
            or "install the wheel that has it, for example onnxruntime-gpu",
        )


def check_form(providers: Sequence[Provider]) -> None:
    """Refuse a list that is none of providers, whether they are available or not."""
    if isinstance(providers, str) or not isinstance(providers, Sequence) or not providers:  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        one = providers if providers and isinstance(providers, str) else CPU
        raise OptionError(
            "providers must be a list of execution providers",
            found=repr(providers),
            remedy=f"pass providers=[{one!r}]",
        )
    for provider in providers:
        match provider:
            case str() | (str(), Mapping()):
                pass
            case _:
                raise OptionError(
                    "a provider must be a name, or a tuple of a name and options",
                    found=repr(provider),
                    remedy=f"pass {CPU!r}, or ({CUDA!r}, {{'device_id': 0}})",
                )


def use_plugins(options: Any, providers: Sequence[Provider]) -> bool:
    """Put providers into the options of a session if one is a plugin; return whether one is."""
    pairs = [name_and_options(provider) for provider in providers]
    if not any(is_plugin(name) for name, _ in pairs):
        return False
    add_to_options(options, pairs)
    return True


@contextmanager
def starting(providers: Sequence[Provider]) -> Generator[None]:
    """Say in a RunError what the preferred provider needs, if a session cannot make it."""
    try:
        yield
    except RunError as error:
        if _NOT_MADE not in (error.found or ""):
            raise
        name, _ = name_and_options(providers[0])
        target = of_provider(name)
        said = str(error.__cause__).strip().partition(_FAILED_CHECK)[2]
        raise RunError(
            "ONNX Runtime cannot start the execution provider",
            where=name,
            found=said.strip() or error.found,
            remedy=NEEDS_A_DRIVER if target is None else target.needs,
        ) from error


def check_started(providers: Sequence[Provider], started: Sequence[str]) -> None:
    """Check that the runtime did not fall back to another device, which it does silently."""
    wanted, _ = name_and_options(providers[0])
    if wanted not in started:
        raise RunError(
            "ONNX Runtime cannot start the execution provider",
            where=wanted,
            found=f"it would use {', '.join(started)}",
            remedy="install the libraries that it needs, such as CUDA and cuDNN in the versions "
            "that onnxruntime.print_debug_info() names",
        )


def is_plugin(provider: str) -> bool:
    """Return whether a provider comes as a package of its own."""
    target = of_provider(provider)
    return target is not None and target.plugin is not None


def devices_of(provider: str, package: str | None = None) -> list[Any]:
    """Return the OrtEpDevices of a provider, which is registered if it is a plugin.

    Raises:
        OptionError: The package is not installed, or the machine has no device for it.
        RunError: ONNX Runtime refuses the plugin.
    """
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

    SessionOptions that name devices already stay as they are.
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
