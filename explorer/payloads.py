"""What each method alone records per step. Figures and narration read these; anybody may add a kind.

A step holds the payload as a plain dict with a `kind`; `model_validate` of the class here gives it types.
"""

from __future__ import annotations

from typing import Literal

from explorer.trace import Probability, Record, TopToken


class MedusaPayload(Record):
    """What each head proposed (Medusa, arXiv 2401.10774, section 2.1)."""

    kind: Literal["medusa"] = "medusa"
    tree: str
    heads: tuple[tuple[TopToken, ...], ...]
    """Per head, top down by depth: its best tokens with its probabilities."""


class FrontierNode(Record):
    """A node of EAGLE's draft pool, kept by the re-ranking or not."""

    node: int | None
    """Its id in the verified tree; null where the re-ranking dropped it."""
    parent: int | None
    """Place of its parent in the list of all frontier nodes (depth after depth); null below the root."""
    token_id: int
    text: str
    draft_prob: Probability
    score: Probability
    """Product of the draft probabilities along its path."""
    expanded: bool
    """Was it among the top_k of its depth that were drafted further?"""


class FeatureError(Record):
    """Predicted feature against the target's true one, at an accepted node."""

    node: int
    distance: float
    """Euclidean distance divided by the norm of the true feature."""
    cosine: float


class EaglePayload(Record):
    """Frontier by depth, and what the re-ranking kept (EAGLE-2, arXiv 2406.16858, section 4)."""

    kind: Literal["eagle"] = "eagle"
    frontier: tuple[tuple[FrontierNode, ...], ...]
    """frontier[d] are the pool nodes of depth d + 1 that were drafted further, or kept, or both."""
    pool_nodes: int
    """All nodes that were scored, those too that are not listed above."""
    kept: int
    feature_errors: tuple[FeatureError, ...]


class WindowToken(Record):
    """A guessed token in the Jacobi window."""

    token_id: int
    text: str


class NGram(Record):
    """An n-gram of the pool: after `key`, the tokens `rest` were seen."""

    key: int
    rest: tuple[int, ...]
    text: str
    """The whole n-gram as text, key first."""
    key_text: str


class Guess(Record):
    """An n-gram that was verified in this step."""

    rest: tuple[int, ...]
    text: str
    nodes: tuple[int, ...]
    """Its path in the verified tree (guesses with a common beginning share nodes)."""
    hits: int
    """How many of its tokens the target agreed with."""


class LookaheadPayload(Record):
    """Window and n-gram pool (Lookahead decoding, arXiv 2402.02057, section 3)."""

    kind: Literal["lookahead"] = "lookahead"
    warm_up: bool
    """Window not full yet: nothing is verified in such a step."""
    window_before: tuple[tuple[WindowToken, ...], ...]
    """Rows top down, oldest iteration first; row 0 leaves out column 0, which is the root token."""
    window_after: tuple[tuple[WindowToken, ...], ...]
    key: int
    key_text: str
    guesses: tuple[Guess, ...]
    hit_length: int
    added: tuple[NGram, ...]
    refreshed: tuple[NGram, ...]
    """Seen again, so moved to the young end."""
    evicted: tuple[NGram, ...]
    pool_ngrams: int
    pool_keys: int
