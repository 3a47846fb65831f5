"""A folder with models, as Optimum, ONNX Runtime GenAI and transformers.js lay it out.

Beside models lie their data files, configurations and tokenizers. transformers.js keeps a model in
several forms beside each other, told apart by the ends of their names: `model.onnx`,
`model_fp16.onnx`, `model_q4f16.onnx`. Files may be symbolic links, as in the cache of Hugging Face.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import NamedTuple

from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.errors import LoadError

VARIANTS: tuple[str, ...] = (
    *("_fp16", "_int8", "_uint8", "_quantized", "_q8", "_bnb4"),
    *("_q4", "_q4f16", "_q2", "_q2f16", "_q1", "_q1f16"),
)
"""How names of other forms of a model end; the form in float32 has none of these."""

_IN_FLOAT16 = {"": "_fp16", "_q4": "_q4f16", "_q2": "_q2f16", "_q1": "_q1f16"}
"""How the name of a form ends -> how that of the same in float16 does."""

_MODEL = ".onnx"

_FORMS_FOLDER = "onnx"
"""Where transformers.js looks for a model's forms."""

_BESIDE_FORMS = ("config.json", "tokenizer.json", "preprocessor_config.json", "model_index.json")
"""Files next to that folder; one of them tells that the folder above is the model's."""


class ModelFile(NamedTuple):
    """A model in a folder.

    Attributes:
        name: Its path relative to the folder, with slashes.
        base: The same without the end that tells the form, and without `.onnx`.
        variant: That end: one of VARIANTS, or "".
        is_form: Whether it lies where transformers.js looks for forms.
    """

    name: str
    base: str
    variant: str
    is_form: bool

    @classmethod
    def of(cls, name: str, root: str = "") -> ModelFile:
        """Return the model of a name, in a folder whose own name is `root`."""
        stem = name[: -len(_MODEL)]
        variant = next((end for end in VARIANTS if stem.endswith(end)), "")
        folder = PurePosixPath(root, name).parent.name
        return cls(name, stem.removesuffix(variant), variant, folder == _FORMS_FOLDER)

    @property
    def called(self) -> tuple[str, ...]:
        """The names that users may give it: with or without its folder and the end `.onnx`."""
        stem = self.name[: -len(_MODEL)]
        return self.name, stem, self.name.rpartition("/")[2], stem.rpartition("/")[2]

    @property
    def folder(self) -> str:
        """Where in the folder it lies; "" for the folder itself."""
        return self.name.rpartition("/")[0]

    def in_precision(self, precision: str) -> str:
        """Return the name under which its form in a 16-bit type is looked for."""
        has_forms = precision == FLOAT16.name and self.variant in _IN_FLOAT16
        if not has_forms or not self.is_form:
            return self.name
        return f"{self.base}{_IN_FLOAT16[self.variant]}{_MODEL}"


@dataclass(frozen=True)
class ModelFolder:
    """The files and models of a folder."""

    path: str
    files: tuple[str, ...]
    models: tuple[ModelFile, ...]

    @classmethod
    def read(cls, path: str) -> ModelFolder:
        """Look what lies in a folder; no file is opened.

        Raises:
            LoadError: It cannot be read, holds no model, or a link in it leads nowhere or to a
                folder.
        """
        path = _model_folder_of(path)
        files = tuple(sorted(_files(path)))
        root = os.path.basename(os.path.abspath(path))
        models = [ModelFile.of(name, root) for name in files if name.lower().endswith(_MODEL)]
        if not models:
            raise LoadError(
                "the folder holds no model", where=path, expected="a file *.onnx in it or below"
            )
        return cls(path, files, tuple(models))

    def of(self, name: str) -> str:
        """Return the path of a file in it."""
        return os.path.join(self.path, *name.split("/"))

    @property
    def has_forms(self) -> bool:
        """Whether it is laid out as transformers.js looks for models."""
        return any(model.is_form for model in self.models)

    def convertible(self) -> tuple[ModelFile, ...]:
        """Return the models to convert: of those that are there in several forms, the plain ones.

        Those are the form in float32 and, where transformers.js looks for forms, those in few bits
        that compute in float32.
        """
        plain = {model.base for model in self.models if not model.variant}
        becomes = {model.name: model.in_precision(FLOAT16.name) for model in self.models}
        forms = {name for file, name in becomes.items() if name != file}
        return tuple(
            model
            for model in self.models
            if model.name not in forms
            and (model.base not in plain or not model.variant or becomes[model.name] != model.name)
        )


def _model_folder_of(path: str) -> str:
    inner = os.path.abspath(path)
    above, name = os.path.split(inner)
    is_model = any(os.path.isfile(os.path.join(above, file)) for file in _BESIDE_FORMS)
    if name != _FORMS_FOLDER or not is_model or not os.path.isdir(inner):
        return path
    return os.path.dirname(os.path.normpath(path)) or os.path.relpath(above)


def _files(path: str) -> Iterator[str]:
    def unreadable(error: OSError) -> None:
        raise LoadError(
            "the folder cannot be read", where=error.filename or path, found=error.strerror
        ) from error

    for folder, inner, names in os.walk(path, onerror=unreadable):
        for name in inner:
            if os.path.islink(os.path.join(folder, name)):
                raise LoadError(
                    "a symbolic link to a folder",
                    where=os.path.join(folder, name),
                    remedy="copy the folder without links, for example by cp -rL",
                )
        for name in names:
            file = os.path.join(folder, name)
            if not os.path.isfile(file):
                what = "a symbolic link that leads nowhere" if os.path.islink(file) else "no file"
                raise LoadError(
                    what, where=file, expected="files, or links to files", remedy="remove it"
                )
            yield os.path.relpath(file, path).replace(os.sep, "/")
