import importlib.util
import shutil
import subprocess
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "arm64" / "make_arm64.py"


@pytest.fixture(name="tool")
def load_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_arm64", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def debian(tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Stand in for apt, dpkg and pip; return what was called."""
    called: list[list[str]] = []

    def run(command: list[str], cwd: Path | None = None, **_: Any) -> Any:
        called.append(command)
        if "download" in command and command[0] == "apt-get":
            assert cwd is not None
            (cwd / "a.deb").touch()
        if "pip" in command:
            wheels = Path(command[command.index("--dest") + 1])
            wheels.mkdir()
            with zipfile.ZipFile(wheels / "a.whl", "w") as archive:
                archive.writestr("onnxruntime/__init__.py", "")
        return subprocess.CompletedProcess(command, 0, "aarch64 onnxruntime 9.9\n", "")

    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(tool.platform, "machine", lambda: "x86_64")
    return called


def test_a_folder_is_made_once(
    tool: ModuleType,
    debian: list[list[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "an arm"
    assert tool.main([str(folder), "--version", "9.9"]) == 0
    assert capsys.readouterr().out == f"{folder}: aarch64 onnxruntime 9.9\n"
    assert any("onnxruntime==9.9" in command for command in debian)
    assert (folder / "site" / "onnxruntime" / "__init__.py").exists()
    assert f"here='{folder}'" in (folder / "run").read_text("utf-8")
    assert sorted(path.name for path in folder.iterdir()) == ["run", "site"]
    debian.clear()
    assert tool.main([str(folder)]) == 0
    assert [command[0] for command in debian] == [str(folder / "run")]


def test_what_is_missing_is_said_in_one_line(
    tool: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert tool.main([str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("no emulated Arm processor: Debian's apt-get and dpkg are needed")
    assert not (tmp_path / "run").exists()
