"""What passes read is what the loaded models hold."""

import pytest
import torch

from explorer.footprint import drafter_info, memory_gb_s, shape_of, target_info
from explorer.stock import toy_drafters
from explorer.toy import toy_target


@pytest.fixture(scope="module")
def target():
    return toy_target()


def test_a_target_reads_its_weights_but_no_row_of_an_untied_embedding_twice(target):
    shape = shape_of(target)
    config, model = target.transformers_model.config, target.transformers_model
    tied = model.get_input_embeddings().weight is model.get_output_embeddings().weight
    embedding = config.vocab_size * config.hidden_size
    assert shape.pass_parameters == target.info.parameters - (0 if tied else embedding)
    assert shape.layers == config.num_hidden_layers
    assert shape.attention_size == config.num_attention_heads * (config.hidden_size // config.num_attention_heads)


def test_a_position_fills_what_the_cache_holds_of_it(target):
    cache = target.new_cache(8)
    held = sum(layer.all_keys[:, :, 0].numel() + layer.all_values[:, :, 0].numel() for layer in cache.layers)
    assert shape_of(target).cache_values == held


@pytest.mark.parametrize("kind", ["medusa", "eagle", "eagle3", "draft-model"])
def test_a_drafter_reads_its_own_weights_and_the_rows_of_the_head_that_it_borrows(target, kind):
    drafter = toy_drafters(target)[kind]
    told = drafter_info(drafter)
    assert told.id == drafter.info.id
    assert told.layers >= 1
    borrowed = getattr(drafter, "output_weight", None)
    if isinstance(borrowed, torch.Tensor):
        assert told.pass_parameters == told.parameters + borrowed.numel()
    else:
        assert told.pass_parameters >= told.parameters


def test_memory_is_timed_when_a_model_is_loaded(target):
    assert memory_gb_s(target) > 0
    info = target_info(target)
    assert info.memory_gb_s > 0
    assert info.shape == shape_of(target)
    assert type(info).model_validate_json(info.model_dump_json()) == info
