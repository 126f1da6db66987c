"""Match: a draft is accepted where it is the very token that the target chooses. Lossless."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from explorer.acceptance.verdict import Verdict
from explorer.sampling import Choice, Chooser
from explorer.trace import Decision
from explorer.tree import CandidateTree


def accept_matching(tree: CandidateTree, logits: Tensor, chooser: Chooser, history: Sequence[int]) -> Verdict:
    """Walk down: the target chooses a token at the current node; a child that carries it is accepted.

    logits: (T, V), a row per node. history: all token ids up to and including the root. Greedy: the longest
    path that agrees with the argmax. Sampling: one draw per visited node, and the draw itself is emitted,
    which keeps the target's distribution for any deterministic draft tree (acceptance probability of a
    draft x is target_probs[x], the residual is target_probs without x; Leviathan et al., arXiv 2211.17192,
    section 2.3 with a one-hot draft distribution). Rows are processed along the walk only: sorting a row for
    every node of the tree costs more than the pass.
    """
    children = tree.children()
    tokens = tree.token_ids
    best = chooser.best_tokens(logits[: len(tree)])
    rule = "greedy match" if chooser.greedy else "sample match"
    decisions: dict[int, Decision] = {}
    path: list[int] = []
    node, seen = 0, list(history)
    while True:
        choice = None if best is not None else chooser.choose(logits[node], seen)
        wanted = best[node] if best is not None else choice.token_id if choice else -1
        decisions |= {child: Decision(rule=rule, wanted=wanted) for child in children[node]}
        step = next((child for child in children[node] if tokens[child] == wanted), None)
        if step is None:
            return Verdict(tuple(path), choice or Choice(wanted, "argmax"), decisions)
        path.append(step)
        node = step
        seen.append(tokens[step])


def accept_block(
    tree: CandidateTree, logits: Tensor, chooser: Chooser, history: Sequence[int], *, whole: bool
) -> Verdict:
    """Jacobi's rule for a chain: the target's token after every node; the leading nodes that agree are accepted.

    whole: all or nothing; a chain that disagrees anywhere commits nothing. The draw at a position depends on
    seed and position alone, so that an iteration has a fixed point under sampling too, and the output has the
    target's distribution: at each position it is one function of the target_probs and of a draw of its own.
    """
    tokens = tree.token_ids
    best = chooser.best_tokens(logits[: len(tree)])
    if best is not None:
        wanted = best
    else:
        contexts = [[*history, *tokens[1 : node + 1]] for node in range(len(tree))]
        wanted = [chooser.choose(logits[n], seen, len(seen)).token_id for n, seen in enumerate(contexts)]
    agreed = next((node for node in range(1, len(tree)) if tokens[node] != wanted[node - 1]), len(tree)) - 1
    rule = "block match" if whole else "prefix match"
    decisions = {node: Decision(rule=rule, wanted=wanted[node - 1]) for node in range(1, len(tree))}
    settled = agreed == len(tree) - 1 or not whole
    last = agreed if settled else 0
    seen = [*history, *tokens[1 : last + 1]]
    choice = Choice(wanted[last], "argmax") if best is not None else chooser.choose(logits[last], seen, len(seen))
    accepted = tuple(range(1, agreed + 1)) if settled else ()
    return Verdict(accepted, choice, decisions, tuple(wanted), commits=settled)
