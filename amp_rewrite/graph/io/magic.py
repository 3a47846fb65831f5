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

_DEEPEST = 100
"""Messages inside one another that protobuf reads (its parsers' default limit)."""

_INSIDE = {
    "model": {7: "graph"},
    "graph": {1: "node"},
    "node": {5: "attribute"},
    "attribute": {6: "graph", 11: "graph"},
}
"""Kind of message -> the fields that lead to subgraphs, and what these are."""

_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5
_FIXED = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}
_MORE = 128
"""The bit of a byte that says that a number goes on."""


def describe(content: bytes) -> str:
    """Return a few words on what the beginning of a file looks like."""
    for offset, mark, words in _MAGIC:
        if content[offset : offset + len(mark)] == mark:
            return words
    if _is_text(content[:_SAMPLE]):
        return "a text file"
    depth = _depth(content)
    if depth > _DEEPEST:
        return f"a model nested too deeply for protobuf: {depth} messages, of at most {_DEEPEST}"
    if content[0] == _IR_VERSION_TAG:
        return f"a model that is truncated or damaged, {len(content)} bytes"
    return f"{len(content)} bytes that are not a protobuf message of ONNX"


def _depth(content: bytes) -> int:
    """Return how many messages on the way to subgraphs lie inside one another, as far as told."""
    deepest, waiting = 0, [(0, len(content), "model", 1)]
    while waiting:
        at, end, kind, depth = waiting.pop()
        deepest = max(deepest, depth)
        while at < end:
            field, start, at = _field(content, at)
            inner = _INSIDE[kind].get(field)
            if inner is not None and at <= end:
                waiting.append((start, at, inner, depth + 1))
    return deepest


def _field(content: bytes, at: int) -> tuple[int, int, int]:
    """Return the number of a field that holds a message, where that begins and ends.

    The number is 0 for any other field, and the end that of the content for what is none.
    """
    tag, at = _varint(content, at)
    kind = tag & 7
    if kind == _LENGTH:
        size, at = _varint(content, at)
        return tag >> 3, at, at + size
    if kind == _VARINT:
        return 0, at, _varint(content, at)[1]
    return 0, at, at + _FIXED.get(kind, len(content))


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable length, and where it ends; 0 behind the end."""
    value = shift = 0
    while at < len(content):
        byte = content[at]
        value |= (byte & (_MORE - 1)) << shift
        at, shift = at + 1, shift + 7
        if byte < _MORE:
            break
    return value, at


def _is_text(sample: bytes) -> bool:
    try:
        decoded = sample.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return all(char.isprintable() or char in "\r\n\t" for char in decoded)
