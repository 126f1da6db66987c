"""Which models can be shown: a candidate tree needs a cache that rolls back and positions that the caller may set."""

from __future__ import annotations

from typing import Any

from explorer.errors import ExplorerError

_FULL = "full_attention"
_WINDOWS = ("sliding_attention", "chunked_attention", "local", "local_attention")
_RECURRENT = ("state_size", "ssm_cfg", "rwkv_version", "linear_conv_kernel_dim", "mamba_d_state", "block_types")
_OTHER_SENSES = ("vision_config", "audio_config", "image_token_id", "audio_token_id")
_LENGTHS = ("max_position_embeddings", "max_sequence_length", "seq_length", "max_seq_len")
_STRETCHED_ROPES = ("dynamic", "longrope")
_DEFAULT_CONTEXT_TOKENS = 2048


def refuse_unsupported(config: Any, *, stateful: bool = False) -> None:
    """ExplorerError that names the architecture and the reason, for models whose cache cannot be rolled back.

    `stateful` is what transformers says of the model's class: it keeps more than keys and values.
    """
    name = (getattr(config, "architectures", None) or [config.model_type])[0]
    reason = _reason(config, stateful)
    if reason:
        raise ExplorerError(f"{name} cannot be shown: {reason}. Llama-like causal language models can.")


def _reason(config: Any, stateful: bool) -> str | None:
    kinds = {str(kind) for kind in _layer_kinds(config)}
    checks = (
        (getattr(config, "is_encoder_decoder", False), "it is an encoder-decoder"),
        (any(getattr(config, key, None) is not None for key in _OTHER_SENSES), "it is multimodal"),
        (_is_encoder(config), "it is an encoder, whose tokens see later ones"),
        (stateful or any(hasattr(config, key) for key in _RECURRENT), "its recurrent state cannot be rolled back"),
        (bool(kinds - {_FULL, *_WINDOWS}), "its recurrent state cannot be rolled back"),
        (bool(kinds & set(_WINDOWS)) or _slides(config), "its sliding-window attention cannot be rolled back"),
        (_has_alibi(config), "ALiBi ignores position ids, which a candidate tree needs"),
        (
            config.model_type in ("cpmant", "xlnet", "reformer"),
            "its relative positions ignore position ids, which a candidate tree needs",
        ),
        (
            not all(hasattr(config, key) for key in ("num_hidden_layers", "num_attention_heads", "hidden_size")),
            "its layers are not described the way Llama's are",
        ),
    )
    return next((reason for holds, reason in checks if holds), None)


def _is_encoder(config: Any) -> bool:
    """BERT and its kin: they have segment embeddings, and say so where they were made to be decoders."""
    return getattr(config, "is_decoder", True) is False and hasattr(config, "type_vocab_size")


def _layer_kinds(config: Any) -> list[str]:
    """What each layer is, where the config tells: of transformers' usual field, or of GPT-Neo's."""
    return list(getattr(config, "layer_types", None) or []) + [
        kind.replace("global", _FULL) for kind in getattr(config, "attention_layers", None) or []
    ]


def _slides(config: Any) -> bool:
    """Does a window end inside the context? One that is as long as the context never slides."""
    if getattr(config, "layer_types", None):
        return False
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    return bool(window) and int(window or 0) < getattr(config, "max_position_embeddings", float("inf"))


def _has_alibi(config: Any) -> bool:
    return bool(getattr(config, "alibi", False)) or config.model_type in ("mpt", "bloom")


def context_tokens(config: Any) -> int:
    """Longest sequence that the model decodes the same way in one pass and in many.

    Rotary positions that stretch with the length (dynamic, longrope) change the keys of all earlier positions once
    they are past the original length, which a cache cannot follow; the context ends there.
    """
    length = next((int(getattr(config, key)) for key in _LENGTHS if getattr(config, key, None)), None)
    length = length or _DEFAULT_CONTEXT_TOKENS
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") in _STRETCHED_ROPES:
        original = rope.get("original_max_position_embeddings") or getattr(
            config, "original_max_position_embeddings", None
        )
        return min(length, int(original or length))
    return length
