"""Folders as exporters write them: an encoder, decoders that share their weights, and the rest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx.external_data_helper
import onnx.parser
from onnx import numpy_helper

WIDTH = 64
_HEADER = '<ir_version: 10, opset_import: ["" : 18]>'

ENCODER = """g (FLOAT[1,s,64] input_features) => (FLOAT[1,s,64] last_hidden_state) {
  h = MatMul(input_features, w_encoder) r = Relu(h) last_hidden_state = MatMul(r, w_out) }"""

_STEP = """["{0}/k"] k{0} = MatMul(inputs_embeds, w_key)
  ["{0}/c"] c{0} = MatMul(encoder_hidden_states, w_cross)
  ["{0}/q"] q{0} = MatMul(inputs_embeds, w_query)
  ["{0}/m"] m{0} = ReduceMean <keepdims = 1> (c{0}, axis)
  ["{0}/a"] a{0} = Add(q{0}, m{0})"""

DECODER = f"""g (FLOAT[1,t,64] inputs_embeds, FLOAT[1,s,64] encoder_hidden_states)
  => (FLOAT[1,t,64] logits, FLOAT[1,t,64] "present.0.key") <int64[1] axis = {{1}}> {{
  {_STEP.format("first")} logits = MatMul(afirst, w_out) "present.0.key" = Identity(kfirst) }}"""

WITH_PAST = f"""g (FLOAT[1,t,64] inputs_embeds, FLOAT[1,s,64] encoder_hidden_states,
   FLOAT[1,p,64] "past_key_values.0.key")
  => (FLOAT[1,t,64] logits, FLOAT[1,u,64] "present.0.key") <int64[1] axis = {{1}}> {{
  {_STEP.format("next")} logits = MatMul(anext, w_out)
  "present.0.key" = Concat <axis = 1> ("past_key_values.0.key", knext) }}"""

MERGED = f"""g (FLOAT[1,t,64] inputs_embeds, FLOAT[1,s,64] encoder_hidden_states,
   FLOAT[1,p,64] "past_key_values.0.key", bool[1] use_cache_branch)
  => (FLOAT[1,t,64] logits, FLOAT[1,u,64] "present.0.key") <int64[1] axis = {{1}}> {{
  logits, "present.0.key" = If(use_cache_branch) <
    then_branch = with_past () => (FLOAT[1,t,64] logits_next, FLOAT[1,u,64] present_next) {{
      {_STEP.format("next")} logits_next = MatMul(anext, w_out)
      present_next = Concat <axis = 1> ("past_key_values.0.key", knext) }},
    else_branch = no_past () => (FLOAT[1,t,64] logits_first, FLOAT[1,t,64] present_first) {{
      {_STEP.format("first")} logits_first = MatMul(afirst, w_out)
      present_first = Identity(kfirst) }}> }}"""

EMBEDDER = """g (int64[1,t] input_ids) => (FLOAT[1,t,64] inputs_embeds) {
  inputs_embeds = Gather(w_table, input_ids) }"""

CONFIG = {"model_type": "whisper", "transformers.js_config": {"use_external_data_format": True}}

_SHAPES = {
    "w_encoder": (WIDTH, WIDTH),
    "w_out": (WIDTH, WIDTH),
    "w_key": (WIDTH, WIDTH),
    "w_cross": (WIDTH, WIDTH),
    "w_query": (WIDTH, WIDTH),
    "w_table": (32, WIDTH),
}


def model(text: str, dtype: str = "float") -> onnx.ModelProto:
    """Return a model with random weights: those of one name are the same in all."""
    parsed = onnx.parser.parse_model(f"{_HEADER}\n{text.replace('FLOAT', dtype)}")
    numpy_type = {"float": np.float32, "float16": np.float16}[dtype]
    for number, (name, shape) in enumerate(_SHAPES.items()):
        if name in text:
            weight = np.random.default_rng(number).normal(0, 0.1, shape).astype(numpy_type)
            parsed.graph.initializer.append(numpy_helper.from_array(weight, name))
    return parsed


def save(path: Path, made: onnx.ModelProto, data: str | None = None) -> None:
    """Write a model, with weights in a data file if one is named: each has its place there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if data is None:
        onnx.save(made, path)
        return
    content = bytearray()
    places: dict[str, int] = {}
    file = path.with_name(data)
    if file.exists():  # written by another model: weights of one name have one place
        places = json.loads(file.with_suffix(".places").read_text())
        content += file.read_bytes()
    for tensor in made.graph.initializer:
        if not tensor.name.startswith("w_"):
            continue
        if tensor.name not in places:
            places[tensor.name] = len(content)
            content += tensor.raw_data
        length = len(tensor.raw_data)
        onnx.external_data_helper.set_external_data(tensor, data, places[tensor.name], length)
        tensor.ClearField("raw_data")
    file.write_bytes(content)
    file.with_suffix(".places").write_text(json.dumps(places))
    path.write_bytes(made.SerializeToString())


def write_folder(folder: Path, models: Mapping[str, str], dtype: str = "float") -> Path:
    """Write a folder with models, a configuration and a tokenizer; return it."""
    for name, text in models.items():
        save(folder / name, model(text, dtype))
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer").mkdir()
    (folder / "tokenizer" / "tokenizer.json").write_text("{}")
    return folder


def optimum(folder: Path, dtype: str = "float") -> Path:
    """Write what Optimum exports of an encoder and a decoder; return the folder."""
    texts = {"encoder_model.onnx": ENCODER, "decoder_model_merged.onnx": MERGED}
    return write_folder(folder, texts, dtype)


def sharing(folder: Path, dtype: str = "float") -> Path:
    """Write two decoders that read one data file; return the folder."""
    folder.mkdir()
    for name, text in (("decoder_model", DECODER), ("decoder_with_past_model", WITH_PAST)):
        save(folder / f"{name}.onnx", model(text, dtype), "decoder.onnx_data")
    (folder / "decoder.places").unlink()
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder, by their paths in it."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def types_of(path: Path) -> dict[str, str]:
    """Return the types of the inputs and outputs of a model file."""
    graph = onnx.load(path, load_external_data=False).graph
    name = onnx.TensorProto.DataType.Name
    return {end.name: name(end.type.tensor_type.elem_type) for end in (*graph.input, *graph.output)}
