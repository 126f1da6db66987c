"""Tiny randomly initialised models of many kinds, as Llama-like as their families are."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from explorer.load import describe
from explorer.target import TargetModel
from explorer.toy import toy_tokenizer

VOCAB = 300
_LLAMA = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
_MOE = {"num_experts_per_tok": 2, "output_router_logits": False}

SHOWN: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", _LLAMA),
    "llama-bias": ("llama", _LLAMA | {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    "mistral": ("mistral", _LLAMA | {"sliding_window": None}),
    "mistral-window-as-long-as-the-context": ("mistral", _LLAMA | {"sliding_window": 256}),
    "qwen2": ("qwen2", _LLAMA),
    "qwen3": ("qwen3", _LLAMA | {"head_dim": 16}),
    "gemma": ("gemma", _LLAMA | {"num_key_value_heads": 1, "head_dim": 16}),
    "phi3": ("phi3", _LLAMA | {"sliding_window": None}),
    "phi3-longrope": (
        "phi3",
        _LLAMA
        | {
            "original_max_position_embeddings": 128,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 10000.0,
                "short_factor": [1.0, 1.1, 1.2, 1.3],
                "long_factor": [2.0, 2.1, 2.2, 2.3],
                "factor": 2.0,
                "original_max_position_embeddings": 128,
            },
        },
    ),
    "gpt2": ("gpt2", {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 256}),
    "gpt_neox": ("gpt_neox", _LLAMA | {"rotary_pct": 0.25, "use_parallel_residual": True}),
    "opt": ("opt", {"hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 3, "num_attention_heads": 4}),
    "opt-projected": (
        "opt",
        {
            "hidden_size": 32,
            "ffn_dim": 48,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "word_embed_proj_dim": 24,
            "do_layer_norm_before": False,
        },
    ),
    "mixtral": ("mixtral", _LLAMA | _MOE | {"num_local_experts": 4}),
    "qwen3_moe": (
        "qwen3_moe",
        _LLAMA | _MOE | {"num_experts": 4, "moe_intermediate_size": 24, "head_dim": 8, "decoder_sparse_step": 1},
    ),
    "gpt_bigcode": ("gpt_bigcode", {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 256, "multi_query": True}),
    "gptj": ("gptj", {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 256, "rotary_dim": 4}),
    "falcon": (
        "falcon",
        {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "alibi": False, "multi_query": True},
    ),
    "phi": ("phi", _LLAMA | {"num_key_value_heads": 4}),
    "cohere": ("cohere", _LLAMA | {"logit_scale": 0.125}),
    "granite": ("granite", _LLAMA | {"logits_scaling": 8.0, "embedding_multiplier": 4.0}),
    "olmo2": ("olmo2", _LLAMA),
    "smollm3": ("smollm3", _LLAMA),
}
"""Kind to transformers' model type and config: the families that the project promises, and some that came along."""

REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "mamba": ("mamba", {"hidden_size": 32, "num_hidden_layers": 2}, "recurrent state"),
    "rwkv": ("rwkv", {"hidden_size": 32, "num_hidden_layers": 2}, "recurrent state"),
    "jamba": ("jamba", _LLAMA, "recurrent state"),
    "recurrent_gemma": ("recurrent_gemma", {"hidden_size": 32, "num_hidden_layers": 3}, "recurrent state"),
    "qwen3_next": ("qwen3_next", _LLAMA, "recurrent state"),
    "lfm2": ("lfm2", _LLAMA | {"layer_types": ["conv", "full_attention", "conv"]}, "recurrent state"),
    "minimax": ("minimax", _LLAMA, "recurrent state"),
    "mistral": ("mistral", _LLAMA | {"sliding_window": 64}, "sliding-window"),
    "phi3": ("phi3", _LLAMA | {"sliding_window": 64}, "sliding-window"),
    "gemma2": ("gemma2", _LLAMA, "sliding-window"),
    "gpt_oss": ("gpt_oss", _LLAMA, "sliding-window"),
    "gpt_neo": (
        "gpt_neo",
        {"hidden_size": 32, "num_layers": 2, "attention_types": [[["global", "local"], 1]]},
        "sliding-window",
    ),
    "bloom": ("bloom", {"hidden_size": 32, "n_layer": 2, "n_head": 4}, "ALiBi"),
    "mpt": ("mpt", {"d_model": 32, "n_layers": 2, "n_heads": 4}, "ALiBi"),
    "falcon": ("falcon", {"hidden_size": 32, "num_attention_heads": 4, "alibi": True}, "ALiBi"),
    "t5": ("t5", {"d_model": 32, "num_layers": 2}, "encoder-decoder"),
    "bart": ("bart", {"d_model": 32}, "encoder-decoder"),
    "bert": ("bert", {"hidden_size": 32, "num_hidden_layers": 2}, "encoder, whose tokens see later ones"),
    "cpmant": ("cpmant", {"hidden_size": 32, "num_hidden_layers": 2}, "relative positions"),
    "qwen2_vl": ("qwen2_vl", {}, "multimodal"),
}
"""Kind to model type, config and the reason that a refusal has to give."""


def config_of(kind: str, settings: dict[str, Any]) -> Any:
    """A config of that type, with a small vocabulary and no special tokens of its own."""
    ids = {"bos_token_id": 1, "eos_token_id": 0, "pad_token_id": None}
    return AutoConfig.for_model(kind, **({"vocab_size": VOCAB} | ids | settings))


def tiny_model(name: str, seed: int = 0, **changes: Any) -> Any:
    """A model of that kind. Its weights are large enough for context to matter: no law holds by chance."""
    kind, settings = SHOWN[name]
    config = config_of(kind, settings | changes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
        with torch.no_grad():
            for parameter in model.parameters():
                scale = 0.3 if parameter.ndim > 1 else 0.1
                noise = torch.randn_like(parameter) * scale
                parameter.copy_(noise if parameter.ndim > 1 else parameter + noise)
    return model


def tiny_target(name: str, seed: int = 0, **changes: Any) -> TargetModel:
    """The model as a target, with the toy's tokenizer."""
    model = tiny_model(name, seed, **changes)
    return TargetModel(model, toy_tokenizer(), describe(model, model_id=name, label=name))
