"""Draft models: the own layout between the target's matrices, and language models with the target's vocabulary."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from explorer.drafters.checkpoint import write_checkpoint
from explorer.drafters.draft_checkpoint import load_draft_model
from explorer.drafters.draft_model import DraftModel, DraftShape, new_transformer, own_tensors
from explorer.drafters.vocabulary import need_same_vocabulary
from explorer.errors import ExplorerError
from explorer.toy import toy_drafter, toy_model, toy_target, toy_tokenizer

SHAPE = DraftShape(2, 64, num_heads=4, num_kv_heads=2, head_dim=12, context_tokens=128, rms_norm_eps=1e-5)
IDS = [5, 60, 7, 99, 12]


@pytest.fixture(scope="module")
def target():
    return toy_target()


def load(folder, target):
    return load_draft_model(folder, target=target, device="cpu", dtype=torch.float32)


def made(target, token_map=None):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return DraftModel.new(SHAPE, target, token_map=token_map)


def save(drafter, folder, **changes):
    config = {"drafter": "draft-model", **SHAPE.config()} | changes
    write_checkpoint(folder, drafter.export(), config, "# card\n")
    return folder


def logits(drafter):
    return drafter.model.prefill(IDS).logits


def test_the_own_layout_borrows_both_matrices_and_loads_back(target, tmp_path):
    drafter = made(target)
    with torch.no_grad():  # as the file stores them
        for tensor in own_tensors(drafter.module).values():
            tensor.copy_(tensor.bfloat16())
    loaded = load(save(drafter, tmp_path / "d", target_sha256="aa"), target)
    torch.testing.assert_close(logits(loaded), logits(drafter))
    assert loaded.module.get_input_embeddings().weight.data_ptr() == target.embed_weight.data_ptr()
    assert loaded.module.get_output_embeddings().weight.data_ptr() == target.output_weight.data_ptr()
    assert set(drafter.export()) == {name for name in own_tensors(loaded.module)}
    assert loaded.info.parameters == sum(tensor.numel() for tensor in drafter.export().values())
    assert (loaded.info.id, loaded.info.target_sha256) == ("d", "aa")
    assert (loaded.model.context_tokens, loaded.model.vocabulary_tokens) == (128, target.vocabulary_tokens)


def test_a_token_map_keeps_the_rows_of_the_draft_vocabulary(target, tmp_path):
    token_map = torch.tensor([9, 2, 300, 44])
    drafter = made(target, token_map)
    loaded = load(save(drafter, tmp_path / "d"), target)
    assert loaded.token_map.tolist() == [9, 2, 300, 44]
    assert loaded.model.decoder is not None
    whole = load(save(made(target), tmp_path / "w"), target)
    torch.testing.assert_close(logits(loaded), logits(whole)[token_map])


def test_the_layers_are_those_of_transformers(target):
    """One layer with the weights of the target's first is what the target is with one layer only."""
    first = toy_target(num_hidden_layers=1)
    shape = DraftShape(1, 96, num_heads=4, num_kv_heads=2, head_dim=12, context_tokens=64, rms_norm_eps=1e-6)
    module = new_transformer(shape, embed_weight=first.embed_weight, output_weight=first.output_weight)
    state = first.transformers_model.state_dict()
    with torch.no_grad():
        for name, tensor in own_tensors(module).items():
            tensor.copy_(state[f"model.{name}"])
    drafter = DraftModel.of(module, first, token_map=None)
    torch.testing.assert_close(logits(drafter), first.prefill(IDS).logits)


def test_only_the_own_tensors_are_trained(target):
    drafter = made(target)
    trained = {name for name, each in drafter.module.named_parameters() if each.requires_grad}
    assert trained == {f"model.{name}" for name in own_tensors(drafter.module)}
    drafter.module(torch.tensor([IDS])).logits.sum().backward()
    assert all(each.grad is not None for each in drafter.module.parameters() if each.requires_grad)


@pytest.mark.parametrize(
    ("change", "config", "message"),
    [
        ({"norm.weight": torch.zeros(3)}, {}, r"norm\.weight .* has shape \(3,\)"),
        ({"layers.1.mlp.up_proj.weight": None}, {}, r"lacks the tensor layers\.1\.mlp\.up_proj\.weight"),
        ({"layers.0.self_attn.k_proj.weight": None}, {}, r"lacks the tensor layers\.0\.self_attn\.k_proj"),
        ({"lm_head.weight": torch.zeros(384, 48)}, {}, r"has the tensor lm_head\.weight"),
        ({"layers.4.norm.weight": torch.zeros(4)}, {}, "not numbered in order"),
        ({"token_map": torch.tensor([999])}, {}, "outside the target's 384"),
        ({}, {"num_attention_heads": 5}, "do not fit"),
        ({}, {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "has a rotary scaling"),
    ],
)
def test_a_malformed_own_layout_is_refused(target, tmp_path, change, config, message):
    tensors = made(target).export() | change
    write_checkpoint(
        tmp_path, {k: v for k, v in tensors.items() if v is not None}, {**SHAPE.config(), **config}, "card"
    )
    with pytest.raises(ExplorerError, match=message):
        load(tmp_path, target)


def test_layers_for_another_target_are_refused(target, tmp_path):
    folder = save(made(target), tmp_path)
    with pytest.raises(ExplorerError, match="made for hidden size 48, the target has 64"):
        load(folder, toy_target(hidden_size=64))


def save_model(model, tokenizer, folder):
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_any_language_model_with_the_targets_tokenizer(target, tmp_path):
    model = toy_model(7, num_hidden_layers=2)
    drafter = load(save_model(model, toy_tokenizer(), tmp_path / "m"), target)
    expected = model(torch.tensor([IDS])).logits[0, -1]
    torch.testing.assert_close(logits(drafter), expected.detach(), atol=1e-4, rtol=1e-4)
    assert drafter.model.decoder is not None
    assert drafter.token_map is None
    assert drafter.info.parameters == sum(each.numel() for each in model.parameters())


@pytest.mark.parametrize("rows", [300, 384, 512])
def test_rows_of_padding_may_differ(target, tmp_path, rows):
    """The tokenizer has 268 tokens; models pad their matrices as they like."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        sizes = {"vocab_size": rows, "n_positions": 64, "n_embd": 32, "n_layer": 1, "n_head": 2}
        model = GPT2LMHeadModel(GPT2Config(**sizes, eos_token_id=0, bos_token_id=1)).eval()
    drafter = load(save_model(model, toy_tokenizer(), tmp_path / "m"), target)
    expected = model(torch.tensor([IDS])).logits[0, -1].detach()
    torch.testing.assert_close(logits(drafter), expected[:384], atol=1e-4, rtol=1e-4)
    assert (drafter.token_map is None) == (rows >= 384)
    if rows < 384:
        assert drafter.token_map.tolist() == list(range(rows))


def test_another_tokenizer_is_refused_with_what_differs(target, tmp_path):
    longer = toy_tokenizer()
    longer.add_tokens(["<extra>"])
    with pytest.raises(ExplorerError, match="mine has 269 tokens, the target has 268"):
        need_same_vocabulary(target.tokenizer, longer, "mine")
    other = toy_tokenizer()
    other.get_vocab = lambda: {("<|stop|>" if piece == "<|end|>" else piece): i for piece, i in vocabulary.items()}
    vocabulary = target.tokenizer.get_vocab()
    with pytest.raises(ExplorerError, match=r"token 0 is '<\|stop\|>', the target's is '<\|end\|>'"):
        need_same_vocabulary(target.tokenizer, other, "mine")
    folder = save_model(toy_model(), longer, tmp_path / "m")
    with pytest.raises(ExplorerError, match="m has 269 tokens, the target has 268; a draft model needs"):
        load(folder, target)


def test_a_broken_language_model_is_refused(target, tmp_path):
    folder = save_model(toy_model(), toy_tokenizer(), tmp_path / "m")
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-64])
    with pytest.raises(ExplorerError, match="damaged"):
        load(folder, target)
    weights.write_bytes(whole)
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(ExplorerError, match="has no tokenizer that can be read"):
        load(folder, target)


def test_a_language_model_without_one_of_its_tensors_is_refused(target, tmp_path):
    model = toy_model()
    state = {name: tensor for name, tensor in model.state_dict().items() if name != "model.layers.1.mlp.up_proj.weight"}
    model.save_pretrained(tmp_path, state_dict=state)
    toy_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ExplorerError, match=r"lacks the tensor model\.layers\.1\.mlp\.up_proj\.weight"):
        load(tmp_path, target)


def test_the_toy_has_every_kind_of_drafter_and_the_same_one_each_time(target):
    for kind in ("medusa", "eagle", "eagle3"):
        one, two = toy_drafter(kind, target).state_dict(), toy_drafter(kind, target).state_dict()
        assert one
        assert all(torch.equal(tensor, two[name]) for name, tensor in one.items())
    first, second = toy_drafter("draft-model", target), toy_drafter("draft-model", target)
    torch.testing.assert_close(logits(first), logits(second))
    assert not any(each.requires_grad for each in first.module.parameters())
