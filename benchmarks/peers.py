"""Our lanes against `generate`: plain, with prompt lookup, with the same draft model and the same settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from benchmarks.common import Json, decode, interleave, missing, prompt_ids, ratios, summary
from explorer.catalogue import DEFAULT_MODEL
from explorer.drafters.draft_checkpoint import load_draft_model
from explorer.fetch import ensure_default_model
from explorer.shelf import Shelf
from explorer.stock import drafter_folder, drafter_places
from explorer.toy import toy_model

LOOKUP = {"max_ngram": 2, "tokens": 10}
DRAFTED = 5
TEXTS = (
    "Write a Python function that returns the n-th Fibonacci number, and explain each line.",
    "Repeat this list three times, once in upper case: apple, pear, plum, cherry, quince, apricot, peach, grape.",
)


def plain_model(shelf: Shelf) -> Any:
    """The same weights as a plain transformers model: the target's own are packed."""
    target = shelf.target
    if shelf.model != DEFAULT_MODEL.id:
        return toy_model().to(target.device, target.dtype)  # type: ignore[arg-type]
    folder = ensure_default_model(lambda text, share: None)
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=target.dtype, attn_implementation="sdpa")
    return model.to(target.device).eval()


class WholeVocabulary(nn.Module):
    """A draft's output head over fewer tokens, spread over all ids: other tokens are never drafted, as in our lane."""

    def __init__(self, head: nn.Module, token_map: Tensor, vocabulary_tokens: int) -> None:
        super().__init__()
        self.head, self.token_map, self._tokens = head, token_map, vocabulary_tokens

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., hidden) to (..., V)."""
        logits = self.head(hidden)
        whole = logits.new_full((*logits.shape[:-1], self._tokens), torch.finfo(logits.dtype).min)
        whole[..., self.token_map] = logits
        return whole


def plain_draft(shelf: Shelf) -> Any:
    """The shelf's draft model as an assistant of `generate`, its weights not packed."""
    target = shelf.target
    folder = drafter_folder(drafter_places(shelf.model)["draft-model"], lambda text, share: None)
    draft = load_draft_model(folder, target=target, device=target.device, dtype=target.dtype, packed=False)
    module = draft.module
    if draft.token_map is not None:
        module.lm_head = WholeVocabulary(module.lm_head, draft.token_map, target.vocabulary_tokens)
        module.config.vocab_size = target.vocabulary_tokens
    module.set_attn_implementation("sdpa")
    module.generation_config.num_assistant_tokens = DRAFTED
    module.generation_config.num_assistant_tokens_schedule = "constant"
    module.generation_config.assistant_confidence_threshold = 0.0
    return module


def against_generate(shelf: Shelf, tokens: int, rounds: int) -> list[Json]:
    """A row a mode and prompt: tokens per second of both, prefill included and recording on, and their ratio."""
    model = plain_model(shelf)
    modes: list[tuple[str, str, Json, Json]] = [
        ("plain", "autoregressive", {}, {}),
        (
            "prompt lookup", "prompt-lookup", LOOKUP,
            {"prompt_lookup_num_tokens": LOOKUP["tokens"], "max_matching_ngram_size": LOOKUP["max_ngram"]},
        ),
    ]  # fmt: skip
    if shelf.model == DEFAULT_MODEL.id and missing(shelf, "draft-model") is None:
        modes.append(("draft model", "draft-model", {"tokens": DRAFTED}, {"assistant_model": plain_draft(shelf)}))
    results = []
    for mode, name, params, options in modes:
        for text in TEXTS:
            pair = _pair(shelf, model, (name, params, options), prompt_ids(shelf, text), tokens, rounds)
            results.append({"mode": mode, "prompt": text} | pair)
    return results


def _pair(shelf: Shelf, model: Any, mode: tuple[str, Json, Json], prompt: list[int], tokens: int, rounds: int) -> Json:
    name, params, options = mode
    outputs: dict[str, list[int]] = {}
    ids = torch.tensor([prompt], device=shelf.target.device)

    def ours() -> None:
        outputs["ours"] = decode(shelf, name, params, prompt, tokens).output

    def theirs() -> None:
        made = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=tokens,
            do_sample=False,
            pad_token_id=model.generation_config.pad_token_id or 0,
            **options,
        )
        outputs["generate"] = made[0, len(prompt) :].tolist()

    tasks: dict[str, Callable[[], float | None]] = {"generate": theirs, "ours": ours}
    seconds = interleave(tasks, rounds)
    rates = {who: [len(outputs[who]) / second for second in seconds[who]] for who in tasks}
    return {
        "tokens": {who: len(outputs[who]) for who in tasks},
        "same_output": outputs["ours"] == outputs["generate"],
        "tokens_per_second": {who: summary(rates[who]) for who in tasks},
        "ours_over_generate": ratios(rates["ours"], rates["generate"]),
    }


def rows(results: list[Json]) -> list[list[object]]:
    """For the screen."""
    lines: list[list[object]] = [
        ["against generate", "prompt", "generate tok/s", "ours tok/s", "ratio", "least", "most", "same"]
    ]
    for each in results:
        rate, ratio = each["tokens_per_second"], each["ours_over_generate"]
        lines.append([
            each["mode"], each["prompt"][:24], rate["generate"]["median"], rate["ours"]["median"],
            ratio["median"], ratio["least"], ratio["most"], each["same_output"],
        ])  # fmt: skip
    return lines
