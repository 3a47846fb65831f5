"""Make libraries that stand for CUDA's and compute nothing; README.md says what for.

    python tools/cuda_stub/make_stub.py FOLDER

makes FOLDER/lib, the libraries, and FOLDER/venv, a virtual environment with onnxruntime-gpu. It
needs gcc and nm, and downloads 260 MB of wheels the first time.
"""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).parent
RUNTIME = "onnxruntime-gpu==1.31.1"
BESIDE = ("flatbuffers", "numpy", "onnx", "packaging", "protobuf")
HEADERS = ("nvidia-cuda-runtime>=13,<14", "nvidia-cuda-crt>=13,<14")

HANDLE = re.compile(r"cublasCreate_v2|cublasLtCreate|cudnnCreate\w*")
"""Functions that make a handle: any memory will do."""
TEXT = re.compile(r"cublasGetStatus\w+|cudnnGet\w*ErrorString")
"""Functions that return a text."""
LOADED = (
    (b"cudnn", ("libcudnn.so.9", "libcudnn.so")),
    (b"cufft", ("libcufft.so.12", "libcufft.so")),
)
"""Libraries that the provider opens when it runs, with the prefix of what it looks up there."""


def run(*command: object) -> str:
    """Run a command and return what it prints."""
    words = [str(word) for word in command]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def stub(name: str) -> str:
    """Return a function in C that does as little as its callers allow."""
    if HANDLE.fullmatch(name):
        return f"int {name}(void **handle) {{ *handle = calloc(1, 4096); return 0; }}"
    if TEXT.fullmatch(name):
        return f'const char *{name}(void) {{ return "stub"; }}'
    return f"long {name}(void) {{ return 0; }}"


def build(
    path: Path, names: Iterable[str], own: str = "", version: str = "", include: Path | None = None
) -> None:
    """Compile a library.

    Args:
        path: The library.
        names: The functions that it must have.
        own: C code with some of them; the others are stubs.
        version: The version of its symbols, "" for none.
        include: A folder of headers for `own`.
    """
    written = set(re.findall(r"(\w+)\(", own))
    source = path.with_suffix(".c")
    stubs = (stub(name) for name in names if name not in written)
    source.write_text("\n".join(["#include <stdlib.h>", own, *stubs, ""]))
    flags = ["-shared", "-fPIC", "-O1", "-w", f"-Wl,-soname,{path.name}"]
    if version:
        script = path.with_suffix(".map")
        script.write_text(f"{version} {{ global: *; }};\n")
        flags.append(f"-Wl,--version-script={script}")
    if include is not None:
        flags += ["-I", str(include)]
    run("gcc", *flags, "-o", path, source)


def install(venv: Path) -> None:
    """Make the virtual environment, once."""
    ready = venv / "ready"
    if ready.exists():
        return
    run(sys.executable, "-m", "venv", venv)
    run(venv / "bin" / "pip", "install", "-q", "--no-deps", RUNTIME)
    run(venv / "bin" / "pip", "install", "-q", *BESIDE)
    ready.touch()


def headers(folder: Path, pip: Path) -> Path:
    """Download CUDA's headers, once, and return the folder to include."""
    if not folder.exists():
        run(pip, "download", "-q", "--no-deps", "-d", folder, *HEADERS)
        for wheel in folder.glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(folder)
    return next(folder.rglob("driver_types.h")).parent


def build_linked(lib: Path, provider: Path, include: Path) -> None:
    """Build the libraries that the provider is linked with, whose symbols have versions."""
    table = run("nm", "-D", "--undefined-only", "--with-symbol-versions", provider)
    wanted = re.findall(r" U (\w+)@(lib\w+\.so\.\d+)", table)
    for name in sorted({library for _, library in wanted}):
        own = (HERE / "cudart.c").read_text() if "cudart" in name else ""
        symbols = sorted(symbol for symbol, library in wanted if library == name)
        build(lib / name, symbols, own, version=name, include=include)


def build_loaded(lib: Path, provider: Path) -> None:
    """Build the libraries that the provider opens when it runs."""
    content = provider.read_bytes()
    for prefix, names in LOADED:
        found = re.findall(rb"\0(" + prefix + rb"[A-Z]\w+)(?=\0)", content)
        symbols = sorted({symbol.decode() for symbol in found})
        own = (HERE / "cudnn.c").read_text() if prefix == b"cudnn" else ""
        for name in names:
            build(lib / name, symbols, own)
    build(lib / "libcuda.so.1", (), (HERE / "cuda.c").read_text())
    build(lib / "libcurand.so.10", ("curand_unused",))


def main() -> None:
    """Make everything in the folder that the command line names."""
    work = Path(sys.argv[1]).resolve()
    lib, venv = work / "lib", work / "venv"
    lib.mkdir(parents=True, exist_ok=True)
    install(venv)
    include = headers(work / "headers", venv / "bin" / "pip")
    provider = next(venv.rglob("libonnxruntime_providers_cuda.so"))
    build_linked(lib, provider, include)
    build_loaded(lib, provider)
    print(f"LD_LIBRARY_PATH={lib} {venv}/bin/python {HERE / 'place.py'} MODEL.onnx ...")


if __name__ == "__main__":
    main()
