"""EAGLE and EAGLE-3 checkpoints under every public set of names are the same head; variants are refused by name."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from explorer.drafters.eagle3_checkpoint import load_eagle3
from explorer.drafters.eagle3_head import Eagle3Head, Eagle3Shape
from explorer.drafters.eagle_head import EagleHead, load_eagle
from explorer.errors import ExplorerError
from tests.drafters.conftest import HIDDEN, KEPT, SHAPE, VOCAB, random_tensor

LAYERS = 8
SHAPE3 = Eagle3Shape(HIDDEN, 40, 4, 2, 8, rms_norm_eps=1e-5, rope_theta=500.0, draft_vocab_size=KEPT)
KEPT_IDS = torch.randperm(VOCAB, generator=torch.Generator().manual_seed(4))[:KEPT].sort().values
T2D = torch.zeros(VOCAB, dtype=torch.bool)
T2D[KEPT_IDS] = True
MAPS = {"d2t": KEPT_IDS - torch.arange(KEPT), "t2d": T2D}
EMBED, OUTPUT = random_tensor(1, VOCAB, HIDDEN), random_tensor(2, VOCAB, HIDDEN)
CONFIG = {"num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 500.0}


def random_state(module):
    return {
        name: random_tensor(100 + number, *parameter.shape) + (parameter.ndim == 1)
        for number, (name, parameter) in enumerate(module.named_parameters())
    }


STATE3, STATE1 = random_state(Eagle3Head(SHAPE3)), random_state(EagleHead(SHAPE))


def load1(folder):
    return load_eagle(folder, embed_weight=EMBED, output_weight=OUTPUT, device="cpu", dtype=torch.float32)


def load3(folder, *, embed=EMBED, layers=LAYERS):
    return load_eagle3(folder, embed_weight=embed, num_layers=layers, device="cpu", dtype=torch.float32)


def drafts(head, taps=None):
    """Log-probabilities after three slots and after one drafted slot more."""
    tokens = torch.tensor([4, 7, 11])
    features = random_tensor(9, 3, HIDDEN)
    if taps is not None:
        features = head.fuse_features(random_tensor(9, 3, taps))
    cache = head.new_cache(8)
    first = head(tokens, features, torch.arange(3), cache)
    second = head(tokens[:1], first[-1:], torch.tensor([3]), cache)
    return torch.cat([head.log_probs(first[-1:]), head.log_probs(second)])


def rename(state, old, new):
    return {name.replace(old, new, 1) if name.startswith(old) else name: tensor for name, tensor in state.items()}


def prefixed(state, prefix):
    return {f"{prefix}{name}": tensor for name, tensor in state.items()}


SPECULATORS = {"speculators_model_type": "eagle3", "transformer_layer_config": CONFIG, "draft_vocab_size": KEPT}
NAMES3 = {
    "official": (STATE3 | MAPS, CONFIG),
    "layers.0": (rename(STATE3, "midlayer.", "layers.0.") | MAPS, CONFIG),
    "model. in front": (prefixed(rename(STATE3, "midlayer.", "layers.0."), "model.") | MAPS, CONFIG),
    "only the layer prefixed": (rename(STATE3, "midlayer.", "model.layers.0.") | MAPS, CONFIG),
    "speculators": (
        rename(STATE3, "midlayer.", "layers.0.")
        | MAPS
        | {"verifier_lm_head.weight": OUTPUT[KEPT_IDS], "verifier_norm.weight": torch.ones(HIDDEN)},
        SPECULATORS,
    ),
    "the target's embedding in it": (STATE3 | MAPS | {"embed_tokens.weight": EMBED.clone()}, CONFIG),
    "vLLM's name of d2t": (STATE3 | {"draft_id_to_target_id": MAPS["d2t"]}, CONFIG),
    "no head counts but head_dim": (STATE3 | MAPS, {"head_dim": 8, "rms_norm_eps": 1e-5, "rope_theta": 500.0}),
    "a wrong number of key heads": (STATE3 | MAPS, CONFIG | {"num_key_value_heads": 4}),
    "a config about something else": (
        STATE3 | MAPS,
        CONFIG | {"hidden_size": 4096, "intermediate_size": 7, "vocab_size": 9, "architectures": ["EagleModel"]},
    ),
    "a stale frequency table": (STATE3 | MAPS | {"midlayer.self_attn.rotary_emb.inv_freq": torch.ones(4)}, CONFIG),
}


@pytest.fixture
def official(write_folder):
    return drafts(load3(write_folder(STATE3 | MAPS, CONFIG)), 96)


@pytest.mark.parametrize("case", NAMES3.values(), ids=NAMES3.keys())
@torch.no_grad()
def test_every_eagle3_layout_is_the_same_head(write_folder, official, case):
    head = load3(write_folder(*case))
    torch.testing.assert_close(drafts(head, 96), official)
    assert head.token_map.tolist() == KEPT_IDS.tolist()
    assert head.embed_weight.data_ptr() == EMBED.data_ptr()


@torch.no_grad()
def test_a_sharded_pickle_is_the_same_head(write_folder, official):
    folder = write_folder({"x": torch.zeros(1)}, CONFIG)
    (folder / "model.safetensors").unlink()
    places = {}
    for number, name in enumerate([*STATE3, *MAPS]):
        shard = f"pytorch_model-0000{1 + number % 2}-of-00002.bin"
        places[name] = shard
    for shard in set(places.values()):
        torch.save({name: (STATE3 | MAPS)[name] for name in places if places[name] == shard}, folder / shard)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": places}))
    torch.testing.assert_close(drafts(load3(folder), 96), official)


VARIANTS3 = {
    "norm_before_residual": (replace(SHAPE3, norm_before_residual=True), {"norm_before_residual": True}),
    "norm_output": (replace(SHAPE3, norm_output=True), {"norm_output": True}),
    "norm_before_fc": (replace(SHAPE3, norm_before_fc=True), {}),
    "fc_norm": (replace(SHAPE3, fc_norm=True), {}),
    "head norms and biases": (replace(SHAPE3, qk_norm=True, qkv_bias=True), {}),
    "wider heads": (replace(SHAPE3, head_dim=12), {"head_dim": 12}),
    "an own embedding": (replace(SHAPE3, own_embedding=VOCAB), {}),
    "llama3 rope": (
        SHAPE3,
        {
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 16,
            }
        },
    ),
}


@pytest.mark.parametrize(("shape", "config"), VARIANTS3.values(), ids=VARIANTS3.keys())
@torch.no_grad()
def test_eagle3_variants_load_as_what_they_are(write_folder, official, shape, config):
    made = Eagle3Head(replace(shape, rope_scaling=config.get("rope_scaling")), token_map=KEPT_IDS)
    state = random_state(made)
    made.load_state_dict(state)
    made.bind(EMBED)
    loaded = drafts(load3(write_folder(state | MAPS, CONFIG | config)), 96)
    torch.testing.assert_close(loaded, drafts(made, 96))
    assert not torch.allclose(loaded, official, atol=1e-3)


@torch.no_grad()
def test_a_draft_of_another_width_brings_its_embedding(write_folder):
    shape = replace(SHAPE3, target_hidden_size=24, own_embedding=VOCAB)
    made = Eagle3Head(shape, token_map=KEPT_IDS)
    state = random_state(made)
    made.load_state_dict(state)
    made.bind(EMBED)
    folder = write_folder(state | MAPS, CONFIG)
    head = load3(folder, embed=torch.zeros(VOCAB, 24))
    torch.testing.assert_close(drafts(head, 72), drafts(made, 72))
    del state["embed_tokens.weight"]
    with pytest.raises(ExplorerError, match="no embedding of its own"):
        load3(write_folder(state | MAPS, CONFIG), embed=torch.zeros(VOCAB, 24))


@torch.no_grad()
def test_no_d2t_means_the_whole_vocabulary(write_folder):
    made = Eagle3Head(replace(SHAPE3, draft_vocab_size=VOCAB))
    state = random_state(made)
    assert load3(write_folder(state, CONFIG)).token_map is None
    zeros = {"d2t": torch.zeros(VOCAB, dtype=torch.long), "t2d": torch.ones(VOCAB, dtype=torch.bool)}
    assert load3(write_folder(state | zeros, CONFIG)).token_map is None


IDS = "eagle_aux_hidden_state_layer_ids"


@pytest.mark.parametrize(
    ("config", "layers", "taps"),
    [
        ({}, 8, (2, 4, 5)),
        ({IDS: [1, 3, 6]}, 8, (1, 3, 6)),  # vLLM and speculators: inputs
        (SPECULATORS | {IDS: [0, 3, 6]}, 8, (0, 3, 6)),
        ({"eagle_config": {IDS: [0, 2, 5]}}, 8, (1, 3, 6)),  # SGLang, SpecForge: outputs
        ({"eagle_config": {IDS: [1, 17, 33]}}, 36, (2, 18, 34)),
        ({"eagle_config": {IDS: [1, 29, 57]}}, 61, (2, 30, 58)),
        ({"eagle_config": {IDS: [2, 30, 58]}}, 61, (2, 30, 58)),  # the original's choice, counted as inputs
        ({IDS: [1, 29, 57]}, 61, (2, 30, 58)),  # the original's choice, counted as outputs
        ({IDS: [1, 2, 3]}, 4, (1, 2, 3)),
    ],
)
def test_the_taps_are_inputs_however_they_are_counted(write_folder, config, layers, taps):
    assert load3(write_folder(STATE3 | MAPS, CONFIG | config), layers=layers).taps_of(layers) == taps


@pytest.mark.parametrize(
    ("change", "config", "message"),
    [
        ({"fc.weight": None}, {}, r"lacks the tensor fc\.weight"),
        ({"midlayer.mlp.up_proj.weight": None}, {}, r"lacks the tensor midlayer\.mlp\.up_proj\.weight"),
        ({"lm_head.weight": random_tensor(0, KEPT, 8)}, {}, r"lm_head\.weight .* has shape \(20, 8\)"),
        ({"d2t": None}, {}, "drafts 20 tokens and has no d2t; the target has 48"),
        ({"d2t": MAPS["d2t"] + 40, "t2d": None}, {}, "names tokens outside the target's 48"),
        ({"d2t": -torch.arange(KEPT), "t2d": None}, {}, "names a token twice"),
        ({"d2t": MAPS["d2t"][:-1]}, {}, "must be 20 whole numbers"),
        ({"t2d": ~T2D}, {}, "do not name the same tokens"),
        ({"t2d": torch.ones(64, dtype=torch.bool)}, {}, "made for a target of 64 tokens, this one has 48"),
        ({"layers.1.self_attn.q_proj.weight": torch.zeros(4, 4)}, {}, r"not a plain EAGLE-3 head: .*layers\.1"),
        ({"mask_hidden": torch.zeros(1, 96)}, {}, "parallel-drafting"),
        ({}, {IDS: [1, 2]}, r"reads the target's layers \[1, 2\]; 3 of a target of 8"),
        ({}, {IDS: [1, 2, 8]}, "3 of a target of 8"),
        ({}, {IDS: "all"}, "3 of a target of 8"),
        ({}, {"norm_output": "yes"}, "true or false for norm_output"),
        ({}, {"hidden_act": "gelu"}, "activation 'gelu'"),
        ({}, {"rope_scaling": {"rope_type": "longrope"}}, "rotary scaling 'longrope'"),
        ({}, {"rope_scaling": {"rope_type": "llama3"}}, "rotary scaling in config.json of .* is incomplete"),
        ({}, {"rope_scaling": [1]}, "needs an object for rope_scaling"),
        ({}, {"num_attention_heads": 32}, "do not fit its tensors"),
    ],
)
def test_malformed_eagle3_checkpoints_are_refused(write_folder, change, config, message):
    tensors = {name: tensor for name, tensor in (STATE3 | MAPS | change).items() if tensor is not None}
    with pytest.raises(ExplorerError, match=message):
        load3(write_folder(tensors, CONFIG | config))


def test_an_eagle3_head_of_another_target_is_refused(write_folder):
    with pytest.raises(ExplorerError, match="made for hidden size 32, the target has 40"):
        load3(write_folder(STATE3 | MAPS, CONFIG), embed=torch.zeros(VOCAB, 40))
    with pytest.raises(ExplorerError, match="target of 4 layers"):
        load3(write_folder(STATE3 | MAPS, CONFIG), layers=4)


TOKEN_MAP = torch.randperm(VOCAB, generator=torch.Generator().manual_seed(3))[:KEPT]
SPECULATORS1 = rename(rename(STATE1, "layers.0.", "transformer."), "fc.", "fusion_fc.")
VLLM1 = rename(STATE1, "layers.0.", "model.layers.0.") | {"model.embed_tokens.weight": EMBED, "lm_head.weight": OUTPUT}
NAMES1 = {
    "official": (STATE1, CONFIG),
    "official with the embedding": (STATE1 | {"embed_tokens.weight": EMBED}, CONFIG),
    "speculators": (SPECULATORS1, {"transformer_layer_config": CONFIG}),
    "vLLM": (VLLM1, {"model_type": "eagle", "model": CONFIG}),
}


@pytest.mark.parametrize("case", NAMES1.values(), ids=NAMES1.keys())
@torch.no_grad()
def test_every_eagle_layout_is_the_same_head(write_folder, case):
    expected = drafts(load1(write_folder(STATE1, CONFIG)))
    torch.testing.assert_close(drafts(load1(write_folder(*case))), expected)


@torch.no_grad()
def test_an_own_output_matrix_with_a_token_map(write_folder):
    """vLLM's form: whole, or cut to the draft vocabulary already."""
    own = random_tensor(77, VOCAB, HIDDEN)
    whole = load1(write_folder(STATE1 | {"lm_head.weight": own, "token_map": TOKEN_MAP}, CONFIG))
    cut = load1(write_folder(STATE1 | {"lm_head.weight": own[TOKEN_MAP].clone(), "token_map": TOKEN_MAP}, CONFIG))
    assert torch.equal(whole.output_weight, own[TOKEN_MAP])
    torch.testing.assert_close(drafts(whole), drafts(cut))


@torch.no_grad()
def test_biases_are_found_by_their_names(write_folder):
    made = EagleHead(replace(SHAPE, qkv_bias=True, fc_bias=False))
    state = random_state(made)
    made.load_state_dict(state)
    made.bind(EMBED, OUTPUT)
    torch.testing.assert_close(drafts(load1(write_folder(state, CONFIG))), drafts(made))


def test_half_precision_is_read_as_it_is(write_folder):
    half = {name: tensor.half() for name, tensor in STATE1.items()}
    assert torch.equal(load1(write_folder(half, CONFIG)).fc.weight, half["fc.weight"].float())


@pytest.mark.parametrize(
    "name", ["embed_layernorm.weight", "hidden_layernorm.weight", "lm_head_layernorm.weight", "norm.weight"]
)
def test_variants_with_more_norms_are_refused_by_name(write_folder, name):
    with pytest.raises(ExplorerError, match=f"not a plain EAGLE head: it has the tensor {name}"):
        load1(write_folder(STATE1 | {name: torch.ones(HIDDEN)}, CONFIG))


def test_one_kind_is_not_taken_for_the_other(write_folder):
    with pytest.raises(ExplorerError, match="is an EAGLE-3 head, not an EAGLE head"):
        load1(write_folder(STATE3 | MAPS, CONFIG))
    with pytest.raises(ExplorerError, match="is an EAGLE head, not an EAGLE-3 head"):
        load3(write_folder(STATE1, CONFIG))


def test_a_tensor_under_two_names_is_refused(write_folder):
    with pytest.raises(ExplorerError, match=r"fc\.weight twice"):
        load1(write_folder(STATE1 | {"model.fc.weight": STATE1["fc.weight"].clone()}, CONFIG))


def test_shards_of_safetensors(write_folder):
    folder = write_folder({"x": torch.zeros(1)}, CONFIG)
    (folder / "model.safetensors").unlink()
    names = list(STATE1)
    for shard, part in (("a.safetensors", names[:3]), ("b.safetensors", names[3:])):
        save_file({name: STATE1[name] for name in part}, folder / shard)
    places = {name: "a.safetensors" if name in names[:3] else "b.safetensors" for name in names}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    assert torch.equal(load1(folder).layer.self_attn.q_proj.weight, STATE1["layers.0.self_attn.q_proj.weight"])
