"""A seeded tiny target without trained weights, for tests and work on the page. Never shown as a real model."""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from explorer.drafters.draft_model import DraftModel, DraftShape
from explorer.drafters.eagle3_head import Eagle3Head, Eagle3Shape
from explorer.drafters.eagle_head import EagleHead, EagleShape
from explorer.drafters.medusa_heads import MedusaHeads
from explorer.execution import Execution
from explorer.load import describe
from explorer.target import TargetModel

TOY_ID = "toy"
TOY_LABEL = "toy model, random weights: for tests only"
_END, _START = "<|end|>", "<|start|>"


def toy_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level: 256 byte tokens, some merges, and two special tokens. Any text goes in and comes out."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = ["th", "in", "er", "an", "re", "on", "Ġt", "Ġa", "Ġth", "Ġthe"]
    merges = [("t", "h"), ("i", "n"), ("e", "r"), ("a", "n"), ("r", "e"), ("o", "n"), ("Ġ", "t"), ("Ġ", "a")]
    merges += [("Ġ", "th"), ("Ġth", "e")]
    vocabulary = {piece: place for place, piece in enumerate([_END, _START, *alphabet, *pieces])}
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=_END, bos_token=_START)
    fast.chat_template = (
        "{% for message in messages %}<|start|>{{ message['content'] }}\n{% endfor %}"
        "{% if add_generation_prompt %}>{% endif %}"
    )
    return fast


def toy_model(seed: int = 0, **changes: Any) -> LlamaForCausalLM:
    """Four small Llama layers. The weights are random, so its text is noise; its loops give drafts a chance."""
    tokenizer = toy_tokenizer()
    settings: dict[str, Any] = {
        "vocab_size": 384,
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1024,
        "tie_word_embeddings": False,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "initializer_range": 0.15,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(LlamaConfig(**(settings | changes)))
    with torch.no_grad():
        # ids that the tokenizer does not know must never come out, and an early end would make a dull toy
        model.lm_head.weight[len(tokenizer) :] = 0.0
        model.lm_head.weight[tokenizer.eos_token_id] *= 0.1
    return model.eval()


def toy_target(
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    execution: Execution = "eager",
    **changes: Any,
) -> TargetModel:
    """The toy as a target."""
    model: Any = toy_model(seed, **changes)
    model.to(device, dtype)
    return TargetModel(model, toy_tokenizer(), describe(model, model_id=TOY_ID, label=TOY_LABEL), execution)


def toy_drafter(kind: str, target: TargetModel, seed: int = 0) -> MedusaHeads | EagleHead | Eagle3Head | DraftModel:
    """An untrained drafter of the toy: seeded noise, so that it is right at times and wrong mostly."""
    hidden = target.hidden_size
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if kind == "medusa":
            heads = MedusaHeads(4, hidden)
            torch.nn.init.normal_(heads.weight, std=0.05)
            heads.bind(target.output_weight)
            return heads.to(target.device, target.dtype).eval()
        if kind == "eagle3":
            return _toy_eagle3(target)
        if kind == "draft-model":
            return _toy_draft_model(target)
        shape = EagleShape(hidden, 2 * hidden, num_heads=4, num_kv_heads=2, head_dim=hidden // 4)
        head = EagleHead(shape)
        torch.nn.init.eye_(head.fc.weight[:, hidden:])
        head.to(target.device, target.dtype).bind(target.embed_weight, target.output_weight)
        return head.eval()


def _toy_eagle3(target: TargetModel) -> Eagle3Head:
    """It drafts from every other token, and passes on the highest of its taps."""
    hidden, kept = target.hidden_size, torch.arange(0, target.vocabulary_tokens, 2)
    shape = Eagle3Shape(
        hidden, 2 * hidden, num_heads=4, num_kv_heads=2, head_dim=hidden // 4, draft_vocab_size=len(kept)
    )
    head = Eagle3Head(shape, token_map=kept, aux_layers=(1, 2, 3))  # four layers have no default taps
    torch.nn.init.eye_(head.fc.weight[:, 2 * hidden :])
    with torch.no_grad():
        head.lm_head.weight.copy_(target.output_weight[kept])
    head.to(target.device, target.dtype).bind(target.embed_weight)
    return head.eval()


def _toy_draft_model(target: TargetModel) -> DraftModel:
    """One random layer between the target's embedding and output head."""
    hidden = target.hidden_size
    shape = DraftShape(
        num_layers=1,
        intermediate_size=2 * hidden,
        num_heads=4,
        num_kv_heads=2,
        head_dim=hidden // 4,
        context_tokens=target.context_tokens,
    )
    drafter = DraftModel.new(shape, target)
    drafter.module.requires_grad_(False)
    return drafter
