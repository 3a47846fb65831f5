"""TensorFlow's environment variables of its graph rewrite, read as those of this package.

https://github.com/tensorflow/tensorflow/blob/v2.16.1/tensorflow/core/grappler/optimizers/auto_mixed_precision_lists.h
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import lru_cache

from amp_rewrite.graph import schemas

ENABLE = "TF_ENABLE_AUTO_MIXED_PRECISION"
"""The variable that lets new training sessions compute in float16; global_state.py reads it."""

_THEIRS, _OURS = "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_", "AMP_REWRITE_"
_SETTINGS = ("LEVEL", "LOG_PATH")

_log = logging.getLogger(__name__)


def with_tensorflow(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment with TensorFlow's variables under this package's names.

    A variable of this package wins over TensorFlow's of the same meaning. Operators that ONNX does
    not know (`Conv2D`, `FusedBatchNormV3`) are left out: such a variable was set for TensorFlow's
    graphs. One line in the log says what was read.
    """
    theirs = {name: value for name, value in environ.items() if name.startswith(_THEIRS) and value}
    if not theirs:
        return environ
    read: dict[str, str] = {}
    unknown: list[str] = []
    for name, value in theirs.items():
        word = name.removeprefix(_THEIRS)
        if _OURS + word in environ:
            continue
        if word in _SETTINGS:
            read[_OURS + word] = value
        elif word.endswith(("_ADD", "_REMOVE")):
            names = [each.strip() for each in value.split(",") if each.strip()]
            standard = [each for each in names if each in schemas.names("")]
            unknown += [each for each in names if each not in standard]
            read[_OURS + word] = ",".join(standard)
    _log_variables(tuple(sorted(theirs)), tuple(unknown))
    return {**environ, **read}


def is_enabled(environ: Mapping[str, str]) -> bool:
    """Return whether TensorFlow's variable enables the graph rewrite."""
    enabled = environ.get(ENABLE, "").strip().lower() in ("1", "true")
    if enabled:
        _log_variables((ENABLE,), ())
    return enabled


@lru_cache(maxsize=64)
def _log_variables(names: tuple[str, ...], unknown: tuple[str, ...]) -> None:
    """Log once that variables were read."""
    rest = f"; no operators of ONNX: {', '.join(unknown)}" if unknown else ""
    _log.warning("read TensorFlow's environment variables: %s%s", ", ".join(names), rest)


def forget() -> None:
    """Forget which lines were logged, for tests."""
    _log_variables.cache_clear()
