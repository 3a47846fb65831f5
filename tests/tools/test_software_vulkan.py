import importlib.util
import json
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "software_vulkan.py"


@pytest.fixture(name="tool")
def load_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("software_vulkan", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def debian(tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Stand in for apt and dpkg, whose package holds a driver; return what was called."""
    called: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        called.append(command)
        if "install" in command:
            cache = next(part for part in command if part.startswith("Dir::Cache="))
            Path(cache.partition("=")[2], "archives", "mesa.deb").touch()
        if command[0] == "dpkg":
            libraries = Path(command[3], "usr", "lib", "a-triplet")
            libraries.mkdir(parents=True)
            (libraries / "libvulkan_lvp.so").touch()
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(subprocess, "run", run)
    release = {"VERSION_CODENAME": "bookworm"}
    monkeypatch.setattr(tool.platform, "freedesktop_os_release", lambda: release)
    return called


def test_a_driver_is_unpacked_and_its_environment_printed(
    tool: ModuleType,
    debian: list[list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/own lib")
    assert tool.main([str(tmp_path)]) == 0
    libraries = tmp_path / "root" / "usr" / "lib" / "a-triplet"
    assert capsys.readouterr().out.splitlines() == [
        f"export VK_ICD_FILENAMES={tmp_path}/lavapipe.json",
        f"export LD_LIBRARY_PATH='{libraries}:/opt/own lib'",
        f"export XDG_RUNTIME_DIR={tmp_path}/runtime",
        "export ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER=1",
    ]
    manifest = json.loads((tmp_path / "lavapipe.json").read_text("utf-8"))
    assert manifest["ICD"]["library_path"] == str(libraries / "libvulkan_lvp.so")
    assert (tmp_path / "runtime").is_dir()
    (install,) = [command for command in debian if "install" in command]
    assert install[install.index("-t") + 1] == "bookworm-backports"


@pytest.mark.usefixtures("debian")
def test_whatever_fails_is_said_in_one_line(
    tool: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    def fails(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 100, "", "W: slow\nE: no such host\n")

    monkeypatch.setattr(subprocess, "run", fails)
    assert tool.main([str(tmp_path)]) == 1
    said = "no software Vulkan driver: apt-get failed: E: no such host\n"
    assert capsys.readouterr() == ("", said)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert tool.main([str(tmp_path)]) == 1
    assert "apt-get and dpkg are needed" in capsys.readouterr().err
    assert tool.main([]) == 2
