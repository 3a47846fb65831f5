"""OpenVINO itself: whether it is there, new enough, and what its messages say."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from amp_rewrite.errors import RuntimeMissingError
from amp_rewrite.runtimes.openvino import package


class NoDevices(ModuleType):
    """An installation without the plugin for CPUs."""

    __version__ = "2026.4.1-22982-abc"

    class Core:
        available_devices = ("NPU",)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    for cached in (package.import_runtime, package.core):
        cached.cache_clear()
    yield
    for cached in (package.import_runtime, package.core):
        cached.cache_clear()


def test_where_it_is_not_installed_one_line_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(RuntimeMissingError, match=r"not installed; pip install openvino"):
        package.core()


def test_an_installation_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    old = NoDevices("openvino")
    old.__version__ = "2025.4.1-20426-82bbf0292c5-releases/2025/4"
    monkeypatch.setitem(sys.modules, "openvino", old)
    with pytest.raises(RuntimeMissingError, match=r"too old; found 2025\.4\.1; expected at least"):
        package.import_runtime()
