"""Lookahead: a window of parallel Jacobi iterations collects n-grams, and the pool's n-grams are verified."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from explorer.events import CodeLine
from explorer.methods.base import Method, Outcome, Proposal, Setup, TreeParams
from explorer.payloads import Guess, LookaheadPayload, NGram, WindowToken
from explorer.target import Riders
from explorer.trace import Record
from explorer.tree import merge_paths

MAX_ROWS = 1500
"""Rows of one pass: far more than pays anywhere."""

Rest = tuple[int, ...]
Rows = list[list[int]]


class LookaheadParams(TreeParams):
    """W, N and G of the paper. The public code's own defaults are 60, 8 and 60."""

    window: int = Field(5, ge=1, le=100, title="window W", description="Columns: positions guessed in parallel.")
    ngram: int = Field(5, ge=3, le=12, title="n-gram N", description="Length of the n-grams, key token included.")
    guesses: int = Field(
        5,
        ge=0,
        le=100,
        title="guesses G",
        description="n-grams kept per key and verified in a step; 0: unlimited, and verified as many as a pass of "
        f"{MAX_ROWS} rows holds.",
    )
    pool_from_prompt: bool = Field(
        False, title="pool from prompt", description="Put the n-grams of prompt and output into the pool too."
    )

    @model_validator(mode="after")
    def _sane(self) -> Self:
        rows = _window_rows(self) + self.guesses * (self.ngram - 1)
        if rows > MAX_ROWS:
            raise ValueError(
                f"window {self.window}, n-gram {self.ngram} and guesses {self.guesses} make a pass of {rows} rows; "
                f"at most {MAX_ROWS} are allowed, so lower one of them."
            )
        return self


@dataclass
class NGramPool:
    """Key token to the n-gram rests seen after it, oldest first; at most `limit` a key (0: unlimited)."""

    limit: int
    added: list[tuple[int, Rest]] = field(default_factory=list)
    refreshed: list[tuple[int, Rest]] = field(default_factory=list)
    evicted: list[tuple[int, Rest]] = field(default_factory=list)
    _rests: dict[int, OrderedDict[Rest, None]] = field(default_factory=dict)

    def look_up(self, key: int) -> list[Rest]:
        """Rests after `key`, oldest first."""
        return list(self._rests.get(key, ()))

    def insert(self, key: int, rest: Rest) -> None:
        """Add at the young end; one that is there already moves there; the oldest goes when the key is full."""
        rests = self._rests.setdefault(key, OrderedDict())
        if rest in rests:
            rests.move_to_end(rest)
            self.refreshed.append((key, rest))
            return
        rests[rest] = None
        self.added.append((key, rest))
        if self.limit and len(rests) > self.limit:
            self.evicted.append((key, rests.popitem(last=False)[0]))

    def forget_changes(self) -> None:
        """Start a new step's lists of changes."""
        self.added, self.refreshed, self.evicted = [], [], []

    @property
    def keys(self) -> int:
        """Number of keys."""
        return len(self._rests)

    @property
    def ngrams(self) -> int:
        """Number of n-grams."""
        return sum(map(len, self._rests.values()))


@dataclass
class _Shown:
    """What `payload` tells of the last step."""

    warm_up: bool = True
    before: Rows = field(default_factory=list)
    key: int = 0
    guesses: list[Rest] = field(default_factory=list)
    routes: Rows = field(default_factory=list)
    agreed: tuple[int, ...] = ()


class Lookahead(Method):
    """Lookahead decoding (Fu et al., arXiv 2402.02057, section 3), both branches in one pass.

    The window has N - 1 rows; column j of row i guesses the token i + j positions after the root, which is
    column 0 of row 0. Each pass fills one new row by argmax. The first N - 2 passes only fill the window.
    Deviations from the public code: a full match keeps its bonus token; guesses with a common beginning are
    verified once; generated n-grams enter the pool as they were committed; unlimited guesses are verified too;
    under sampling an end token may stand in the window. Sampled, any acceptance rule goes: `speculative` is
    the public code's, `greedy` compares each guess with the target's own draw.
    """

    name = "lookahead"
    title = "Lookahead"
    paper = "Fu et al. 2024, arXiv 2402.02057"
    summary = "No drafter: parallel Jacobi guesses feed a pool of n-grams, and matching n-grams are verified."
    Params = LookaheadParams

    def __init__(self, params: LookaheadParams, setup: Setup) -> None:
        self._params, self._texts, self._random = params, setup.texts, setup.generator
        self._rows: Rows = []
        self._pool = NGramPool(params.guesses)
        self._shown = _Shown()

    @classmethod
    def subtitle(cls, params: Any) -> str:
        """In a few words."""
        guesses = params.guesses or "unlimited"
        return f"window {params.window}, {params.ngram}-grams, {guesses} guesses"

    @classmethod
    def pseudocode(cls, params: Mapping[str, Any]) -> tuple[CodeLine, ...]:
        """Two branches in one pass."""
        return (
            CodeLine("draft", "guesses ← the pool's n-grams that begin with the root", "payload.guesses"),
            CodeLine("draft", "  none there: no drafts", "not payload.guesses"),
            CodeLine("verify", "p ← target(root, guesses and the window), one pass"),
            CodeLine("commit", "pool ← the n-grams on the window's diagonals", "not payload.warm_up"),
            CodeLine("commit", "window ← moved on by one, with the row just computed"),
        )

    @classmethod
    def max_rows(cls, params: Any) -> int:
        """Root, window, guesses. Unlimited guesses are cut to what a pass can hold."""
        return _window_rows(params) + _most_guesses(params) * (params.ngram - 1)

    def start(self, context: list[int], taps: dict[str, Tensor]) -> None:
        """Row 0 begins as tokens picked at random from the prompt; the pool may begin with its n-grams."""
        prompt = context[:-1]
        self._rows = [self._random.choices(prompt, k=self._params.window + self._params.ngram - 3)]
        if self._params.pool_from_prompt:
            self._insert_ngrams(context, range(self._params.ngram, len(context) + 1))
        self._pool.forget_changes()

    @property
    def _full(self) -> bool:
        return len(self._rows) == self._params.ngram - 1

    def propose(self, context: list[int]) -> Proposal:
        """The pool's guesses for the root as a trie, and the window as riders of the same pass."""
        key = context[-1]
        guesses = self._pool.look_up(key)[-_most_guesses(self._params) :] if self._full else []
        tree, routes = merge_paths(key, guesses, "pool")
        self._shown = _Shown(not self._full, [list(row) for row in self._rows], key, guesses, routes)
        return Proposal(tree, window_riders(self._rows))

    def observe(self, outcome: Outcome) -> None:
        """Collect the window's n-grams, shift it by one column, and add the new row."""
        self._pool.forget_changes()
        self._shown.agreed = outcome.agreed
        if len(outcome.output.logits) == len(outcome.tree):
            return  # the end of the context: the pass had no room for the window
        newest = self._rows[-1]
        outputs = outcome.output.logits[len(outcome.tree) :].argmax(dim=-1).tolist()[-len(newest) :]
        if self._full:
            self._collect(outputs)
            self._rows = [self._rows[1][1:], *self._rows[2:], outputs]
        else:
            first = len(self._rows) == 1
            self._rows = [row[1:] for row in self._rows] + [outputs if first else outputs[1:]]
        if self._params.pool_from_prompt:
            end = len(outcome.context)
            self._insert_ngrams(outcome.context, range(end - len(outcome.accepted), end + 1))

    def payload(self) -> Record:
        """Window before and after, the look-up, the verified guesses, and the pool's changes."""
        shown, pool = self._shown, self._pool
        return LookaheadPayload(
            warm_up=shown.warm_up,
            window_before=self._window(shown.before),
            window_after=self._window(self._rows),
            key=shown.key,
            key_text=self._texts.show(shown.key),
            guesses=tuple(
                Guess(rest=rest, text=self._texts.decode(rest), nodes=tuple(route), hits=self._hits(route))
                for rest, route in zip(shown.guesses, shown.routes, strict=True)
            ),
            hit_length=len(shown.agreed),
            added=self._ngrams(pool.added),
            refreshed=self._ngrams(pool.refreshed),
            evicted=self._ngrams(pool.evicted),
            pool_ngrams=pool.ngrams,
            pool_keys=pool.keys,
        )

    def _collect(self, outputs: list[int]) -> None:
        """Every column of the full window is an n-gram: its key from row 0, then down the rows to the new one."""
        for column, new in enumerate(outputs):
            key = self._shown.key if column == 0 else self._rows[0][column - 1]
            self._pool.insert(key, (*(row[column] for row in self._rows[1:]), new))

    def _insert_ngrams(self, token_ids: list[int], ends: Iterable[int]) -> None:
        size = self._params.ngram
        for end in ends:
            if end >= size:
                self._pool.insert(token_ids[end - size], tuple(token_ids[end - size + 1 : end]))

    def _hits(self, route: list[int]) -> int:
        return sum(node in self._shown.agreed for node in route)

    def _window(self, rows: Rows) -> tuple[tuple[WindowToken, ...], ...]:
        return tuple(tuple(WindowToken(token_id=token, text=self._texts.show(token)) for token in row) for row in rows)

    def _ngrams(self, ngrams: list[tuple[int, Rest]]) -> tuple[NGram, ...]:
        return tuple(
            NGram(key=key, rest=rest, text=self._texts.decode([key, *rest]), key_text=self._texts.show(key))
            for key, rest in ngrams
        )


def window_riders(rows: Rows) -> Riders:
    """The window as extra rows: level-0 columns see those before them; deeper rows see their column above them.

    Column 0 of level 0 is the root itself, so row 0 holds columns 1 and on; row i >= 1 holds columns 0 and on.
    Column j of row i stands i + j positions after the root.
    """
    cells = [(0, column + 1) for column in range(len(rows[0]))]
    cells += [(i, column) for i, row in enumerate(rows[1:], start=1) for column in range(len(row))]
    row_of = torch.tensor([row for row, _ in cells])  # (R,)
    column_of = torch.tensor([column for _, column in cells])
    level_zero = (row_of[None, :] == 0) & (column_of[None, :] <= column_of[:, None])
    above = (row_of[None, :] <= row_of[:, None]) & (row_of[None, :] > 0) & (column_of[None, :] == column_of[:, None])
    visible = torch.cat([torch.ones(len(cells), 1, dtype=torch.bool), level_zero | above], dim=1)  # (R, 1 + R)
    tokens = [token for row in rows for token in row]
    return Riders(tokens, [row + column for row, column in cells], visible)


def _window_rows(params: Any) -> int:
    """Most rows of root and window. A window with i rows under its first has W + N - 2 - i columns in each."""
    return max((i + 1) * (params.window + params.ngram - 2 - i) for i in range(params.ngram - 1))


def _most_guesses(params: Any) -> int:
    """Guesses verified in one pass; of an unlimited pool the youngest that still fit."""
    return int(params.guesses or (MAX_ROWS - _window_rows(params)) // (params.ngram - 1))
