"""Hugging Face models as they come, tiny, with random weights: each function gives ``(model, inputs)``; nothing is loaded.

    mlirstack compare examples/hugging_face.py:bert --targets cpu,iree-cpu

Needs the extra ``models``.  The decoders return their key/value caches as eager does.
"""

from __future__ import annotations

import torch
import transformers as hf
from torch import nn

WIDTH, LAYERS, HEADS, WORDS = 32, 2, 4, 99

Built = tuple[nn.Module, tuple[torch.Tensor, ...] | dict[str, torch.Tensor]]

_COMMON = {"vocab_size": WORDS, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
_DECODER = {
    **_COMMON,
    "hidden_size": WIDTH,
    "intermediate_size": 64,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}


def _words(length: int = 8) -> torch.Tensor:
    return torch.randint(WORDS, (2, length))


def bert() -> Built:
    """An encoder."""
    config = hf.BertConfig(
        vocab_size=WORDS, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS, intermediate_size=64
    )
    return hf.BertModel(config).eval(), (_words(),)


def gpt2() -> Built:
    """A decoder with learned positions."""
    config = hf.GPT2Config(**_COMMON, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, n_positions=64)
    return hf.GPT2LMHeadModel(config).eval(), (_words(),)


def llama() -> Built:
    """A decoder with rotary positions and grouped heads."""
    return hf.LlamaForCausalLM(hf.LlamaConfig(**_DECODER)).eval(), (_words(),)


def mistral() -> Built:
    """The same with a sliding window."""
    return hf.MistralForCausalLM(hf.MistralConfig(**_DECODER, sliding_window=4)).eval(), (_words(),)


def t5() -> Built:
    """An encoder and a decoder with relative positions."""
    config = hf.T5Config(vocab_size=WORDS, d_model=WIDTH, d_kv=8, d_ff=64, num_layers=LAYERS, num_heads=HEADS)
    return hf.T5ForConditionalGeneration(config).eval(), {"input_ids": _words(), "decoder_input_ids": _words(5)}


def vit() -> Built:
    """A vision transformer."""
    config = hf.ViTConfig(
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=64,
        image_size=32,
        patch_size=8,
    )
    return hf.ViTModel(config).eval(), (torch.randn(2, 3, 32, 32),)


def whisper_encoder() -> Built:
    """The audio encoder of Whisper, over spectra of 100 frames."""
    config = hf.WhisperConfig(
        **_COMMON,
        d_model=WIDTH,
        encoder_layers=LAYERS,
        encoder_attention_heads=HEADS,
        encoder_ffn_dim=64,
        decoder_layers=1,
        decoder_attention_heads=HEADS,
        max_source_positions=50,
        num_mel_bins=16,
        decoder_start_token_id=1,
    )
    return hf.WhisperModel(config).get_encoder().eval(), (torch.randn(2, 16, 100),)
