"""Folders: every model in turn, all else as it is, one type on both sides, whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import model_folders as folders
import numpy as np
import onnx
import onnxruntime as ort
import pytest

import amp_rewrite as amp
from amp_rewrite.errors import LoadError, OptionError, SaveError
from amp_rewrite.numerics.compare.made_up_inputs import make_inputs
from amp_rewrite.numerics.folder_report import FolderReport, ModelEntry


def run(path: Path, feeds: Mapping[str, np.ndarray]) -> list[Any]:
    """Run a model with ONNX Runtime."""
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))


def numbers(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(7).normal(0, 1, shape).astype(dtype)


def test_every_model_is_converted_and_all_else_is_copied(tmp_path: Path) -> None:
    source, target = folders.optimum(tmp_path / "in"), tmp_path / "out"
    before = folders.tree(source)
    report = amp.convert_folder(source, target)
    assert report.ok
    assert report.written
    assert [m.state for m in report.models] == ["changed", "changed"]
    after = folders.tree(target)
    assert set(after) == set(before)
    assert folders.tree(source) == before
    for name in ("config.json", "tokenizer/tokenizer.json"):
        assert after[name] == before[name]
    feed = {"input_features": numbers(1, 5, 64)}
    (encoded,) = run(target / "encoder_model.onnx", feed)
    assert encoded.dtype == np.float32
    (reference,) = run(source / "encoder_model.onnx", feed)
    assert np.abs(encoded - reference).max() < 0.02 * np.abs(reference).max()
    past = {
        "inputs_embeds": numbers(1, 1, 64),
        "encoder_hidden_states": encoded,
        "past_key_values.0.key": numbers(1, 3, 64),
        "use_cache_branch": np.array([True]),
    }
    logits, present = run(target / "decoder_model_merged.onnx", past)
    assert present.shape == (1, 4, 64)
    assert np.isfinite(logits).all()


def test_what_is_connected_changes_its_type_on_both_sides(tmp_path: Path) -> None:
    source, target = folders.optimum(tmp_path / "in"), tmp_path / "out"
    report = amp.convert_folder(source, target, keep_io_types=False)
    assert report.mismatches == ()
    assert report.connections == 2
    encoder = folders.types_of(target / "encoder_model.onnx")
    decoder = folders.types_of(target / "decoder_model_merged.onnx")
    assert encoder["last_hidden_state"] == decoder["encoder_hidden_states"] == "FLOAT16"
    assert decoder["present.0.key"] == decoder["past_key_values.0.key"] == "FLOAT16"


def test_each_model_gets_a_data_file_called_as_exporters_call_it(tmp_path: Path) -> None:
    source, target = folders.sharing(tmp_path / "in"), tmp_path / "out"
    amp.convert_folder(source, target)
    assert set(folders.tree(target)) == {
        "decoder_model.onnx",
        "decoder_model.onnx_data",
        "decoder_with_past_model.onnx",
        "decoder_with_past_model.onnx_data",
    }
    feed = {"inputs_embeds": numbers(1, 2, 64), "encoder_hidden_states": numbers(1, 3, 64)}
    past = {"past_key_values.0.key": numbers(1, 3, 64)}
    for name, feeds in (("decoder_model", feed), ("decoder_with_past_model", feed | past)):
        logits, _ = run(target / f"{name}.onnx", feeds)
        reference, _ = run(source / f"{name}.onnx", feeds)
        assert np.abs(logits - reference).max() < 0.02 * np.abs(reference).max()


@pytest.mark.parametrize("broken", [b"", b"not a model"])
def test_the_failure_of_one_model_leaves_no_folder_and_says_which(
    tmp_path: Path, broken: bytes
) -> None:
    source, target = folders.optimum(tmp_path / "in"), tmp_path / "out"
    (source / "encoder_model.onnx").write_bytes(broken)
    report = amp.convert_folder(source, target)
    assert not report.ok
    assert [m.state for m in report.models] == ["changed", "failed"]
    assert str(source / "encoder_model.onnx") in report.models[1].said
    assert "nothing was written, because of encoder_model.onnx" in report.verdict
    assert os.listdir(tmp_path) == ["in"]


def test_a_model_that_does_not_hold_leaves_no_folder(tmp_path: Path) -> None:
    short = folders.ENCODER.replace("1,s,64", "1,2,64")
    source, target = folders.write_folder(tmp_path / "in", {"model.onnx": short}), tmp_path / "out"
    report = amp.convert_folder(source, target, verify=True, stress=False, rtol=0.0)
    assert [m.state for m in report.models] == ["refused"]
    assert not report.ok
    assert os.listdir(tmp_path) == ["in"]
    report = amp.convert_folder(
        source, target, verify=True, stress=False, rtol=0.0, write_failed=True
    )
    assert report.written
    assert "but these failed: model.onnx" in report.verdict


def test_of_several_forms_the_plain_one_becomes_the_one_that_a_browser_looks_for(
    tmp_path: Path,
) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    folders.write_folder(source, {"onnx/decoder_model.onnx": folders.DECODER})
    folders.save(source / "onnx/decoder_model_int8.onnx", folders.model(folders.DECODER))
    folders.save(source / "onnx/decoder_model_fp16.onnx", folders.model(folders.DECODER, "float16"))
    before = folders.tree(source)
    with pytest.raises(OptionError, match="the place of a form that is there already") as refused:
        amp.convert_folder(source, target)
    assert "found onnx/decoder_model_fp16.onnx; remove it, or" in str(refused.value)
    assert os.listdir(tmp_path) == ["in"]
    report = amp.convert_folder(source, target, replace_forms=True)
    after = folders.tree(target)
    assert set(after) == set(before)
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"onnx/decoder_model_fp16.onnx"}
    assert report.left_out == {
        "onnx/decoder_model_fp16.onnx": "what is made of onnx/decoder_model.onnx takes its place",
        "onnx/decoder_model_int8.onnx": "another form is converted",
    }
    assert folders.types_of(target / "onnx/decoder_model_fp16.onnx")["logits"] == "FLOAT"


FORMS = {"onnx/decoder_model.onnx": folders.DECODER, "onnx/encoder_model.onnx": folders.ENCODER}


def test_a_layout_for_browsers_is_converted_for_webgpu_unless_told_otherwise(
    tmp_path: Path,
) -> None:
    source = folders.write_folder(tmp_path / "in", FORMS)
    report = amp.convert_folder(source, tmp_path / "web")
    assert (
        report.to_text()
        .splitlines()[1]
        .startswith("target webgpu: the folder is laid out for transformers.js")
    )
    assert report.to_dict()["target"] == "webgpu"
    assert targets_of(tmp_path / "web") == {"webgpu"}
    told = amp.convert_folder(source, tmp_path / "listed", lists="float16_cuda")
    assert told.target is None
    assert targets_of(tmp_path / "listed") == {"cuda"}
    assert amp.convert_folder(source, None, precision="bfloat16").target is None
    optimum = amp.convert_folder(folders.optimum(tmp_path / "plain"), None)
    assert optimum.target is None
    assert amp.convert_folder(source, tmp_path / "told", target="directml").target is None


def targets_of(folder: Path) -> set[str]:
    """Return the targets that the float16 models of a folder say they were made for."""
    models = (onnx.load(path) for path in folder.rglob("*_fp16.onnx"))
    return {p.value for m in models for p in m.metadata_props if p.key == "amp_rewrite.target"}


def test_links_into_a_cache_are_followed(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "main"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    folders.sharing(tmp_path / "in")
    for number, file in enumerate(sorted((tmp_path / "in").iterdir())):
        file.rename(blobs / f"blob{number}")
        (snapshot / file.name).symlink_to(os.path.join("..", "..", "blobs", f"blob{number}"))
    report = amp.convert_folder(snapshot, tmp_path / "out")
    assert report.ok
    assert not any(path.is_symlink() for path in (tmp_path / "out").iterdir())


def test_what_is_no_folder_of_models_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "config.json").write_text("{}")
    with pytest.raises(LoadError, match="the folder holds no model"):
        amp.convert_folder(tmp_path / "in", tmp_path / "out")
    source = folders.optimum(tmp_path / "models")
    (source / "lost").symlink_to("nowhere")
    with pytest.raises(LoadError, match="lost: a symbolic link that leads nowhere"):
        amp.convert_folder(source)
    (source / "lost").unlink()
    (source / "more").symlink_to(tmp_path / "in")
    with pytest.raises(LoadError, match="more: a symbolic link to a folder"):
        amp.convert_folder(source)


def test_a_target_that_is_no_new_folder_is_refused(tmp_path: Path) -> None:
    source = folders.optimum(tmp_path / "in")
    with pytest.raises(SaveError, match="is the folder that is read, or lies in it"):
        amp.convert_folder(source, source / "out")
    with pytest.raises(SaveError, match="is the folder that is read, or lies in it"):
        amp.convert_folder(source, source)
    with pytest.raises(SaveError, match="exists already"):
        amp.convert_folder(source / "tokenizer" / "..", tmp_path)
    (tmp_path / "empty").mkdir()
    assert amp.convert_folder(source, tmp_path / "empty").written
    assert amp.convert_folder(source, tmp_path / "a" / "b").written


def test_a_name_has_to_fit_one_model_of_the_folder(tmp_path: Path) -> None:
    source = folders.optimum(tmp_path / "in")
    report = amp.convert_folder(source, None, deny_ops=["Relu"], keep_io_types=["logits"])
    assert [m.state for m in report.models] == ["changed", "changed"]
    with pytest.raises(OptionError, match="deny_ops names nothing in the model"):
        amp.convert_folder(source, None, deny_ops=["Conv"])
    with pytest.raises(OptionError, match="keep_io_types names nothing"):
        amp.convert_folder(source, None, keep_io_types=["logit"])


def test_a_folder_becomes_its_float32_form(tmp_path: Path) -> None:
    source, target = folders.optimum(tmp_path / "in", "float16"), tmp_path / "out"
    report = amp.convert_folder(source, target, precision="float32", keep_io_types=False)
    assert report.mismatches == ()
    for name in ("encoder_model.onnx", "decoder_model_merged.onnx"):
        assert "FLOAT16" not in folders.types_of(target / name).values()
        assert all(
            t.data_type != onnx.TensorProto.FLOAT16
            for t in onnx.load(target / name).graph.initializer
        )


def test_the_report_has_an_entry_for_each_model(tmp_path: Path) -> None:
    source = folders.optimum(tmp_path / "in")
    report = amp.convert_folder(source, tmp_path / "out")
    content = json.loads(report.to_json())
    assert [m["file"] for m in content["models"]] == [
        "decoder_model_merged.onnx",
        "encoder_model.onnx",
    ]
    assert content["models"][0]["report"]["precision"] == "float16"
    assert content["totals"] == {"changed": 2, "unchanged": 0, "refused": 0, "failed": 0}
    assert content["connections"] == 2
    assert report.verdict in repr(report)
    assert report.to_text().startswith(report.verdict)


def test_a_folder_leaves_with_the_status_of_its_worst_model() -> None:
    def entry(state: Any, status: int | None) -> ModelEntry:
        report = None if status is None else {"verdict": {"exit_status": status}}
        return ModelEntry("m.onnx", None, state, "said", report=report)

    changed, doubted = entry("changed", 0), entry("refused", 4)
    for models, status in (
        ((changed,), 0),
        ((changed, doubted), 4),
        ((doubted, entry("refused", 1)), 1),
        ((doubted, entry("refused", 0)), 1),
        ((doubted, entry("failed", None)), 1),
    ):
        assert FolderReport("f", None, models, {}).exit_status == status


@pytest.mark.parametrize(
    ("verified", "word"),
    [
        ((), "Not verified"),
        (("encoder_model.onnx",), "Partly verified"),
        (("encoder_model.onnx", "decoder_model_merged.onnx"), "Passed"),
    ],
)
def test_a_folder_says_whether_all_models_were_verified(
    tmp_path: Path, verified: tuple[str, ...], word: str
) -> None:
    source, data = folders.optimum(tmp_path / "in"), {}
    for name in verified:
        data[name] = tmp_path / f"{name}.npz"
        feeds: dict[str, Any] = {**make_inputs(source / name).batches[0]}
        np.savez(data[name], **feeds)
    report = amp.convert_folder(source, tmp_path / "out", data=data or None)
    assert report.verdict.startswith(f"{word}: 2 of 2 models changed")
