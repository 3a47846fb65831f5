"""Say what a file that is not an ONNX model looks like."""

from __future__ import annotations

_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"PK\x03\x04", "a zip archive, such as a PyTorch checkpoint"),
    (0, b"\x1f\x8b", "a gzip archive"),
    (0, b"BZh", "a bzip2 archive"),
    (0, b"\xfd7zXZ", "an xz archive"),
    (0, b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (0, b"\x89HDF", "an HDF5 file, such as a Keras model"),
    (0, b"\x93NUMPY", "a NumPy array"),
    (0, b"GGUF", "a GGUF model"),
    (0, b"\x80\x02", "a Python pickle"),
    (0, b"\x80\x04", "a Python pickle"),
    (0, b"version https://git-lfs", "a Git LFS pointer: fetch the file with git lfs pull"),
    (0, b"<!DOCTYPE", "an HTML page"),
    (0, b"<html", "an HTML page"),
    (4, b"ORTM", "an ONNX Runtime .ort model"),
    (4, b"TFL3", "a TensorFlow Lite model"),
    (8, b'{"', "a safetensors file"),
)
_IR_VERSION_TAG = 0x08  # how nearly every ModelProto begins
_SAMPLE = 512


def describe(content: bytes) -> str:
    """Return a few words on what the beginning of a file looks like."""
    for offset, mark, words in _MAGIC:
        if content[offset : offset + len(mark)] == mark:
            return words
    if _is_text(content[:_SAMPLE]):
        return "a text file"
    if content[0] == _IR_VERSION_TAG:
        return f"a model that is truncated or damaged, {len(content)} bytes"
    return f"{len(content)} bytes that are no protobuf message of ONNX"


def _is_text(sample: bytes) -> bool:
    try:
        decoded = sample.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return all(char.isprintable() or char in "\r\n\t" for char in decoded)
