"""Small networks of the families that read, hear and recommend, in PyTorch."""

# PyTorch is optional, and not there where types are checked.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

CLASSES, WORDS, LENGTH, WIDTH, HEADS = 5, 40, 12, 16, 2


class Attention(nn.Module):
    """Multi-head attention with one product for queries, keys and values."""

    def __init__(self, *, causal: bool = False) -> None:
        """Make the products."""
        super().__init__()
        self.causal = causal
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Map (N, T, WIDTH) to the same; the mask says which scores stay."""
        shape = (x.shape[0], x.shape[1], 3, HEADS, WIDTH // HEADS)
        q, k, v = self.qkv(x).reshape(shape).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, mask, is_causal=self.causal)
        return self.out(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and two dense layers, with the normalisation before or behind each."""

    def __init__(self, *, before: bool, causal: bool = False, gelu: str = "none") -> None:
        """Make the layers."""
        super().__init__()
        self.before = before
        self.attention, self.gelu = Attention(causal=causal), nn.GELU(gelu)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def dense(self, x: Tensor) -> Tensor:
        """Map (N, T, WIDTH) to the same."""
        return self.down(self.gelu(self.up(x)))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Map (N, T, WIDTH) to the same."""
        if self.before:
            x = x + self.attention(self.norm1(x), mask)
            return x + self.dense(self.norm2(x))
        x = self.norm1(x + self.attention(x, mask))
        return self.norm2(x + self.dense(x))


class Vit(nn.Module):
    """A. Dosovitskiy et al., "An Image is Worth 16x16 Words", 2020."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 4, 4)
        self.first = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.position = nn.Parameter(torch.zeros(1, 17, WIDTH))
        self.blocks = nn.ModuleList(Block(before=True) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, 3, 16, 16) to logits."""
        y = self.patches(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.first.expand(x.shape[0], -1, -1), y], 1) + self.position
        for block in self.blocks:
            y = block(y)
        return self.head(self.norm(y[:, 0]))


class Bert(nn.Module):
    """J. Devlin et al., "BERT", 2018."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.word, self.kind = nn.Embedding(WORDS, WIDTH), nn.Embedding(2, WIDTH)
        self.position = nn.Embedding(LENGTH, WIDTH)
        self.norm, self.pooler = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(Block(before=False) for _ in range(2))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, ids: Tensor, kinds: Tensor, mask: Tensor) -> Tensor:
        """Map three of (N, T), the mask 1 where there is a word, to logits."""
        places = torch.arange(ids.shape[1])
        y = self.norm(self.word(ids) + self.kind(kinds) + self.position(places))
        for block in self.blocks:
            y = block(y, mask[:, None, None, :].bool())
        return self.head(self.pooler(y[:, 0]).tanh())


class Gpt2(nn.Module):
    """A. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.word, self.position = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block(before=True, causal=True, gelu="tanh") for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, ids: Tensor) -> Tensor:
        """Map (N, T) to logits (N, WORDS, T); the table of words is used at both ends."""
        y = self.word(ids) + self.position(torch.arange(ids.shape[1]))
        for block in self.blocks:
            y = block(y)
        return functional.linear(self.norm(y), self.word.weight).transpose(1, 2)


class Recurrent(nn.Module):
    """A recurrent layer over words, and a dense one behind its last state."""

    def __init__(self, kind: type[nn.LSTM | nn.GRU], *, bidirectional: bool) -> None:
        """Make the layers."""
        super().__init__()
        self.word = nn.Embedding(WORDS, WIDTH)
        self.recurrent = kind(WIDTH, 8, batch_first=True, bidirectional=bidirectional)
        self.head = nn.Linear(8 * (1 + bidirectional), CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        """Map (N, T) to logits."""
        return self.head(self.recurrent(self.word(ids))[0][:, -1])


class Dlrm(nn.Module):
    """M. Naumov et al., "Deep Learning Recommendation Model", 2019."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, 8) for rows in (50, 30, 20))
        self.bottom = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(14, 16), nn.ReLU(), nn.Linear(16, 1))
        self.register_buffer("pairs", torch.tril_indices(4, 4, -1), persistent=False)

    def forward(self, dense: Tensor, chosen: Tensor) -> Tensor:
        """Map (N, 6) and rows of each table, (N, 3, 4), to the logits of clicks, (N, 1)."""
        x = self.bottom(dense)
        bags = [table(chosen[:, i]).sum(1) for i, table in enumerate(self.tables)]
        y = torch.stack([x, *bags], 1)
        products = torch.bmm(y, y.transpose(1, 2))
        return self.top(torch.cat([x, products[:, self.pairs[0], self.pairs[1]]], 1))


class AudioEncoder(nn.Module):
    """The convolutions of wav2vec 2.0 (A. Baevski et al., 2020)."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.first, self.norm = nn.Conv1d(1, 16, 10, 5, bias=False), nn.GroupNorm(16, 16)
        self.second, self.third = (
            nn.Conv1d(16, 16, 3, 2),
            nn.Conv1d(16, 16, 3, padding=2, dilation=2),
        )
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, 1, T) to logits."""
        y = functional.gelu(self.norm(self.first(x)))
        y = functional.gelu(self.third(functional.gelu(self.second(y))))
        return self.head(y.amax(2))
