"""Whether two tokenizers give every token the same id: drafted ids mean nothing to the target otherwise."""

from __future__ import annotations

from typing import Any

from explorer.errors import ExplorerError, brief


def need_same_vocabulary(target: Any, draft: Any, name: str) -> None:
    """ExplorerError that names both sizes, or the first token that differs. Both are transformers tokenizers."""
    wanted, found = _by_id(target), _by_id(draft)
    if wanted == found:
        return
    if len(wanted) != len(found):
        raise ExplorerError(
            f"The draft model {name} has {len(found)} tokens, the target has {len(wanted)}; "
            "a draft model needs the target's tokenizer."
        )
    first = min(token for token in {*wanted, *found} if wanted.get(token) != found.get(token))
    raise ExplorerError(
        f"The draft model {name} has another tokenizer than the target: token {first} is "
        f"{brief(found.get(first))}, the target's is {brief(wanted.get(first))}."
    )


def _by_id(tokenizer: Any) -> dict[int, str]:
    return {int(place): piece for piece, place in tokenizer.get_vocab().items()}
