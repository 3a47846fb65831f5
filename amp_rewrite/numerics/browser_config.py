"""The types of caches in the config.json of a model for transformers.js.

transformers.js makes the empty cache of a decoder's first step. Version 3 takes its type from
`transformers.js_config.kv_cache_dtype`, by the `dtype` that is loaded, and float32 where nothing is
said (`getSession` of its src/models.js); version 4 reads the session's inputs
(`session.inputMetadata` in its models/modeling_utils.js).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.graph.io.model_folder import ModelFile
from amp_rewrite.rewriting.connected_ends import Ends

_CONFIG = "config.json"
_OWN = "transformers.js_config"
_KEY = "kv_cache_dtype"


def note_cache_types(
    folder: str, written: Iterable[tuple[ModelFile, Ends]], copied: Iterable[str]
) -> tuple[str, ...]:
    """Write the types of caches into the config.json of each model, where they are not those there.

    Returns:
        A line for each file that was changed, or could not be.
    """
    types: dict[str, dict[str, str]] = {}
    for model, ends in written:
        caches = ends.cache_types
        config = f"{model.folder.rpartition('/')[0]}/{_CONFIG}".removeprefix("/")
        if model.is_form and model.variant and len(caches) == 1:
            types.setdefault(config, {})[model.variant.removeprefix("_")] = next(iter(caches))
    there = set(copied)
    lines = (_note(Path(folder, name), name, of) for name, of in types.items() if name in there)
    return tuple(line for line in lines if line is not None)


def _note(path: Path, name: str, types: Mapping[str, str]) -> str | None:
    """Write types by form into one file; return what was done, None if they were there."""
    try:
        config: Any = json.loads(path.read_text("utf-8"))
        own: dict[str, Any] = dict(config.get(_OWN) or {})
    except (ValueError, AttributeError, TypeError):
        return f"{name}: not a JSON object; transformers.js 3 needs {_KEY} there: {dict(types)}"
    said = own.get(_KEY) or {}
    if isinstance(said, str):
        said = {} if said == FLOAT32.name else dict.fromkeys(types, said)
    changes = {form: t for form, t in types.items() if said.get(form, FLOAT32.name) != t}
    if not changes:
        return None
    own[_KEY] = {**said, **changes}
    path.write_text(json.dumps({**config, _OWN: own}, indent=2, ensure_ascii=False) + "\n", "utf-8")
    text = ", ".join(f"{form}: {dtype}" for form, dtype in changes.items())
    return f"{name}: {_OWN}.{_KEY} is {text} now, as its caches are (for transformers.js 3)"
