"""What a search has tried, in a JSON file that is replaced as a whole."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, cast

import onnx_ir as ir

from amp_rewrite.base import arguments
from amp_rewrite.errors import DataError, OptionError
from amp_rewrite.graph.io.datafile import all_tensors
from amp_rewrite.graph.tensors import byte_chunks
from amp_rewrite.numerics.inputs.batches import Array, Feeds
from amp_rewrite.numerics.repaint.repaint import Repainter
from amp_rewrite.numerics.search.tolerance import Tolerance
from amp_rewrite.rewriting.report.write_text import write_text

VERSION = 1
_SECONDS_BETWEEN_WRITES = 1.0


def fingerprint(painter: Repainter, data: Sequence[Feeds], tolerance: Tolerance) -> str:
    """Return a digest of everything that a loss depends on: model, options, data, metric.

    The limit is left out: losses stay true under another one, those of slices nearly so.

    Raises:
        DataError: A batch holds something that is not an array.
    """
    digest = hashlib.sha256()
    for node in painter.nodes:
        names = [None if v is None else v.name for v in (*node.inputs, *node.outputs)]
        digest.update(repr((node.domain, node.op_type, node.name, names)).encode())
    for tensor in all_tensors(painter.model):
        digest.update(repr((tensor.name, tensor.dtype.name, tensor.shape.numpy())).encode())
        if tensor.dtype is ir.DataType.STRING:
            continue
        for chunk in byte_chunks(tensor):
            digest.update(chunk)
    digest.update(repr((_contents(painter.options), tolerance.metric)).encode())
    for feeds in data:
        for name in sorted(feeds):
            digest.update(name.encode())
            for array in _arrays(name, feeds[name]):
                digest.update(array.tobytes())
    return digest.hexdigest()


def _contents(thing: object) -> object:
    """Return the fields of options and lists, whose own text is one line; other things as is."""
    if not is_dataclass(thing) or isinstance(thing, type):
        return thing
    return [(f.name, _contents(getattr(thing, f.name))) for f in fields(thing)]


def _arrays(name: str, content: object) -> list[Array]:
    """Return what is fed to an input: an array, or those of a sequence."""
    items = cast("list[object]", content) if isinstance(content, list) else [content]
    arrays = [arguments.array(name, item) for item in items]
    if any(array.dtype.hasobject for array in arrays):
        raise DataError("not an array of numbers", where=name)
    return arrays


@dataclass
class SearchState:
    """The trials of one search.

    Attributes:
        path: The file, or None to keep nothing.
        digest: What the search is about.
        losses: Kept nodes -> loss.
        ranking: The nodes, the one that contributes most first; None before it is known.
        contributions: Node -> its contribution alone, NaN if it was not tried.
        is_new: Whether no earlier search left it.
    """

    path: Path | None
    digest: str
    losses: dict[frozenset[str], float] = field(default_factory=dict[frozenset[str], float])
    ranking: list[str] | None = None
    contributions: dict[str, float] = field(default_factory=dict[str, float])
    is_new: bool = True
    _written: float = -math.inf

    @staticmethod
    def open(path: str | None, digest: str, *, resume: bool) -> SearchState:
        """Return a new state, or the one in the file if the search resumes.

        Raises:
            OptionError: There is nothing to resume, or the file belongs to another search.
        """
        if not resume:
            return SearchState(None if path is None else Path(path), digest)
        if path is None or not Path(path).is_file():
            raise OptionError(
                "nothing to resume",
                where=path,
                expected="the state file of an earlier search with the same output",
                remedy="omit --resume",
            )
        return _read(Path(path), digest)

    def add(self, keep: frozenset[str], loss: float) -> None:
        """Remember a trial; the file is written at most once a second."""
        self.losses[keep] = loss
        if time.monotonic() - self._written >= _SECONDS_BETWEEN_WRITES:
            self.write()

    def set_ranking(self, ranking: list[str], contributions: Mapping[str, float]) -> None:
        """Remember the ranking."""
        self.ranking, self.contributions = ranking, dict(contributions)
        self.write()

    def discard(self) -> None:
        """Leave no file of a search that failed; one that an earlier search left stays."""
        if self.path is not None and self.is_new:
            self.path.unlink(missing_ok=True)
        self.path = None

    def write(self) -> None:
        """Replace the file.

        Raises:
            SaveError: The file cannot be written.
        """
        self._written = time.monotonic()
        if self.path is None:
            return
        document = {
            "version": VERSION,
            "search": self.digest,
            "ranking": self.ranking,
            "contributions": {k: str(v) for k, v in self.contributions.items()},
            "trials": [{"keep": sorted(k), "loss": str(v)} for k, v in self.losses.items()],
        }
        write_text(self.path, json.dumps(document))


def _read(path: Path, digest: str) -> SearchState:
    try:
        document: dict[str, Any] = json.loads(path.read_text("utf-8"))
        state = SearchState(path, document["search"], is_new=False)
        state.ranking = document["ranking"]
        state.contributions = {k: float(v) for k, v in document["contributions"].items()}
        state.losses = {frozenset(t["keep"]): float(t["loss"]) for t in document["trials"]}
        version = document["version"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise OptionError(
            "the state cannot be read",
            where=path,
            found=f"{type(error).__name__}: {error}",
            remedy="omit --resume",
        ) from error
    if version != VERSION or state.digest != digest:
        raise OptionError(
            "the state belongs to another search",
            where=path,
            expected="the same model, data, lists and metric",
            remedy="omit --resume",
        )
    return state
