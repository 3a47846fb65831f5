#!/usr/bin/env python3
"""Make a folder in which ONNX Runtime for Arm (aarch64) runs on an x86-64 machine, under qemu.

Usage: make_arm64.py FOLDER [--version VERSION]

Nothing is installed: Debian's packages and PyPI's wheels are downloaded and unpacked into FOLDER,
about 800 MB. FOLDER/run starts Python on an emulated processor; name FOLDER in the environment
variable AMP_REWRITE_ARM64 for the tests marked arm64 and for arm_processor.py. qemu-user comes from
Debian 13, since that of Debian 12 (7.2) ends when ONNX Runtime is imported. The emulated processor
is a Neoverse N1, which has float16; CPU=max,sve=off,sme=off has bfloat16 products as well. Times
say nothing.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

PYTHON = "3.11"

_PYTHON_PACKAGES = ("python3.11", "python3.11-minimal", "libpython3.11-minimal")
_LIBRARIES = (
    *("libpython3.11-stdlib", "libc6", "libgcc-s1", "libstdc++6", "libexpat1", "zlib1g", "libssl3"),
    *("libffi8", "libbz2-1.0", "liblzma5", "libcrypt1", "libsqlite3-0", "libreadline8"),
    *("libtinfo6", "libncursesw6", "libuuid1"),
)
_SUITE, _QEMU_SUITE = "bookworm", "trixie"
"""Debian 12 has Python 3.11, Debian 13 a qemu that is new enough."""

MIRROR = "http://deb.debian.org/debian"

_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

_SOURCE = re.compile(r"^URIs:\s*(\S+/debian)/?\s*$|^deb\s+(?:\[[^\]]*\]\s+)?(\S+/debian)/?\s", re.M)

_WHEELS = [f"manylinux_2_{minor}_aarch64" for minor in (28, 27, 17)] + ["manylinux2014_aarch64"]

_SECONDS = 900

_RUN = """#!/bin/sh
here={folder}
exec "$here/qemu/usr/bin/qemu-aarch64" -cpu "${{CPU:-neoverse-n1}}" -L "$here/root" \\
    -E PYTHONPATH="$here/site" "$here/root/usr/bin/python{python}" "$@"
"""


class NotProvidedError(Exception):
    """Why there is no emulated processor, in one line."""


def provide(folder: Path, version: str | None = None) -> str:
    """Download and unpack what is needed, unless the folder has it; return what runs there.

    Raises:
        NotProvidedError: It cannot be had here.
    """
    program = folder / "run"
    if not program.exists():
        _unpack(folder, version)
        text = _RUN.format(folder=shlex.quote(str(folder)), python=PYTHON)
        partial = folder / "run.partial"
        partial.write_text(text, "utf-8")
        partial.chmod(0o755)
        partial.rename(program)
    tell = (
        "import platform, onnxruntime as o; print(platform.machine(), 'onnxruntime', o.__version__)"
    )
    return _run([str(program), "-c", tell]).strip()


def _unpack(folder: Path, version: str | None) -> None:
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise NotProvidedError("Debian's apt-get and dpkg are needed and were not found")
    if platform.machine() != "x86_64":
        raise NotProvidedError(f"this emulates Arm on x86_64, not on {platform.machine()}")
    packages = [*_PYTHON_PACKAGES, *_LIBRARIES]
    for architecture, suite, names, place in (
        ("arm64", _SUITE, packages, "root"),
        ("amd64", _QEMU_SUITE, ["qemu-user"], "qemu"),
    ):
        for package in _download(folder / f"apt-{suite}", architecture, suite, names):
            _run(["dpkg", "-x", str(package), str(folder / place)])
        shutil.rmtree(folder / f"apt-{suite}")
    wheels = folder / "wheels"
    runtime = "onnxruntime" if version is None else f"onnxruntime=={version}"
    platforms = [word for name in _WHEELS for word in ("--platform", name)]
    chosen = ["--only-binary=:all:", "--python-version", PYTHON, "--implementation", "cp"]
    target = ["--quiet", "--dest", str(wheels), runtime]
    _run([sys.executable, "-m", "pip", "download", *chosen, *platforms, *target])
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder / "site")
    shutil.rmtree(wheels)


def _download(folder: Path, architecture: str, suite: str, packages: list[str]) -> list[Path]:
    """Download packages with lists and a cache of their own; return their files."""
    lists, cache, files = folder / "lists", folder / "cache", folder / "files"
    for place in (lists / "partial", cache / "archives" / "partial", files):
        place.mkdir(parents=True, exist_ok=True)
    signed = f"[signed-by={_KEYRING}] " if _KEYRING.exists() else ""
    sources = folder / "sources.list"
    sources.write_text(f"deb {signed}{_mirror()} {suite} main\n", "utf-8")
    settings = {
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "Dir::State::Lists": lists,
        "Dir::Cache": cache,
        "Dir::Etc::SourceList": sources,
        "Dir::Etc::SourceParts": "/dev/null",
        "APT::Sandbox::User": "",  # apt drops to a user who may not write here
        "Debug::NoLocking": "1",
    }
    options = [part for key, value in settings.items() for part in ("-o", f"{key}={value}")]
    _run(["apt-get", *options, "-qq", "update"])
    _run(["apt-get", *options, "-qq", "download", *packages], files)
    return sorted(files.glob("*.deb"))


def _mirror() -> str:
    """Return the mirror of Debian that the machine uses itself."""
    folder = Path("/etc/apt")
    for path in (folder / "sources.list", *sorted(folder.glob("sources.list.d/*"))):
        found = _SOURCE.search(path.read_text("utf-8", "replace")) if path.is_file() else None
        if found is not None:
            return found[1] or found[2]
    return MIRROR


def _run(command: list[str], folder: Path | None = None) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_SECONDS, cwd=folder
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotProvidedError(" ".join(str(error).split())) from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise NotProvidedError(f"{os.path.basename(command[0])} failed: {said[-1]}")
    return done.stdout


def main(arguments: list[str] | None = None) -> int:
    """Make the folder and say what runs there; return the exit status."""
    parser = argparse.ArgumentParser(description="Make a folder that emulates an Arm processor.")
    parser.add_argument("folder", type=Path, help="where to unpack it")
    parser.add_argument("--version", help="the version of ONNX Runtime; default: the newest")
    options = parser.parse_args(arguments)
    folder: Path = options.folder.resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        print(f"{folder}: {provide(folder, options.version)}")
    except (NotProvidedError, OSError) as error:
        print(f"no emulated Arm processor: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
