"""Networks of text and speech with random weights, as transformers and torch build them."""

# What exports is optional, and not there where types are checked.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import transformers
from networks import SHORT, Array, Cases, Feeds, Network, picked, seeded

WIDTH, HEADS, LAYERS, WORDS = 128, 4, 2, 512
SPREAD = WIDTH**-0.5
"""The spread of initial weights: what 0.02 is to the widths that it was chosen for, so that
attention is as uneven and activations are as large as in a network of the usual size."""
BATCH, LENGTH, LONG = 2, 16, 512
POSITIONS = (1_000, 3_000, 30_000, 100_000)
"""Where late inputs of a model without a table of positions begin."""

_TEXT_AXES = {0: "batch", 1: "sequence"}


def ids(rng: np.random.Generator, *shape: int) -> Array:
    """Return token ids; 0 and 1 are left to padding and the like."""
    return rng.integers(2, WORDS, shape)


def _masked(length: int = LENGTH) -> Array:
    """Return a mask whose first row is padded on the left by half, and its second all over."""
    mask = np.ones((BATCH, length), np.int64)
    mask[0, : length // 2] = 0
    mask[1] = 0
    return mask


def _text(tokens: Array, **others: Array) -> Feeds:
    return {"input_ids": tokens, "attention_mask": np.ones_like(tokens), **others}


def _text_cases(rng: np.random.Generator, longest: int = LONG) -> Cases:
    """Return the cases of a model that counts positions itself."""
    tokens = ids(rng, BATCH, LENGTH)
    return {
        SHORT: _text(tokens),
        "long": _text(ids(rng, 1, longest)),
        "masked": {"input_ids": tokens, "attention_mask": _masked()},
        "repeated": _text(np.full_like(tokens, 7)),
        "zeros": _text(np.zeros_like(tokens)),
    }


def _free(cases: Cases) -> dict[str, dict[int, str]]:
    return {name: dict(_TEXT_AXES) for name in cases[SHORT]}


def _decoder_cases(rng: np.random.Generator, starts: tuple[int, ...], longest: int = LONG) -> Cases:
    """Return the cases of a decoder that is told positions: also late ones."""

    def placed(feeds: Feeds, start: int = 0) -> Feeds:
        tokens = feeds["input_ids"]
        positions = np.broadcast_to(np.arange(start, start + tokens.shape[1]), tokens.shape)
        return {**feeds, "position_ids": np.ascontiguousarray(positions)}

    cases = _text_cases(rng, longest)
    late = {f"position_{start}": placed(cases[SHORT], start) for start in starts}
    return {**{name: placed(feeds) for name, feeds in cases.items()}, **late}


def _decoder(config: Any, starts: tuple[int, ...] = POSITIONS, longest: int = LONG) -> Network:
    rng = seeded()
    model = transformers.AutoModelForCausalLM.from_config(config)
    cases = _decoder_cases(rng, starts, longest)
    return picked(model, ["logits"], cases, _free(cases), use_cache=False)


_DECODER: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": WIDTH,
    "intermediate_size": 2 * WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS // 2,
    "head_dim": WIDTH // HEADS,
    "max_position_embeddings": 131_072,
    "initializer_range": SPREAD,
}


def llama() -> Network:
    """Return a Llama: RMSNorm, rotary embedding, grouped queries, SwiGLU."""
    return _decoder(transformers.LlamaConfig(**_DECODER))


class MatMulAngles(torch.nn.Module):
    """The rotary angles as a product of matrices, which transformers wrote up to version 4."""

    def __init__(self, frequencies: torch.Tensor) -> None:
        """Take the frequencies of a rotary embedding."""
        super().__init__()
        self.frequencies = torch.nn.Buffer(frequencies)

    def forward(
        self, hidden: torch.Tensor, position_ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return cosines and sines (N, length, channels of a head)."""
        rows = position_ids.shape[0]
        column = self.frequencies[None, :, None].expand(rows, -1, 1)
        half = (column @ position_ids[:, None, :].to(hidden.dtype)).transpose(1, 2)
        angles = torch.cat((half, half), dim=-1)
        return angles.cos(), angles.sin()


def llama_matmul() -> Network:
    """Return the Llama with angles that a MatMul computes."""
    network = llama()
    body: Any = network.module.model.model
    body.rotary_emb = MatMulAngles(body.rotary_emb.inv_freq)
    return network


def qwen() -> Network:
    """Return a Qwen 3, which also normalizes queries and keys."""
    return _decoder(transformers.Qwen3Config(**_DECODER))


def gemma() -> Network:
    """Return a Gemma 3: scaled embedding, one layer with a sliding window, two rotary bases."""
    layers = ["sliding_attention", "full_attention"]
    return _decoder(
        transformers.Gemma3TextConfig(**_DECODER, layer_types=layers, sliding_window=64)
    )


def gemma2() -> Network:
    """Return a Gemma 2, which bounds attention scores and logits by Tanh."""
    return _decoder(transformers.Gemma2Config(**_DECODER, sliding_window=64))


def mistral() -> Network:
    """Return a Mistral: a Llama with a sliding window."""
    return _decoder(transformers.MistralConfig(**_DECODER, sliding_window=64))


def gpt2() -> Network:
    """Return a GPT-2: a table of 1,024 positions, of which late inputs take the last."""
    config = transformers.GPT2Config(
        vocab_size=WORDS, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, initializer_range=SPREAD
    )
    return _decoder(config, (1_024 - LENGTH,), 1_024)


_ENCODER: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": WIDTH,
    "intermediate_size": 4 * WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "initializer_range": SPREAD,
}


def bert() -> Network:
    """Return a BERT classifier."""
    rng = seeded()
    model = transformers.BertForSequenceClassification(transformers.BertConfig(**_ENCODER))
    cases = _text_cases(rng)
    for feeds in cases.values():
        feeds["token_type_ids"] = np.zeros_like(feeds["input_ids"])
    return picked(model, ["logits"], cases, _free(cases))


def deberta() -> Network:
    """Return a DeBERTa v2 with relative positions in queries and keys, as v3 has them."""
    rng = seeded()
    config = transformers.DebertaV2Config(
        **_ENCODER,
        relative_attention=True,
        position_buckets=64,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
    )
    cases = _text_cases(rng)
    return picked(transformers.DebertaV2Model(config), ["last_hidden_state"], cases, _free(cases))


def t5() -> Network:
    """Return a T5 1.1, encoder and decoder: RMSNorm without scaling of scores, gated GELU."""
    rng = seeded()
    config = transformers.T5Config(
        vocab_size=WORDS,
        d_model=WIDTH,
        d_kv=WIDTH // HEADS,
        d_ff=2 * WIDTH,
        num_layers=LAYERS,
        num_heads=HEADS,
        feed_forward_proj="gated-gelu",
    )
    cases = _text_cases(rng)
    for feeds in cases.values():
        rows = feeds["input_ids"].shape[0]
        feeds["decoder_input_ids"] = ids(rng, rows, LENGTH // 2)
    free = {**_free(cases), "decoder_input_ids": {0: "batch", 1: "decoded"}}
    model = transformers.T5ForConditionalGeneration(config)
    return picked(model, ["logits"], cases, free, use_cache=False)


_FRAMES, _MELS = 600, 80


def _whisper() -> Any:
    config = transformers.WhisperConfig(
        vocab_size=WORDS,
        num_mel_bins=_MELS,
        d_model=WIDTH,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=4 * WIDTH,
        decoder_ffn_dim=4 * WIDTH,
        max_source_positions=_FRAMES // 2,
        init_std=SPREAD,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=1,
        decoder_start_token_id=1,
    )
    return transformers.WhisperModel(config)


def whisper_encoder() -> Network:
    """Return the encoder of a Whisper over log-mel spectrograms."""
    rng = seeded()
    quiet = rng.standard_normal((BATCH, _MELS, _FRAMES)).astype(np.float32) * 0.5
    sounds = {
        SHORT: quiet,
        "silence": np.full_like(quiet, -1.0),
        "zeros": np.zeros_like(quiet),
        "loud": 20 * quiet,
    }
    cases = {name: {"input_features": sound} for name, sound in sounds.items()}
    free = {"input_features": {0: "batch"}}
    return picked(_whisper().encoder, ["last_hidden_state"], cases, free)


def whisper_decoder() -> Network:
    """Return the decoder of a Whisper over the encoder's output."""
    rng = seeded()

    def feeds(tokens: Array, scale: float = 1.0) -> Feeds:
        sound = rng.standard_normal((len(tokens), _FRAMES // 2, WIDTH)) * scale
        return _text(tokens, encoder_hidden_states=sound.astype(np.float32))

    tokens = ids(rng, BATCH, LENGTH)
    cases = {
        SHORT: feeds(tokens),
        "long": feeds(ids(rng, 1, 448)),
        "repeated": feeds(np.full_like(tokens, 7)),
        "zeros": feeds(np.zeros_like(tokens), 0.0),
        "loud": feeds(tokens, 4.0),  # what the encoder gives is normalized: no larger
    }
    free = {**_free(cases), "encoder_hidden_states": {0: "batch"}}
    return picked(_whisper().decoder, ["last_hidden_state"], cases, free, use_cache=False)


class Recurrent(torch.nn.Module):
    """A classifier of sequences: embedding, two recurrent layers in both directions, a mean."""

    def __init__(self, layer: type[torch.nn.Module]) -> None:
        """Make it of LSTM or GRU layers."""
        super().__init__()
        self.embedding = torch.nn.Embedding(WORDS, WIDTH // 2)
        self.layers = layer(
            WIDTH // 2, WIDTH // 2, num_layers=LAYERS, batch_first=True, bidirectional=True
        )
        self.classify = torch.nn.Linear(WIDTH, 10)

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the logits of token ids and the states of every word."""
        states, _ = self.layers(self.embedding(*tensors))
        return self.classify(states.mean(1)), states


def _recurrent(layer: type[torch.nn.Module]) -> Network:
    rng = seeded()
    # Both exporters write the initial states for the batch that they see.
    tokens = ids(rng, 1, LENGTH)
    cases: Cases = {
        SHORT: {"input_ids": tokens},
        "long": {"input_ids": ids(rng, 1, LONG)},
        "repeated": {"input_ids": np.full((1, LONG), 7)},
        "zeros": {"input_ids": np.zeros_like(tokens)},
    }
    free = {"input_ids": {1: "sequence"}}
    return Network(Recurrent(layer).eval(), ("logits", "states"), cases, free)


def lstm() -> Network:
    """Return a classifier of LSTM layers."""
    return _recurrent(torch.nn.LSTM)


def gru() -> Network:
    """Return a classifier of GRU layers."""
    return _recurrent(torch.nn.GRU)


LANGUAGE: dict[str, Callable[[], Network]] = {
    make.__name__: make
    for make in (
        llama,
        llama_matmul,
        qwen,
        gemma,
        gemma2,
        mistral,
        gpt2,
        bert,
        deberta,
        t5,
        whisper_encoder,
        whisper_decoder,
        lstm,
        gru,
    )
}
"""Name -> how the network is made."""
