"""Write a model from its messages, which may refer to weights that are elsewhere."""

from __future__ import annotations

import os

from amp_rewrite.errors import SaveError
from amp_rewrite.graph.io.checker import checker_fault, refuse_faults
from amp_rewrite.graph.io.content import Content, Messages
from amp_rewrite.graph.io.model_files import Meter, Path, Progress, replace_model, source_file
from amp_rewrite.graph.io.paths import path_text


def save_messages(
    messages: Messages,
    path: Path,
    progress: Progress | None = None,
    source: Messages | None = None,
    *,
    owned: bool = False,
) -> None:
    """Write a model: all of it or nothing, one tensor at a time.

    The messages are not changed unless they are `owned`: then nobody else uses them.

    Data in files go to one data file next to `path`, and so do those in memory that are too many
    for the model file. Of a `source` that the model was made of, onnx's checker has to refuse the
    one as well if it refuses the other.
    """
    output = os.path.abspath(path_text(path, SaveError))
    content = Content(*messages, owned=owned)
    if source is not None:
        refuse_faults(checker_fault(content), lambda: checker_fault(Content(*source)), output)
    sources = {file for file in map(source_file, content.streams.values()) if file is not None}
    external, meter = list(content.external.values()), Meter(content.total, progress)
    replace_model(output, external, content.parts, meter, sources)
