"""Models of many kinds: lanes equal `generate`, trees equal plain passes, caches a fresh prefill; others refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from explorer.architectures import refuse_unsupported
from explorer.errors import ExplorerError
from explorer.selfcheck import check_passes
from explorer.target import TAP_LAST, TargetModel, tap_hidden
from explorer.toy import toy_drafter
from explorer.tree import Candidate, CandidateTree
from tests.lanes import Bench, Oracle, assert_same_output, decode
from tests.models import REFUSED, SHOWN, config_of, tiny_model, tiny_target

BUDGET = 24
PROMPT = (17, 30, 45, 17, 30, 45, 99, 17, 30)
CLOSE = {"atol": 2e-4, "rtol": 2e-4}
METHODS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("autoregressive", {}),
    ("lookahead", {"pool_from_prompt": True}),
    ("medusa", {"nodes": 20}),
)


@pytest.fixture(scope="module", params=SHOWN)
def bench(request: pytest.FixtureRequest) -> Bench:
    """A tiny model of every kind, with Medusa heads of noise."""
    target = tiny_target(request.param)
    return Bench(target.transformers_model, target, {"medusa": toy_drafter("medusa", target)})


@pytest.mark.parametrize(("method", "params"), METHODS, ids=[name for name, _ in METHODS])
def test_greedy_lanes_equal_generate(bench: Bench, method: str, params: dict[str, Any]) -> None:
    lane = bench.lane(method, params, ids=PROMPT, budget=BUDGET)
    ours = decode(lane)
    assert ours
    assert_same_output(bench, PROMPT, ours, bench.expected(PROMPT, BUDGET))


def test_a_tree_of_the_truth_and_its_siblings_is_accepted_in_few_passes(bench: Bench) -> None:
    """Every accepted node stands between two rejected ones, so a commit always gathers rows from all over."""
    expected = bench.expected(PROMPT, BUDGET)
    lane = bench.lane(Oracle, {"script": tuple(expected)}, ids=PROMPT, budget=BUDGET)
    passes = []

    def check(turn: Any) -> None:
        passes.append(turn)
        fresh = bench.target.prefill([*PROMPT, *lane.output[:-1]]).cache
        for mine, theirs in zip(lane.cache.rows(), fresh.rows(), strict=True):
            torch.testing.assert_close(mine, theirs, **CLOSE)

    assert_same_output(bench, PROMPT, decode(lane, check), expected)
    assert len(passes) <= len(expected) / 4 + 1


def test_tree_rows_equal_plain_logits_of_their_paths(bench: Bench) -> None:
    drafted = ((5, 0), (250, 0), (5, 1), (60, 2), (61, 4), (7, 3))
    tree = CandidateTree(40, tuple(Candidate(token, parent, "test") for token, parent in drafted))
    cache = bench.target.new_cache(64)
    cache.copy_from(bench.target.prefill(PROMPT).cache)
    output = bench.target.verify(tree, cache)
    for node in range(len(tree)):
        path = [tree.token_ids[each] for each in (0, *tree.path(node))]
        torch.testing.assert_close(output.logits[node], bench.logits([*PROMPT, *path])[-1], **CLOSE)


def test_taps_are_the_models_own_hidden_states(bench: Bench) -> None:
    layers = bench.target.num_layers
    taps = frozenset({TAP_LAST, *(tap_hidden(index) for index in range(layers))})
    found = bench.target.prefill(PROMPT, taps=taps).taps
    with torch.inference_mode():
        plain = bench.model(torch.tensor([PROMPT]), output_hidden_states=True).hidden_states
    assert len(plain) >= layers
    for index in range(layers):
        torch.testing.assert_close(found[tap_hidden(index)], plain[index][0], **CLOSE)
    head = bench.model.get_output_embeddings()
    assert found[TAP_LAST].shape == (len(PROMPT), bench.target.hidden_size)
    assert head.weight.shape[1] == bench.target.hidden_size


def test_the_check_at_load_takes_every_kind(bench: Bench) -> None:
    assert check_passes(bench.target) is None


@pytest.mark.parametrize("name", ["llama", "mixtral", "gpt2", "gemma"])
def test_the_check_at_load_takes_bfloat16(name: str) -> None:
    model = tiny_model(name).to(torch.bfloat16)
    assert check_passes(TargetModel(model, None, None)) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_rolled_back_is_refused_by_name_with_the_reason(name: str) -> None:
    kind, settings, reason = REFUSED[name]
    config = config_of(kind, settings)
    mapping: Any = MODEL_FOR_CAUSAL_LM_MAPPING
    model_class = mapping.get(type(config), None)
    with pytest.raises(ExplorerError, match=reason) as caught:
        refuse_unsupported(config, stateful=bool(getattr(model_class, "_is_stateful", False)))
    assert str(caught.value).startswith(f"{kind} cannot be shown: ")


class Spoilt(torch.nn.Module):
    """A decoder that does not do what it is told, without a word."""

    def __init__(self, inner: Any, drop: str) -> None:
        super().__init__()
        self._inner, self._drop = inner, drop

    def forward(self, **given: Any) -> Any:
        rows, cached = given["input_ids"].shape[1], given["cache"].length
        if self._drop == "mask":
            given["attention_mask"] = None
        elif self._drop == "positions":
            given["position_ids"] = torch.arange(cached, cached + rows)[None]
        elif self._drop == "scale":
            output = self._inner(**given)
            output.last_hidden_state *= 1.01
            return output
        return self._inner(**given)


@pytest.mark.parametrize("drop", ["mask", "positions", "scale"])
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_model_that_silently_gets_trees_wrong_is_refused(name: str, drop: str, monkeypatch: Any) -> None:
    target = tiny_target(name)
    model = target.transformers_model
    spoilt = Spoilt(model.get_decoder(), drop)
    monkeypatch.setattr(model, "get_decoder", lambda: spoilt, raising=False)
    with pytest.raises(ExplorerError, match=r"cannot be shown: .*differ from a plain pass by"):
        check_passes(target)


def test_a_head_that_is_not_what_makes_the_logits_is_refused(monkeypatch: Any) -> None:
    target = tiny_target("llama")
    model = target.transformers_model
    forward = model.forward

    def shifted(**given: Any) -> Any:
        output = forward(**given)
        output.logits = output.logits + torch.arange(output.logits.shape[-1])
        return output

    monkeypatch.setattr(model, "forward", shifted)
    with pytest.raises(ExplorerError, match="LlamaForCausalLM cannot be shown: its logits are not those of its output"):
        check_passes(target)


def test_a_rope_that_stretches_ends_the_context_where_it_would_begin_to() -> None:
    assert tiny_target("phi3-longrope").context_tokens == 128
    assert tiny_target("phi3").context_tokens == 256


def test_a_lane_at_the_end_of_learned_positions_stops_there() -> None:
    """GPT-2 has an embedding per position: one position too many would be an error, not a worse text."""
    target = tiny_target("gpt2", n_positions=32)
    bench = Bench(target.transformers_model, target, {"medusa": toy_drafter("medusa", target)})
    for method, params in METHODS:
        ours = decode(bench.lane(method, params, ids=PROMPT, budget=100))
        assert len(ours) == 32 - len(PROMPT)
        assert_same_output(bench, PROMPT, ours, bench.expected(PROMPT, 32 - len(PROMPT)))
