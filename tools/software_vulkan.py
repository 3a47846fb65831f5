"""Provide a Vulkan driver that computes on the CPU: Mesa's lavapipe, from Debian's packages.

    eval "$(python tools/software_vulkan.py .cache/vulkan)"

What ONNX Runtime's WebGPU provider needs on a machine without a GPU. The packages are downloaded
with apt, which checks their signatures, and unpacked into a folder: nothing is installed, so that
neither root nor a change of the machine is needed. Prints the environment to use, as commands of a
shell. Where it cannot (not a Debian, no network), it says so in one line and exits with 1.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

PACKAGES = ("mesa-vulkan-drivers", "libvulkan1")

BACKPORTS = {"bookworm": "bookworm-backports"}
"""Releases whose own Mesa is too old for Dawn (22.3 lacks descriptor indexing), and what has 25."""

MIRROR = "http://deb.debian.org/debian"

SECONDS = 900


class NotProvidedError(Exception):
    """Why there is no driver, in one line."""


def environment(folder: Path) -> dict[str, str]:
    """Return the environment in which Dawn finds the driver that was unpacked in a folder."""
    libraries = _driver(folder).parent
    paths = [str(libraries), os.environ.get("LD_LIBRARY_PATH", "")]
    return {
        "VK_ICD_FILENAMES": str(folder / "lavapipe.json"),
        "LD_LIBRARY_PATH": ":".join(filter(None, paths)),
        "XDG_RUNTIME_DIR": str(folder / "runtime"),
        "ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER": "1",
    }


def provide(folder: Path) -> None:
    """Download and unpack the driver, unless the folder has it.

    Raises:
        NotProvidedError: It cannot be had here.
    """
    if (folder / "lavapipe.json").exists():
        return
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise NotProvidedError("Debian's apt-get and dpkg are needed and were not found")
    folder.mkdir(parents=True, exist_ok=True)
    for package in _download(folder / "apt"):
        _run(["dpkg", "-x", str(package), str(folder / "root")])
    shutil.rmtree(folder / "apt")
    (folder / "runtime").mkdir(mode=0o700, exist_ok=True)
    manifest = {
        "file_format_version": "1.0.0",
        "ICD": {"library_path": str(_driver(folder)), "api_version": "1.3.0"},
    }
    (folder / "lavapipe.json").write_text(json.dumps(manifest), "utf-8")


def _driver(folder: Path) -> Path:
    """Return the library of the driver.

    Raises:
        NotProvidedError: The packages do not have it.
    """
    found = sorted(folder.glob("root/usr/lib/*/libvulkan_lvp.so"))
    if not found:
        raise NotProvidedError(f"the packages have no lavapipe for {platform.machine()}")
    return found[0]


def _download(folder: Path) -> list[Path]:
    """Download the packages, and those they need that are not installed; return their files."""
    release = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    options = _private_state(folder, release)
    suite = ["-t", BACKPORTS[release]] if release in BACKPORTS else []
    _run(["apt-get", *options, "-qq", "update"])
    _run(
        [
            "apt-get",
            *options,
            "-qq",
            "-y",
            "--no-install-recommends",
            "--reinstall",
            *suite,
            "--download-only",
            "install",
            *PACKAGES,
        ]
    )
    return sorted((folder / "cache" / "archives").glob("*.deb"))


def _private_state(folder: Path, release: str) -> list[str]:
    """Return options that keep apt's own lists and downloads in a folder, which needs no root."""
    state, cache = folder / "state", folder / "cache"
    for place in (state / "lists" / "partial", cache / "archives" / "partial"):
        place.mkdir(parents=True, exist_ok=True)
    settings = {
        "Dir::State": state,
        "Dir::State::status": "/var/lib/dpkg/status",
        "Dir::Cache": cache,
        "Debug::NoLocking": "1",
        "APT::Sandbox::User": "",  # apt drops to a user who may not write here
    }
    if release in BACKPORTS:
        sources = folder / "sources.list"
        suites = (release, BACKPORTS[release])
        sources.write_text("".join(f"deb {MIRROR} {suite} main\n" for suite in suites), "utf-8")
        settings |= {"Dir::Etc::sourcelist": sources, "Dir::Etc::sourceparts": "/dev/null"}
    return [part for key, value in settings.items() for part in ("-o", f"{key}={value}")]


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotProvidedError(" ".join(str(error).split())) from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise NotProvidedError(f"{command[0]} failed: {said[-1]}")


def as_shell(variables: Mapping[str, str]) -> str:
    """Return variables as commands for a shell."""
    return "".join(f"export {name}={shlex.quote(text)}\n" for name, text in variables.items())


def main(arguments: list[str]) -> int:
    """Provide the driver and print its environment; return the exit status."""
    if len(arguments) != 1:
        print("usage: software_vulkan.py FOLDER", file=sys.stderr)
        return 2
    folder = Path(arguments[0]).resolve()
    try:
        provide(folder)
        print(as_shell(environment(folder)), end="")
    except (NotProvidedError, OSError) as error:
        print(f"no software Vulkan driver: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
