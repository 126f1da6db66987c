"""Every kind of drafter goes out in every layout and comes back with the same drafts, or says what was lost."""

import json
from dataclasses import replace

import pytest
import torch

from explorer.cli import app
from explorer.cli_export import export as export_command
from explorer.drafters.checkpoint import Checkpoint
from explorer.drafters.draft_model import DraftModel, DraftShape
from explorer.drafters.eagle3_head import Eagle3Head
from explorer.drafters.eagle_head import EagleHead
from explorer.drafters.loading import load
from explorer.drafters.medusa_heads import MedusaHeads
from explorer.errors import ExplorerError
from explorer.export import LAYOUTS, export, kind_of
from explorer.toy import toy_drafter, toy_model, toy_target, toy_tokenizer

CASES = [(kind, layout) for kind, layouts in LAYOUTS.items() for layout in layouts]
TOKEN_MAP = torch.randperm(384, generator=torch.Generator().manual_seed(5))[:50]


@pytest.fixture(scope="module")
def target():
    return toy_target()


def drafter_of(kind, target, token_map=None):
    """The toy's drafter, or one with a draft vocabulary."""
    if token_map is None:
        return toy_drafter(kind, target)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        if kind == "medusa":
            heads = MedusaHeads(4, target.hidden_size, token_map=token_map)
            torch.nn.init.normal_(heads.weight, std=0.05)
            heads.bind(target.output_weight)
            return heads
        if kind == "eagle":
            head = EagleHead(toy_drafter(kind, target).shape, token_map=token_map)
            head.bind(target.embed_weight, target.output_weight)
            return head
        if kind == "eagle3":
            shape = replace(toy_drafter(kind, target).shape, draft_vocab_size=len(token_map))
            three = Eagle3Head(shape, token_map=token_map, aux_layers=(1, 2, 3))
            three.bind(target.embed_weight)
            return three
        shape = DraftShape(1, 64, 4, 2, 12, 256)
        return DraftModel.new(shape, target, token_map=token_map)


@torch.no_grad()
def drafts(drafter, target):
    """Scores (rows, V) over the target's tokens, -inf for those that are never drafted."""
    hidden = torch.randn(3, target.hidden_size, generator=torch.Generator().manual_seed(1))
    tokens, places = torch.tensor([4, 7, 11]), torch.arange(3)
    if isinstance(drafter, MedusaHeads):
        rows = drafter(hidden[0]).log_softmax(-1)
    elif isinstance(drafter, DraftModel):
        rows = drafter.model.prefill(tokens.tolist()).logits[None].log_softmax(-1)
    else:
        if isinstance(drafter, Eagle3Head):
            hidden = drafter.fuse_features(hidden.repeat(1, 3))
        rows = drafter.log_probs(drafter(tokens, hidden, places, drafter.new_cache(4)))
    if drafter.token_map is None:
        return rows
    whole = torch.full((len(rows), target.vocabulary_tokens), float("-inf"))
    whole[:, drafter.token_map] = rows
    return whole


@pytest.mark.parametrize(("kind", "layout"), CASES)
def test_without_a_draft_vocabulary_every_layout_gives_the_same_drafts(target, tmp_path, kind, layout):
    drafter = drafter_of(kind, target)
    assert export(drafter, target, tmp_path / "x", layout) == []
    again = load(kind, tmp_path / "x", target)
    torch.testing.assert_close(drafts(again, target), drafts(drafter, target), atol=1e-5, rtol=1e-5)


KEEPING = {("medusa", "v2"), ("medusa", "vllm"), ("eagle", "vllm"), ("eagle3", "eagle3")}


@pytest.mark.parametrize(("kind", "layout"), CASES)
def test_a_draft_vocabulary_is_kept_or_the_card_says_that_it_is_not(target, tmp_path, kind, layout):
    drafter = drafter_of(kind, target, TOKEN_MAP)
    notes = export(drafter, target, tmp_path / "x", layout)
    card = (tmp_path / "x" / "README.md").read_text()
    again = load(kind, tmp_path / "x", target)
    found, wanted = drafts(again, target), drafts(drafter, target)
    assert all(note in card for note in notes)
    if (kind, layout) in KEEPING:
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    else:  # the same scores, before they were limited to 50 tokens
        assert "cannot express the draft vocabulary of 50 tokens" in notes[0]
        kept = found[:, TOKEN_MAP]
        torch.testing.assert_close(kept.log_softmax(-1), wanted[:, TOKEN_MAP], atol=1e-5, rtol=1e-5)
        assert again.token_map is None


def test_a_tied_draft_model_goes_out_with_one_matrix(tmp_path):
    tied = toy_target(tie_word_embeddings=True)
    drafter = toy_drafter("draft-model", tied)
    export(drafter, tied, tmp_path)
    assert "lm_head.weight" not in Checkpoint(tmp_path)
    torch.testing.assert_close(drafts(load(None, tmp_path, tied), tied), drafts(drafter, tied), atol=1e-5, rtol=1e-5)


def test_eagle3_goes_out_sorted_with_both_maps(target, tmp_path):
    export(drafter_of("eagle3", target, TOKEN_MAP), target, tmp_path, source={"target_sha256": "ab", "other": 1})
    tensors, config = Checkpoint(tmp_path).read(), json.loads((tmp_path / "config.json").read_text())
    ids = torch.arange(50) + tensors["d2t"]
    assert ids.tolist() == sorted(TOKEN_MAP.tolist()) == tensors["t2d"].nonzero()[:, 0].tolist()
    assert config["target_sha256"] == "ab"
    assert "other" not in config
    assert config["draft_vocab_size"] == 50


def test_nothing_is_rounded_and_nothing_is_wider_than_it_must_be(target, tmp_path):
    heads = drafter_of("medusa", target)
    with torch.no_grad():
        heads.weight.copy_(heads.weight.bfloat16())
        heads.bias.copy_(heads.bias.bfloat16())
    export(heads, target, tmp_path / "narrow", "v0.1")
    tensors = Checkpoint(tmp_path / "narrow").read()
    assert tensors["0.0.linear.weight"].dtype == torch.bfloat16
    assert tensors["0.1.weight"].dtype == torch.float32  # the target's own, which bfloat16 would round
    assert torch.equal(tensors["3.1.weight"], target.output_weight)


def test_own_output_matrices_choose_the_layout_that_holds_them(target, tmp_path):
    export(drafter_of("medusa", target), target, tmp_path / "a", "v0.1")
    own = load("medusa", tmp_path / "a", target)
    export(own, target, tmp_path / "b")
    torch.testing.assert_close(drafts(load(None, tmp_path / "b", target), target), drafts(own, target))
    assert "3.1.weight" in Checkpoint(tmp_path / "b")
    with pytest.raises(ExplorerError, match="which the layout v2 cannot hold"):
        export(own, target, tmp_path / "c", "v2")


def test_refusals(target, tmp_path):
    heads = drafter_of("medusa", target)
    with pytest.raises(ExplorerError, match="no layout 'v3' of that drafter; there is v2, v0.1, vllm"):
        export(heads, target, tmp_path, "v3")
    export(heads, target, tmp_path, "v0.1")
    with pytest.raises(ExplorerError, match="holds medusa_lm_head.pt already; name another folder"):
        export(heads, target, tmp_path, "v2")
    toy_model(7).save_pretrained(tmp_path / "m")
    toy_tokenizer().save_pretrained(tmp_path / "m")
    with pytest.raises(ExplorerError, match="is a transformers folder already"):
        export(load(None, tmp_path / "m", target), target, tmp_path / "n")
    (tmp_path / "file").write_text("")
    with pytest.raises(ExplorerError, match="cannot be written"):
        export(heads, target, tmp_path / "file" / "x")


@pytest.mark.parametrize("kind", LAYOUTS)
def test_the_command_writes_the_toys_drafters(target, tmp_path, kind, capsys):
    export_command(kind, tmp_path / "x", model="toy")
    assert str(tmp_path / "x") in capsys.readouterr().out
    assert kind_of(load(None, tmp_path / "x", target)) == kind
    export_command(str(tmp_path / "x"), tmp_path / "y", model="toy")
    again = load(None, tmp_path / "y", target)
    torch.testing.assert_close(drafts(again, target), drafts(load(None, tmp_path / "x", target), target))
    with pytest.raises(ExplorerError, match="is a file"):
        export_command(kind, tmp_path / "x" / "config.json", model="toy")


def test_the_command_refuses_what_is_not_there(target, tmp_path):
    with pytest.raises(ExplorerError, match="eagle3/nowhere/x"):
        export_command("eagle3/nowhere/x", tmp_path / "x", model="toy")
    export(drafter_of("eagle", target), target, tmp_path / "e")
    other = tmp_path / "other"
    toy_model(hidden_size=64).save_pretrained(other)
    toy_tokenizer().save_pretrained(other)
    with pytest.raises(ExplorerError, match="hidden size 48, the target has 64"):
        export_command(str(tmp_path / "e"), tmp_path / "x", model=str(other))
    with pytest.raises(ExplorerError, match=f"There is no medusa drafter for {other}; name its folder"):
        export_command("medusa", tmp_path / "x", model=str(other))
    assert not (tmp_path / "x").exists()


def test_the_command_is_on_the_command_line():
    assert any(command.callback is export_command for command in app.registered_commands)
