"""Networks of images with random weights, as transformers, diffusers and torchvision build them."""

# What exports is optional, and not there where types are checked.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import diffusers
import numpy as np
import torch
import transformers
from networks import SHORT, Cases, Network, picked, picture, picture_cases, seeded
from torchvision.models.detection.anchor_utils import DefaultBoxGenerator
from torchvision.models.detection.ssd import SSD
from torchvision.ops import boxes as box_ops

WIDTH, HEADS, LAYERS, SIDE, CLASSES = 128, 4, 2, 64, 10
SPREAD = WIDTH**-0.5
"""The spread of initial weights: what 0.02 is to the widths that it was chosen for."""

_STAGES: dict[str, Any] = {"depths": [1, 1, 2, 1], "initializer_range": 0.1}
_BATCH = {"pixel_values": {0: "batch"}}


def _classifier(model: Any, output: str = "logits", side: int = SIDE) -> Network:
    rng = np.random.default_rng(0)
    cases = picture_cases("pixel_values", picture(rng, 2, 3, side, side))
    return picked(model, [output], cases, _BATCH)


def vit() -> Network:
    """Return a ViT."""
    seeded()
    config = transformers.ViTConfig(
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH,
        image_size=SIDE,
        patch_size=8,
        initializer_range=SPREAD,
        num_labels=CLASSES,
    )
    return _classifier(transformers.ViTForImageClassification(config))


def swin() -> Network:
    """Return a Swin transformer: shifted windows, masks, relative positions."""
    seeded()
    config = transformers.SwinConfig(
        image_size=SIDE,
        patch_size=2,
        embed_dim=32,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=4,
        initializer_range=0.1,
        num_labels=CLASSES,
    )
    return _classifier(transformers.SwinForImageClassification(config))


def convnext() -> Network:
    """Return a ConvNeXt."""
    seeded()
    config = transformers.ConvNextConfig(
        hidden_sizes=[32, 64, 96, 128], num_labels=CLASSES, **_STAGES
    )
    return _classifier(transformers.ConvNextForImageClassification(config))


def segformer() -> Network:
    """Return a SegFormer: logits of classes for every fourth pixel."""
    seeded()
    config = transformers.SegformerConfig(
        hidden_sizes=[16, 32, 64, 128],
        depths=[1, 1, 2, 1],
        num_attention_heads=[1, 2, 4, 8],
        decoder_hidden_size=64,
        initializer_range=0.1,
        num_labels=CLASSES,
    )
    return _classifier(transformers.SegformerForSemanticSegmentation(config))


def detr() -> Network:
    """Return a DETR over a small ResNet: logits and boxes of queries."""
    rng = seeded()
    backbone = transformers.ResNetConfig(
        embedding_size=16,
        hidden_sizes=[32, 64, 64, 128],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage4"],
    )
    config = transformers.DetrConfig(
        backbone_config=backbone,
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        d_model=64,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        num_queries=20,
        num_labels=CLASSES,
        init_std=0.1,
    )
    cases = picture_cases("pixel_values", picture(rng, 1, 3, 96, 128))
    model = transformers.DetrForObjectDetection(config)
    return picked(model, ["logits", "pred_boxes"], cases)


def clip() -> Network:
    """Return a CLIP: how similar texts and images are, and their embeddings."""
    rng = seeded()
    tower = {
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": 4 * WIDTH,
    }
    config = transformers.CLIPConfig(
        text_config={**tower, "vocab_size": 512, "eos_token_id": 511, "bos_token_id": 510},
        vision_config={**tower, "image_size": SIDE, "patch_size": 8},
        projection_dim=64,
    )
    words = rng.integers(2, 510, (2, 16))
    words[:, -1] = 511
    mask = np.ones_like(words)
    cases = picture_cases(
        "pixel_values", picture(rng, 2, 3, SIDE, SIDE), input_ids=words, attention_mask=mask
    )
    masked = mask.copy()
    masked[0, 8:], masked[1] = 0, 0
    cases["masked"] = {**cases[SHORT], "attention_mask": masked}
    outputs = ["logits_per_image", "text_embeds", "image_embeds"]
    return picked(transformers.CLIPModel(config), outputs, cases)


def unet() -> Network:
    """Return a conditional diffusion UNet."""
    rng = seeded()
    model = diffusers.UNet2DConditionModel(
        sample_size=16,
        block_out_channels=(32, 64),
        layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=32,
        attention_head_dim=8,
        norm_num_groups=8,
    )
    sample = rng.standard_normal((2, 4, 16, 16)).astype(np.float32)
    words = rng.standard_normal((2, 8, 32)).astype(np.float32)
    short = {"sample": sample, "timestep": np.array([500, 3]), "encoder_hidden_states": words}
    cases: Cases = {
        SHORT: short,
        "last_step": {**short, "timestep": np.array([999, 998])},
        "first_step": {**short, "timestep": np.array([0, 1])},
        "zeros": {name: np.zeros_like(array) for name, array in short.items()},
        "large": {**short, "sample": 40 * sample, "encoder_hidden_states": 40 * words},
    }
    # Input and output are called the same, which ONNX does not allow and no exporter undoes.
    return replace(picked(model, ["sample"], cases), outputs=("noise",))


class VaeDecoder(torch.nn.Module):
    """The decoder of an autoencoder, from latents to images."""

    def __init__(self, autoencoder: Any) -> None:
        """Take the decoder out of an AutoencoderKL."""
        super().__init__()
        self.autoencoder = autoencoder

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the images of latents."""
        return tuple(self.autoencoder.decode(*tensors, return_dict=False))


def vae_decoder() -> Network:
    """Return the decoder of a diffusion model's autoencoder."""
    rng = seeded()
    model = diffusers.AutoencoderKL(
        block_out_channels=(32, 64),
        down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
        up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
        norm_num_groups=8,
    )
    latents = rng.standard_normal((1, 4, 16, 16)).astype(np.float32)
    scaled = {SHORT: 1.0, "zeros": 0.0, "large": 40.0}
    cases = {name: {"latents": latents * np.float32(scale)} for name, scale in scaled.items()}
    return Network(VaeDecoder(model).eval(), ("images",), cases)


class SmallBackbone(torch.nn.Module):
    """Convolutions that halve an image; SSD looks at three of their outputs."""

    out_channels = (32, 64, 64)

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        sizes = zip((3, 16, *self.out_channels), (16, *self.out_channels), strict=False)
        self.layers = torch.nn.ModuleList(
            torch.nn.Sequential(
                torch.nn.Conv2d(narrow, wide, 3, stride=2, padding=1, bias=False),
                torch.nn.BatchNorm2d(wide),
                torch.nn.ReLU6(),
            )
            for narrow, wide in sizes
        )

    def forward(self, x: torch.Tensor) -> OrderedDict[str, torch.Tensor]:
        """Return the features by level."""
        levels: OrderedDict[str, torch.Tensor] = OrderedDict()
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if i:
                levels[str(i)] = x
        return levels


class Heads(torch.nn.Module):
    """An SSD up to the scores and boxes of all anchors, as detectors on devices are exported."""

    def __init__(self, detector: Any) -> None:
        """Wrap torchvision's detector."""
        super().__init__()
        self.detector = detector

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return scores and boxes of one image."""
        images, heads, [anchors] = self.look(*tensors)
        boxes = self.detector.box_coder.decode_single(heads["bbox_regression"][0], anchors)
        return heads["cls_logits"].softmax(-1), box_ops.clip_boxes_to_image(
            boxes, images.image_sizes[0]
        )

    def look(self, image: torch.Tensor) -> tuple[Any, Any, Any]:
        """Return the image as the detector takes it, what its heads say, and the anchors."""
        images, _ = self.detector.transform([image[0]])
        features = list(self.detector.backbone(images.tensors).values())
        return (
            images,
            self.detector.head(features),
            self.detector.anchor_generator(images, features),
        )


class Detections(Heads):
    """The same up to the detections that are left when overlapping boxes are suppressed."""

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return boxes, scores and labels of one image."""
        images, heads, anchors = self.look(*tensors)
        [found] = self.detector.postprocess_detections(heads, anchors, images.image_sizes)
        return found["boxes"], found["scores"], found["labels"]


def _detector(kind: type[Heads], outputs: tuple[str, ...]) -> Network:
    rng = seeded()
    generator = DefaultBoxGenerator([[2], [2, 3], [2]])
    detector = SSD(SmallBackbone(), generator, (SIDE, SIDE), num_classes=4, detections_per_img=20)
    cases = picture_cases("image", picture(rng, 1, 3, SIDE, SIDE))
    return Network(kind(detector).eval(), outputs, cases)


def ssd() -> Network:
    """Return an SSD over a small backbone."""
    return _detector(Heads, ("scores", "boxes"))


def ssd_nms() -> Network:
    """Return the same SSD, suppression of overlapping boxes included."""
    return _detector(Detections, ("boxes", "scores", "labels"))


VISION: dict[str, Callable[[], Network]] = {
    make.__name__: make
    for make in (vit, swin, convnext, segformer, detr, clip, unet, vae_decoder, ssd, ssd_nms)
}
"""Name -> how the network is made."""
