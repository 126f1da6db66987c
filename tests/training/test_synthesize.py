"""Self-generated text: batched rows equal rows alone, runs resume, what is left out is counted."""

import json

import pytest
import torch

from explorer.errors import ExplorerError
from explorer.training.data import read_pairs
from explorer.training.filters import loops, prompt_key, repeated_share, why_not_prompt
from explorer.training.generate import Writing, choose, write_rows
from explorer.training.synthesize import SynthesisOptions, synthesize, user_prefix
from explorer.training.target import end_token_ids, load_frozen


@pytest.fixture
def target(model_folder):
    return load_frozen(model_folder, sha256="aa", dtype="float32")


@pytest.fixture
def options(model_folder, prompts_file, tmp_path):
    return SynthesisOptions(
        model=model_folder,
        out=tmp_path / "text.jsonl",
        prompts=prompts_file,
        tokens=10_000,
        rows=8,
        max_new_tokens=24,
        device="cpu",
        dtype="float32",
    )


@pytest.fixture
def prompts_file(tmp_path):
    """30 prompts of words that the tiny tokenizer knows, one of them twice."""
    path = tmp_path / "prompts.jsonl"
    texts = [f"w{3 + n} w{4 + n} w{5 + n}" for n in range(29)] + ["W3  w4 w5"]
    path.write_text("".join(json.dumps({"category": "x", "prompt": text}) + "\n" for text in texts), encoding="utf-8")
    return path


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def plain(target, prompt, ends, count):
    """Greedy decoding of one row without a cache."""
    ids = list(prompt)
    for _ in range(count):
        with torch.inference_mode():
            ids.append(int(target.model(torch.tensor([ids])).logits[0, -1].argmax()))
        if ids[-1] in ends:
            break
    return ids[len(prompt) :]


def test_greedy_rows_of_a_batch_equal_rows_decoded_alone(target):
    prompts = [[0, 5, 6], [0, 9, 9, 9, 9, 1], [7], [0, 20, 30, 40]]
    # Tokens that these rows write make them end at different steps, so that rows leave the batch.
    ends = frozenset({plain(target, prompts[0], (), 4)[-1], plain(target, prompts[2], (), 9)[-1]})
    written = write_rows(target.model, prompts, [0.0] * 4, Writing(16, ends, seed=1))
    assert written == [plain(target, prompt, ends, 16) for prompt in prompts]
    assert len({len(row) for row in written}) > 1


def test_sampling_follows_the_distribution_of_the_best_hundred():
    logits = torch.randn(1, 300, generator=torch.Generator().manual_seed(0)).expand(20_000, -1)
    drawn = choose(logits, torch.full((20_000,), 0.7), torch.Generator().manual_seed(1))
    kept = logits[0].topk(100).indices
    expected = torch.zeros(300).index_put((kept,), (logits[0, kept] / 0.7).softmax(-1))
    shares = drawn.bincount(minlength=300) / 20_000
    assert float((shares - expected).abs().max()) < 0.015
    assert set(drawn.tolist()) <= set(kept.tolist())
    assert int(choose(logits[:1], torch.zeros(1), torch.Generator())[0]) == int(logits[0].argmax())


def test_given_prompts_are_answered_once_each_and_training_can_read_them(options, target):
    manifest = synthesize(options)
    lines = records(options.out)
    assert len(lines) == manifest.pairs
    assert manifest.pairs + sum(manifest.dropped.values()) == 30
    assert manifest.dropped["prompt repeated"] == 1
    assert {line["temperature"] for line in lines} == {0.0, 0.7}
    assert manifest.greedy_pairs == sum(line["temperature"] == 0 for line in lines)
    assert manifest.answer_tokens == sum(len(line["ids"]) for line in lines)
    assert all(line["loops"] == loops(line["ids"]) for line in lines)
    ends = end_token_ids(target)
    for line in lines:
        if line["temperature"] == 0:
            assert line["ids"] == plain(target, target.codec.encode_prompt(line["prompt"]), ends, 24)
    useful = [line for line in lines if not line["loops"]]
    if useful:
        assert len(read_pairs(options.out)) == len(useful)
    told = json.loads(options.manifest.read_text())
    assert told["target_sha256"] == target.sha256 or len(told["target_sha256"]) == 64
    assert told["recipe"]["greedy_share"] == 0.6


def test_a_killed_run_goes_on_to_the_same_file(options, tmp_path):
    whole = options.model_copy(update={"out": tmp_path / "whole.jsonl"})
    synthesize(whole)
    synthesize(options.model_copy(update={"tokens": 1}))
    with options.out.open("a") as file:
        file.write('{"prompt": "half a li')  # a round that was being written when the run was killed
    synthesize(options)
    assert options.out.read_text() == whole.out.read_text()


def test_user_turns_are_written_by_the_target_itself(options, target):
    """The tiny template puts a word before the user's; turns are what the model writes after it."""
    assert user_prefix(target.tokenizer) == [0]
    own = options.model_copy(update={"prompts": None, "tokens": 60, "rows": 32, "max_prompt_tokens": 24})
    manifest = synthesize(own)
    lines = records(own.out)
    assert len({prompt_key(line["prompt"]) for line in lines}) == len(lines) == manifest.pairs
    assert manifest.useful_tokens >= 60
    assert synthesize(own.model_copy(update={"out": own.out.with_name("again.jsonl")})).pairs == manifest.pairs
    assert own.out.read_text() == own.out.with_name("again.jsonl").read_text()


def test_excluded_prompts_stay_out(options, prompts_file):
    with pytest.raises(ExplorerError, match="prompts were all dropped"):
        synthesize(options.model_copy(update={"exclude": (prompts_file,)}))


def test_another_recipe_or_model_does_not_continue_a_file(options):
    synthesize(options.model_copy(update={"tokens": 1}))
    with pytest.raises(ExplorerError, match="made with another model or other options"):
        synthesize(options.model_copy(update={"seed": 5}))
    options.manifest.unlink()
    with pytest.raises(ExplorerError, match="has no manifest"):
        synthesize(options)


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "is empty"), ("{", "Line 1 of .* is not valid JSON"), ('{"text": "a"}', "text field `prompt`")],
)
def test_bad_prompt_files_are_told(options, tmp_path, text, message):
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    with pytest.raises(ExplorerError, match=message):
        synthesize(options.model_copy(update={"prompts": path}))


def test_loops_and_noise_are_recognised():
    assert repeated_share([1, 2, 3]) == 0.0
    assert repeated_share(list(range(50))) == 0.0
    assert loops([1, 2, 3] * 10)
    assert not loops([*list(range(30)), 1, 2, 3, 4])
    assert why_not_prompt("What is a good name for a cat?", ["<end>"]) is None
    assert why_not_prompt("Hi", []) == "prompt length"
    assert why_not_prompt("What is <end> a good name?", ["<end>"]) == "prompt marks"
    assert why_not_prompt("12345 67890 12345 67890", []) == "prompt noise"
