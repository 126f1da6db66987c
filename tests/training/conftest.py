"""A tiny random Llama with a word tokenizer, saved like a real model, and data that it could have written."""

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, PreTrainedTokenizerFast, Qwen2Config

from explorer.toy import toy_tokenizer
from explorer.training.data import Example
from explorer.training.features import Sample

VOCAB, HIDDEN = 64, 64
TEMPLATE = (
    "{% for m in messages %}user {{ m['content'] }} end {% endfor %}{% if add_generation_prompt %}reply {% endif %}"
)


LLAMA_SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "tie_word_embeddings": True,
    "initializer_range": 0.3,  # wide, so that the random target is sure of something
}
GPT2_SIZES = {
    "vocab_size": VOCAB,
    "n_embd": HIDDEN,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 128,
    "initializer_range": 0.3,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
}


def word_tokenizer() -> PreTrainedTokenizerFast:
    """A token a word; the first three words are the template's."""
    words = ["user", "reply", "end", *(f"w{i}" for i in range(3, VOCAB))]
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="end"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=inner, chat_template=TEMPLATE)


def save_model(folder: Path, config, tokenizer: PreTrainedTokenizerFast, texts: list[str] | None = None) -> Path:
    """A random model of that config, saved like a real one; first trained on `texts` where there are any."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    if texts:
        ids = torch.tensor(tokenizer(texts, add_special_tokens=False).input_ids)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        for step in range(250):
            optimizer.zero_grad()
            batch = ids[torch.randperm(len(ids), generator=torch.Generator().manual_seed(step))[:32]]
            model(batch, labels=batch).loss.backward()
            optimizer.step()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


LETTERS = "qkzbvmxaplytgndrsiehcjufwo"
"""In this language each letter has one successor: the next of this round."""


def chant(start: int, length: int) -> str:
    """So many letters from that place of the round on."""
    return "".join(LETTERS[(start + place) % 26] for place in range(length))


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama."""
    return save_model(tmp_path_factory.mktemp("tiny-target"), LlamaConfig(**LLAMA_SIZES), word_tokenizer())


@pytest.fixture(scope="session", params=["qwen2", "gpt2"])
def other_model_folder(request, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny target of another architecture, with a byte-level tokenizer as both really have."""
    changes = {"vocab_size": 384, "bos_token_id": None, "eos_token_id": 0}
    known = {"qwen2": (Qwen2Config, LLAMA_SIZES), "gpt2": (GPT2Config, GPT2_SIZES)}
    make, sizes = known[request.param]
    sizes = sizes | changes | {"initializer_range": 0.05}
    # Three letters as a prompt, and an answer that goes on from the last of them.
    texts = [f"<|start|>{chant(start, 3)}\n>{chant(start + 3, 30)}" for start in range(26)]
    return save_model(tmp_path_factory.mktemp(f"tiny-{request.param}"), make(**sizes), toy_tokenizer(), texts * 2)


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
