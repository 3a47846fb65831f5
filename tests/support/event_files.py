"""Event files of TensorBoard, read back without TensorBoard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any


def values_in(folder: Path) -> Iterator[tuple[int, Any]]:
    """Return (step, value) of all event files in a folder, in the order of their names.

    A file has records: length (8 bytes), checksum (4), an Event, checksum (4).
    """
    from tensorboardX.proto import event_pb2

    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        while content:
            length = int.from_bytes(content[:8], "little")
            event = event_pb2.Event.FromString(content[12 : 12 + length])  # pyright: ignore[reportAttributeAccessIssue] made when it is imported
            yield from ((event.step, value) for value in event.summary.value)
            content = content[16 + length :]


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return tag -> (step, number) of the scalars in a folder."""
    found: dict[str, list[tuple[int, float]]] = {}
    for step, value in values_in(folder):
        if value.WhichOneof("value") == "simple_value":
            found.setdefault(value.tag, []).append((step, value.simple_value))
    return found


def histograms(folder: Path) -> dict[str, list[tuple[int, Any]]]:
    """Return tag -> (step, histogram) of the histograms in a folder."""
    found: dict[str, list[tuple[int, Any]]] = {}
    for step, value in values_in(folder):
        if value.WhichOneof("value") == "histo":
            found.setdefault(value.tag, []).append((step, value.histo))
    return found


def settings(folder: Path) -> dict[str, str | float | bool]:
    """Return the hyperparameters in a folder, as the tab HPARAMS reads them."""
    from tensorboardX.proto import plugin_hparams_pb2

    found: dict[str, str | float | bool] = {}
    for _, value in values_in(folder):
        if value.metadata.plugin_data.plugin_name == "hparams":
            data = plugin_hparams_pb2.HParamsPluginData.FromString(  # pyright: ignore[reportAttributeAccessIssue] made when it is imported
                value.metadata.plugin_data.content
            )
            for name, setting in data.session_start_info.hparams.items():
                found[name] = getattr(setting, setting.WhichOneof("kind"))
    return found
