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
    threshold: float | None = None
    """Typical acceptance only: what a draft right after the root had to exceed. Deeper: each node's decision."""
    entropy: float | None = None
    """Typical acceptance only: entropy of the target's distribution after the root, in nats."""


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
    """Frontier by depth, and what the re-ranking kept (EAGLE-2, arXiv 2406.16858, section 4).

    EAGLE-3 records the same. A static tree or a chain keeps all that it drafts.
    """

    kind: Literal["eagle"] = "eagle"
    tree: Literal["dynamic", "static", "chain"] = "dynamic"
    frontier: tuple[tuple[FrontierNode, ...], ...]
    """frontier[d] are the pool nodes of depth d + 1 that were drafted further, or kept, or both."""
    pool_nodes: int
    """All nodes that were scored, those too that are not listed above."""
    kept: int
    feature_errors: tuple[FeatureError, ...]
    tapped_layers: tuple[int, ...] = ()
    """EAGLE-3: the target's layers whose inputs were fused into features, low to high."""
    draft_vocabulary: int | None = None
    """Tokens that the drafter can propose; null where that is all of them."""
    covered: bool | None = None
    """Could the drafter have proposed the target's own token of this step? Null with the whole vocabulary."""


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


class DraftedToken(Record):
    """A token of the draft model's chain, and how the rule judged it."""

    node: int
    """Its id in the verified tree."""
    token_id: int
    text: str
    draft_prob: Probability
    """The draft model's probability, from the processed distribution that the token was drawn from."""
    target_prob: Probability
    """As the rule saw it; where the rule did not look at probabilities, the target's without any processing."""
    ratio: float | None
    """Chance of acceptance, min(1, target_prob / draft_prob); null where there was no trial."""
    draw: float | None
    """The uniform number of the trial: accepted where it is under the ratio."""
    residual_mass: float | None
    """After a rejection: the share of the target's distribution that was left before renormalising."""
    accepted: bool


class DraftModelPayload(Record):
    """A chain of a small model (Leviathan et al., arXiv 2211.17192, algorithm 1)."""

    kind: Literal["draft-model"] = "draft-model"
    gamma: int
    """Tokens that the schedule asked for; the chain is shorter at an end token and where budget or context end."""
    fed: tuple[WindowToken, ...]
    """Committed tokens that the first draft pass read: one, two after a full accept, none in a plain step."""
    drafted: tuple[DraftedToken, ...]


class PromptLookupPayload(Record):
    """What was found in the context (Saxena 2023). Spans are [start, end), places in prompt and output."""

    kind: Literal["prompt-lookup"] = "prompt-lookup"
    ngram: int
    """Tokens that matched; 0: nothing was found, and the step was a plain one."""
    matched: tuple[int, int] | None
    """The span that equals the newest tokens."""
    matched_text: str
    copied: tuple[int, int] | None
    """The span that was proposed, right behind the matched one."""
    tokens: tuple[WindowToken, ...]
    """The copied tokens."""
    before: str = ""
    """Text of the few tokens in front of the matched span, for reading."""
    after: str = ""
    """Of those behind the copied span."""
    lead: str = ""
    """Of those in front of the newest tokens."""


class JacobiPayload(Record):
    """One pass over the block (Jacobi decoding: Santilli et al., arXiv 2305.10427)."""

    kind: Literal["jacobi"] = "jacobi"
    iteration: int
    """Passes before this one since the block began; always less than the block's size."""
    position: int
    """Place of the block's first token, the root, in prompt and output."""
    block: tuple[WindowToken, ...]
    """Before the pass, root first."""
    outputs: tuple[WindowToken, ...]
    """The target's token after each of the block."""
    random: int
    """How many at the end of the block are random tokens that no pass has seen before."""
    fixed: int
    """Leading tokens of the block, root included, that the pass confirmed: they never change again."""
    verification: Literal["prefix", "block"]
    committed: int
    """Tokens that the pass added to the output; 0 where the whole block must agree first and did not."""
