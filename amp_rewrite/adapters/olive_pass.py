"""A pass of Olive, https://github.com/microsoft/Olive: `AmpRewrite` in a workflow's configuration.

Olive knows a pass by its package configuration, which `package_config` makes.
"""

from __future__ import annotations

import json
from dataclasses import Field
from pathlib import Path
from typing import Any

from olive.model import ONNXModelHandler  # pyright: ignore[reportMissingImports] not a dependency
from olive.model.utils import resolve_onnx_path  # pyright: ignore[reportMissingImports]
from olive.package_config import OlivePackageConfig  # pyright: ignore[reportMissingImports]
from olive.passes import Pass  # pyright: ignore[reportMissingImports]
from olive.passes.pass_config import PassConfigParam  # pyright: ignore[reportMissingImports]

from amp_rewrite.rewriting.api import rewrite
from amp_rewrite.rewriting.plan.options import COMMAND_LINE, RewriteOptions

_ANY = {"supported_providers": ["*"], "supported_accelerators": ["*"]}


def package_config() -> dict[str, Any]:
    """Return Olive's own package configuration with the pass `AmpRewrite` in it.

    It is what `package_config` of `olive.run` takes, and as JSON `olive run --package-config`.
    """
    description = json.loads(Path(OlivePackageConfig.get_default_config_path()).read_text("utf-8"))
    ours = {
        "module_path": f"{__name__}.{AmpRewrite.__name__}",
        **_ANY,
        "supported_precisions": ["fp16", "bf16"],
    }
    return {**description, "passes": {**description["passes"], AmpRewrite.__name__: ours}}


class AmpRewrite(Pass):  # pyright: ignore[reportUntypedBaseClass] no types without Olive
    """Rewrite an ONNX model to mixed precision; the options are those of `RewriteOptions`."""

    @classmethod
    def _default_config(cls, accelerator_spec: Any) -> dict[str, PassConfigParam]:
        del accelerator_spec  # the option `target` says what the result is for
        return {
            option.name: PassConfigParam(
                type_=_type_of(option),
                default_value=option.default,
                description=option.metadata["help"],
            )
            for option in COMMAND_LINE
        }

    def _run_for_config(
        self, model: ONNXModelHandler, config: Any, output_model_path: str
    ) -> ONNXModelHandler:
        settings = config.model_dump()
        options = RewriteOptions(**{f.name: settings[f.name] for f in COMMAND_LINE})
        output = Path(resolve_onnx_path(output_model_path, Path(model.model_path).name))
        rewrite(model.model_path, options).save(output)
        # A folder, for large weights lie in a file beside the model.
        return ONNXModelHandler(model_path=str(output.parent), onnx_file_name=output.name)


def _type_of(option: Field[Any]) -> Any:
    """Return the type that an option has in a configuration, which is JSON."""
    names = list[str] | tuple[str, ...]
    if option.name == "lists":
        return str | names | None
    if option.metadata["flag"] is None:
        return str | None if option.default is None else type(option.default)
    return bool | names if isinstance(option.default, bool) else names
