"""A tiny random Llama with a word tokenizer, saved like a real model, and data that it could have written."""

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from explorer.training.data import Example
from explorer.training.features import Sample

VOCAB, HIDDEN = 64, 64
TEMPLATE = (
    "{% for m in messages %}user {{ m['content'] }} end {% endfor %}{% if add_generation_prompt %}reply {% endif %}"
)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers, 64 words; the first three words are the template's."""
    folder = tmp_path_factory.mktemp("tiny-target")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        initializer_range=0.3,  # wide, so that the random target is sure of something
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    words = ["user", "reply", "end", *(f"w{i}" for i in range(3, VOCAB))]
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="end"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, chat_template=TEMPLATE)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def data_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 answers that count upwards; some prompts fall into the held-out twentieth."""
    path = tmp_path_factory.mktemp("data") / "pairs.jsonl"
    lines = [
        {"prompt": f"w{3 + n % 50} w{3 + n // 50}", "ids": [3 + (n + k) % 60 for k in range(12 + n % 5)]}
        for n in range(120)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def counting_samples() -> list[Sample]:
    """Two samples whose feature of position t is one-hot at token t+1, as if the target were certain."""
    samples = []
    for start, length in ((0, 16), (5, 14)):
        ids = tuple(range(start, start + length))
        features = torch.nn.functional.one_hot(torch.tensor(ids) + 1, HIDDEN).to(torch.bfloat16)
        samples.append(Sample(Example(ids, prompt_length=4, temperature=0.0, held_out=True), features))
    return samples
