"""Lookahead: steps equal to those of the original implementation, from each of its recorded states."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest
import torch

from explorer.acceptance import accept_matching, accept_speculative
from explorer.methods.base import Outcome, Setup
from explorer.methods.lookahead import Lookahead, LookaheadParams, Rest
from explorer.sampling import Chooser, SamplingSettings
from tests.lanes import Bench
from tests.methods.recordings import golden, prompt_ids

END = 2
"""The tiny target's end token."""


def method_at(
    bench: Bench, header: dict[str, Any], rows: Iterable[list[int] | None], pool: dict[int, list[Rest]]
) -> Lookahead:
    """Our method in a recorded state."""
    params = LookaheadParams(
        window=header["WINDOW_SIZE"],
        ngram=header["LEVEL"],
        guesses=max(0, header["GUESS_SET_SIZE"]),  # the original writes -1 for unlimited
        pool_from_prompt=bool(header["POOL_FROM_PROMPT"]),
    )
    method = Lookahead(params, Setup(bench.target.texts, random.Random(0), 4096))
    method._rows = [list(row) for row in rows if row]
    for key, rests in pool.items():
        for rest in rests:
            method._pool.insert(key, rest)
    method._pool.forget_changes()
    return method


def take_step(
    bench: Bench, method: Lookahead, context: list[int], chooser: Chooser | None = None
) -> tuple[list[Rest], tuple[int, ...], list[int]]:
    """One turn of the loop: the guesses, the accepted nodes, the committed tokens. A chooser: speculative sampling."""
    proposal = method.propose(context)
    cache = bench.target.new_cache(len(context) + 200)
    cache.copy_from(bench.target.prefill(context[:-1]).cache)
    output = bench.target.verify(proposal.tree, cache, proposal.riders)
    if chooser is None:
        verdict = accept_matching(proposal.tree, output.logits, Chooser(SamplingSettings()), context)
    else:
        verdict = accept_speculative(proposal.tree, output.logits, chooser, context, proposal.draft_probs)
    tokens = [proposal.tree.token_ids[node] for node in verdict.accepted] + [verdict.choice.token_id]
    guesses = method._shown.guesses
    method.observe(Outcome(proposal.tree, output, verdict.accepted, verdict.accepted, [*context, *tokens]))
    return guesses, verdict.accepted, tokens


def changed(pool: dict[int, list[Rest]], changes: dict[str, list[list[int]]]) -> dict[int, list[Rest]]:
    """The pool after recorded changes: full new lists of the keys that changed."""
    return pool | {int(key): [tuple(rest) for rest in rests] for key, rests in changes.items()}


@pytest.mark.parametrize(
    "name",
    ["lookahead_greedy_L4W5G5_prompt1", "lookahead_greedy_L5W5G5_prompt1", "lookahead_greedy_L5W7G7_prompt0"],
)
def test_steps_equal_the_originals_from_its_own_states(name: str, tiny: Bench) -> None:
    """Guesses, hits, n-grams added and the next window, from each recorded window, pool and last token.

    Two named deviations: a full match keeps its bonus token; and where several tokens were accepted the
    original's own history repeats the last one, so n-grams that it makes of such output are false.
    """
    recording = golden(name)
    header, size = recording["header"], recording["header"]["LEVEL"]
    accepted_steps = full_matches = compared = pools = 0
    for result in recording["results"][:3]:
        context = prompt_ids(result["id"])
        history = list(context)
        pool = changed({}, result["initial_pool"])
        for place, step in enumerate(result["steps"]):
            after = changed(changed(pool, step["pool_changed_by_window"]), step["pool_changed_by_emitted"])
            emitted = step["emitted"]
            if END in emitted:
                break  # the loop cuts there, not the method
            truthful = len(emitted) == 1 and history[-size:] == context[-size:]
            if place:  # the original's first step reads the prompt too
                method = method_at(tiny, header, step["window_before"], pool)
                guesses, accepted, tokens = take_step(tiny, method, context)
                full = len(accepted) == size - 1
                assert context[-1] == step["input_token"]
                assert [list(rest) for rest in guesses] == (step["guesses"] or [])
                assert len(accepted) == step["max_hit"] + full, (result["id"], place)
                assert tokens[: len(tokens) - full] == emitted
                assert method._rows == [row for row in step["window_after"] if row]
                if truthful or not header["POOL_FROM_PROMPT"]:
                    assert {key: method._pool.look_up(key) for key in after} == after, (result["id"], place)
                    pools += 1
                accepted_steps += bool(accepted)
                full_matches += full
                compared += 1
            pool = after
            context += emitted
            history += [emitted[-1]] * len(emitted)
    assert compared > 50
    assert pools > 30
    assert accepted_steps > 10
    assert full_matches > 0


def test_unlimited_guesses_are_verified_where_the_original_verifies_none(tiny: Bench) -> None:
    """Its pool and window go on as ours; it commits a token a step, the first of those that we commit.

    Its unlimited pool has no order within a key.
    """
    recording = golden("lookahead_greedy_L4W5G-1_prompt1")
    verified = accepted_steps = pools = 0
    for result in recording["results"]:
        context, pool = prompt_ids(result["id"]), changed({}, result["initial_pool"])
        for place, step in enumerate(result["steps"][:40]):
            after = changed(changed(pool, step["pool_changed_by_window"]), step["pool_changed_by_emitted"])
            if END in step["emitted"]:
                break
            if place:
                method = method_at(tiny, recording["header"], step["window_before"], pool)
                guesses, accepted, tokens = take_step(tiny, method, context)
                full = all(step["window_before"])
                assert guesses == (pool.get(context[-1], []) if full else [])
                assert (step["guesses"], step["max_hit"], step["emitted"]) == (None, 0, tokens[:1])
                assert method._rows == [row for row in step["window_after"] if row]
                verified += len(guesses) > 5
                accepted_steps += bool(accepted)
                if not accepted:
                    ours = {key: sorted(method._pool.look_up(key)) for key in after}
                    assert ours == {key: sorted(rests) for key, rests in after.items()}, (result["id"], place)
                    pools += 1
            pool = after
            context += step["emitted"]
    assert min(verified, accepted_steps, pools) > 5


class Replay(Chooser):
    """Draws what was recorded: uniform numbers in order, and the last token, if that had a chance."""

    def __init__(self, settings: SamplingSettings, draws: list[float], last: int | None) -> None:
        super().__init__(settings)
        self.draws, self.last = draws, last

    def coin(self, probability: float) -> tuple[bool, float]:
        draw = self.draws.pop(0)
        return draw < probability, draw

    def pick(self, probs: torch.Tensor, place: int | None = None) -> int:
        if self.last is None:  # the original keeps no bonus token after a full match
            return super().pick(probs, place)
        assert probs[self.last] > 0
        return self.last


def distinct_draws(guesses: list[Rest], emitted: list[int], draws: list[float]) -> tuple[list[float], int]:
    """The draws of first trials, and how many tokens were accepted: the original tries a rejected token again."""
    kept, live, at = [], guesses, 0
    for depth, token in enumerate(emitted):
        tried: set[int] = set()
        for rest in live:
            if rest[depth] not in tried:
                kept.append(draws[at])
                tried.add(rest[depth])
            at += 1
            if rest[depth] == token:  # what a trial rejected has no chance later, so this one was accepted
                break
        live = [rest for rest in live if rest[depth] == token]
        if not live:
            assert (at, depth) == (len(draws), len(emitted) - 1)
            return kept, depth
    assert at == len(draws)
    return kept, len(emitted)


def test_sampled_steps_accept_what_the_original_accepted(tiny: Bench) -> None:
    """Temperature, top-k and top-p; recorded draws. Named deviation: an end token may stand in our window."""
    recording = golden("lookahead_t0.7_k20_p0.9_L4W5G5_prompt0")
    header = recording["header"]
    settings = SamplingSettings(temperature=header["temperature"], top_k=header["top_k"], top_p=header["top_p"], seed=1)
    judged = accepted_tokens = full_matches = 0
    for result in recording["results"][:6]:
        context, pool = prompt_ids(result["id"]), changed({}, result["initial_pool"])
        for place, step in enumerate(result["steps"]):
            after, emitted = changed(pool, step["pool_changed_by_window"]), step["emitted"]
            guesses = [tuple(rest) for rest in step["guesses"] or []]
            if place and (guesses or place < 4):
                draws, count = distinct_draws(guesses, emitted, step["uniform_draws"]) if guesses else ([], 0)
                full = count == header["LEVEL"] - 1
                chooser = Replay(settings, draws, None if full else emitted[-1])
                method = method_at(tiny, header, step["window_before"], pool)
                ours, accepted, tokens = take_step(tiny, method, context, chooser)
                assert ours == guesses
                assert chooser.draws == []
                assert (len(accepted), tokens[: len(tokens) - full]) == (count, emitted), (result["id"], place)
                recorded = [row for row in step["window_after"] if row]
                assert method._rows[:-1] == recorded[:-1]
                assert all(a == b for a, b in zip(method._rows[-1], recorded[-1], strict=True) if a != END)
                if END not in method._rows[-1]:
                    assert {key: method._pool.look_up(key) for key in after} == after
                judged, accepted_tokens, full_matches = judged + 1, accepted_tokens + count, full_matches + full
            pool = after
            context += emitted
    assert judged > 100
    assert accepted_tokens > 30
    assert full_matches > 5
