"""Transformers, two layers each at toy width: torch's own encoder and decoder, and BERT, GPT-2, Llama and ViT as published.

They are written out here so that no model library and no download is needed; widths are small, structures are the real ones.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mlirstack.zoo.recipe import booleans, integers, model, normal

VOCABULARY, WIDTH, HEADS, LAYERS, LENGTH = 128, 32, 4, 2, 16


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(batch, length, heads * size) → (batch, heads, length, size)."""
    batch, length, width = x.shape
    return x.view(batch, length, heads, width // heads).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """(batch, heads, length, size) → (batch, length, heads * size)."""
    batch, heads, length, size = x.shape
    return x.transpose(1, 2).reshape(batch, length, heads * size)


class Attention(nn.Module):
    """Multi-head self-attention with one projection for query, key and value."""

    def __init__(self, width: int, heads: int, *, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        query, key, value = (split_heads(part, self.heads) for part in self.qkv(x).chunk(3, dim=-1))
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=self.causal)
        return self.output(merge_heads(attended))


class EmbeddedEncoder(nn.Module):
    """Token ids (batch, length) → (batch, length, width)."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, dropout=0.0, batch_first=True)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.layer(self.embedding(tokens))


class CausalDecoder(nn.Module):
    """Target (batch, length, width) and memory (batch, other length, width) → (batch, length, width)."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerDecoderLayer(WIDTH, HEADS, 2 * WIDTH, dropout=0.0, batch_first=True)

    def forward(self, target: Tensor, memory: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1], dtype=target.dtype)
        return self.layer(target, memory, tgt_mask=mask, tgt_is_causal=True)


class BertLayer(nn.Module):
    """Post-norm encoder layer (Devlin et al., 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention(WIDTH, HEADS)
        self.attention_norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.output_norm = nn.LayerNorm(WIDTH, eps=1e-12)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.attention_norm(x + self.attention(x, mask))
        return self.output_norm(x + self.down(F.gelu(self.up(x))))


class Bert(nn.Module):
    """Token ids and segment ids (batch, length), visible tokens (batch, length) of bool → hidden states and pooled state."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.segments = nn.Embedding(2, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.layers = nn.ModuleList(BertLayer() for _ in range(LAYERS))
        self.pooler = nn.Linear(WIDTH, WIDTH)

    def forward(self, tokens: Tensor, segments: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.norm(self.tokens(tokens) + self.positions(positions) + self.segments(segments))
        # A large finite number, as BERT has it: a row of -inf only would be NaN.
        mask = (~visible).to(x.dtype)[:, None, None, :] * -1e4
        for layer in self.layers:
            x = layer(x, mask)
        return x, torch.tanh(self.pooler(x[:, 0]))


class Gpt2Layer(nn.Module):
    """Pre-norm causal layer (Radford et al., 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention(WIDTH, HEADS, causal=True)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.down(F.gelu(self.up(self.mlp_norm(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """Token ids (batch, length) → logits (batch, length, vocabulary); the output matrix is the token embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.Sequential(*(Gpt2Layer() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.layers(self.tokens(tokens) + self.positions(positions))
        return F.linear(self.norm(x), self.tokens.weight)


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary position embedding (Su et al., 2021) in Llama's half-split form; x (..., length, size)."""
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat([-second, first], dim=-1) * sine


class LlamaLayer(nn.Module):
    """Pre-norm layer with grouped-query attention and SwiGLU (Touvron et al., 2023)."""

    def __init__(self, key_value_heads: int = 2) -> None:
        super().__init__()
        size = WIDTH // HEADS
        self.key_value_heads = key_value_heads
        self.attention_norm, self.mlp_norm = nn.RMSNorm(WIDTH, eps=1e-5), nn.RMSNorm(WIDTH, eps=1e-5)
        self.query = nn.Linear(WIDTH, WIDTH, bias=False)
        self.key = nn.Linear(WIDTH, key_value_heads * size, bias=False)
        self.value = nn.Linear(WIDTH, key_value_heads * size, bias=False)
        self.output = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate = nn.Linear(WIDTH, 88, bias=False)
        self.up = nn.Linear(WIDTH, 88, bias=False)
        self.down = nn.Linear(88, WIDTH, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        h = self.attention_norm(x)
        query = rotate(split_heads(self.query(h), HEADS), cosine, sine)
        key = rotate(split_heads(self.key(h), self.key_value_heads), cosine, sine)
        value = split_heads(self.value(h), self.key_value_heads)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        x = x + self.output(merge_heads(attended))
        h = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    """Token ids (batch, length) → logits (batch, length, vocabulary)."""

    inverse_frequencies: Tensor

    def __init__(self) -> None:
        super().__init__()
        size = WIDTH // HEADS
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(LlamaLayer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH, eps=1e-5)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        frequencies = 1.0 / 10000.0 ** (torch.arange(0, size, 2, dtype=torch.float32) / size)
        self.register_buffer("inverse_frequencies", frequencies, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        positions = torch.arange(tokens.shape[1], device=tokens.device, dtype=self.inverse_frequencies.dtype)
        angles = torch.outer(positions, self.inverse_frequencies)
        angles = torch.cat([angles, angles], dim=-1)
        cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cosine, sine)
        return self.head(self.norm(x))


class VitLayer(nn.Module):
    """Pre-norm encoder layer (Dosovitskiy et al., 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(WIDTH, eps=1e-6), nn.LayerNorm(WIDTH, eps=1e-6)
        self.attention = Attention(WIDTH, HEADS)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.down(F.gelu(self.up(self.mlp_norm(x))))


class Vit(nn.Module):
    """Images (batch, 3, 32, 32) → logits (batch, 10)."""

    def __init__(self, image: int = 32, patch: int = 8) -> None:
        super().__init__()
        patches = (image // patch) ** 2
        self.patches = nn.Conv2d(3, WIDTH, patch, stride=patch)
        self.class_token = nn.Parameter(torch.randn(1, 1, WIDTH) * 0.02)
        self.positions = nn.Parameter(torch.randn(1, patches + 1, WIDTH) * 0.02)
        self.layers = nn.Sequential(*(VitLayer() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH, eps=1e-6)
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], dim=1) + self.positions
        return self.head(self.norm(self.layers(x))[:, 0])


@model("transformer_encoder", integers(0, VOCABULARY, 2, 8))
def transformer_encoder() -> nn.Module:
    return EmbeddedEncoder()


@model("transformer_decoder", normal(2, 6, WIDTH), normal(2, 9, WIDTH))
def transformer_decoder() -> nn.Module:
    return CausalDecoder()


@model("bert_like", integers(0, VOCABULARY, 2, LENGTH), integers(0, 2, 2, LENGTH), booleans(2, LENGTH))
def bert_like() -> nn.Module:
    return Bert()


@model("gpt2_like", integers(0, VOCABULARY, 2, LENGTH))
def gpt2_like() -> nn.Module:
    return Gpt2()


@model("llama_like", integers(0, VOCABULARY, 2, LENGTH))
def llama_like() -> nn.Module:
    return Llama()


@model("llama_like_bf16", integers(0, VOCABULARY, 2, LENGTH))
def llama_like_bf16() -> nn.Module:
    return Llama().bfloat16()


@model("vit_like", normal(1, 3, 32, 32))
def vit_like() -> nn.Module:
    return Vit()
