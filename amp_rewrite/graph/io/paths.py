"""Paths as users give them."""

from __future__ import annotations

import os

from amp_rewrite.errors import AmpError, LoadError


def path_text(source: object, error: type[AmpError]) -> str:
    """Return a path as text.

    Raises:
        AmpError: `error`: it is not a path, or no path can be so.
    """
    path = os.fspath(source) if isinstance(source, str | os.PathLike) else None
    if not isinstance(path, str):
        what = "torch.onnx.export writes one of a PyTorch module" if error is LoadError else ""
        raise error(
            "a path must be a string or a path object",
            found=f"an object of type {type(source).__name__}",
            remedy="; ".join(filter(None, ("name a file", what))),
        )
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise error(
            "a path that this system cannot encode", where=ascii(path), remedy="name a file"
        ) from None
    if "\0" in path:
        raise error("a path cannot hold a null character", where=repr(path), remedy="name a file")
    return path
