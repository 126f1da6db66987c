"""Ready pairs of target and drafters on the Hugging Face hub, as frozen data: what each is, weighs and needs.

Revisions are commits where one is known; None is pinned at the first download (hub.py). Sizes of weights are those
of the published files where they are known, else what the parameters take in two bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

UNKNOWN_LICENCE = "see its page"
CACHED_TOKENS = 1024
CACHED_LANES = 4
WORKING_BYTES = 300_000_000
"""What a pass needs besides weights and caches: logits of a tree, activations, the tokenizer."""


@dataclass(frozen=True)
class Repo:
    """A repository of weights."""

    name: str
    parameters: int | None
    """None: not known before it is downloaded."""
    licence: str
    revision: str | None = None
    file_bytes: int | None = None
    gated: bool = False

    @property
    def download_bytes(self) -> int | None:
        """Size of its weights as published."""
        if self.file_bytes is not None or self.parameters is None:
            return self.file_bytes
        return 2 * self.parameters


@dataclass(frozen=True)
class Drafter:
    """A drafter for a target: its kind as methods name it, and where it is."""

    kind: str
    repo: Repo


@dataclass(frozen=True)
class Pair:
    """A target with its drafters."""

    id: str
    title: str
    target: Repo
    context_tokens: int
    layers: int
    kv_heads: int
    head_dim: int
    drafters: tuple[Drafter, ...]
    chat_template: str | None = None
    """For a model that was trained with a template which its tokenizer does not have."""

    def needed_bytes(self, bytes_per_value: int) -> int:
        """Memory for weights, drafters and the caches of a run: four lanes of 1,024 tokens."""
        parameters = sum(repo.parameters or 0 for repo in (self.target, *(each.repo for each in self.drafters)))
        row = 2 * self.layers * self.kv_heads * self.head_dim
        return (parameters + row * CACHED_TOKENS * CACHED_LANES) * bytes_per_value + WORKING_BYTES


_APACHE = "Apache-2.0"
_VICUNA_TEMPLATE = (
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, "
    "and polite answers to the user's questions. {% for message in messages %}{% if message['role'] == 'user' %}"
    "USER: {{ message['content'] }} {% else %}ASSISTANT: {{ message['content'] }}</s>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)

SMOLLM2_135M = Repo(
    "HuggingFaceTB/SmolLM2-135M-Instruct", 134_515_008, _APACHE, "12fd25f77366fa6b3b4b768ec3050bf629380bac"
)
QWEN25_05B = Repo("Qwen/Qwen2.5-0.5B-Instruct", 494_032_768, _APACHE, "7ae557604adf67be50417f59c2c2f167def9a775")
QWEN3_06B = Repo(
    "Qwen/Qwen3-0.6B", 596_049_920, _APACHE, "c1899de289a04d12100db370d81485cdf75e47ca", file_bytes=1_503_300_328
)

PAIRS: tuple[Pair, ...] = (
    Pair(
        id="smollm2-360m-instruct",
        title="SmolLM2-360M-Instruct",
        target=Repo(
            "HuggingFaceTB/SmolLM2-360M-Instruct", 361_821_120, _APACHE, "a10cc1512eabd3dde888204e902eca88bddb4951"
        ),
        context_tokens=8192,
        layers=32,
        kv_heads=5,
        head_dim=64,
        drafters=(Drafter("draft-model", SMOLLM2_135M),),
    ),
    Pair(
        id="tinyllama-1.1b-chat",
        title="TinyLlama-1.1B-Chat",
        target=Repo(
            "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
            1_100_048_384,
            _APACHE,
            "fe8a4ea1ffedaf415f4da2f062534de366a451e6",
            file_bytes=2_200_119_864,
        ),
        context_tokens=2048,
        layers=22,
        kv_heads=4,
        head_dim=64,
        drafters=(
            Drafter(
                "medusa",
                Repo("joaogante/TinyLlama-1.1B-Chat-v1.0-medusa-wikitext", 209_197_056, UNKNOWN_LICENCE),
            ),
        ),
    ),
    Pair(
        id="qwen2.5-1.5b-instruct",
        title="Qwen2.5-1.5B-Instruct",
        target=Repo("Qwen/Qwen2.5-1.5B-Instruct", 1_543_714_304, _APACHE, "989aa7980e4cf806f80c7fef2b1adb7bc71aa306"),
        context_tokens=32768,
        layers=28,
        kv_heads=2,
        head_dim=128,
        drafters=(Drafter("draft-model", QWEN25_05B),),
    ),
    Pair(
        id="smollm2-1.7b-instruct",
        title="SmolLM2-1.7B-Instruct",
        target=Repo(
            "HuggingFaceTB/SmolLM2-1.7B-Instruct", 1_711_376_384, _APACHE, "31b70e2e869a7173562077fd711b654946d38674"
        ),
        context_tokens=8192,
        layers=24,
        kv_heads=32,
        head_dim=64,
        drafters=(Drafter("draft-model", SMOLLM2_135M),),
    ),
    Pair(
        id="qwen3-1.7b",
        title="Qwen3-1.7B",
        target=Repo("Qwen/Qwen3-1.7B", 1_720_574_976, _APACHE, "70d244cc86ccca08cf5af4e1e306ecf908b1ad5e"),
        context_tokens=40960,
        layers=28,
        kv_heads=8,
        head_dim=128,
        drafters=(
            Drafter(
                "eagle3",
                Repo("AngelSlim/Qwen3-1.7B_eagle3", None, "custom", "94441b48acc5804677ae12259617c83323b543a9"),
            ),
            Drafter("draft-model", QWEN3_06B),
        ),
    ),
    Pair(
        id="qwen3-4b",
        title="Qwen3-4B",
        target=Repo("Qwen/Qwen3-4B", 4_022_468_096, _APACHE, "1cfa9a7208912126459214e8b04321603b3df60c"),
        context_tokens=40960,
        layers=36,
        kv_heads=8,
        head_dim=128,
        drafters=(
            Drafter("eagle3", Repo("AngelSlim/Qwen3-4B_eagle3", None, UNKNOWN_LICENCE)),
            Drafter("draft-model", QWEN3_06B),
        ),
    ),
    Pair(
        id="vicuna-7b-v1.3",
        title="Vicuna-7B-v1.3",
        target=Repo(
            "lmsys/vicuna-7b-v1.3", 6_738_415_616, "non-commercial", "236eeeab96f0dc2e463f2bebb7bb49809279c6d6"
        ),
        context_tokens=2048,
        layers=32,
        kv_heads=32,
        head_dim=128,
        drafters=(
            Drafter(
                "medusa",
                Repo(
                    "FasterDecoding/medusa-vicuna-7b-v1.3",
                    739_266_560,
                    UNKNOWN_LICENCE,
                    "82ac200bf7502419cb49a9e0adcbebe3d1d293f1",
                ),
            ),
            Drafter("eagle", Repo("yuhuili/EAGLE-Vicuna-7B-v1.3", 367_009_792, UNKNOWN_LICENCE)),
            Drafter(
                "draft-model",
                Repo("double7/vicuna-68m", 68_030_208, UNKNOWN_LICENCE, "f35c45e548302e8edd0a31db7490b42ea2ddd109"),
            ),
        ),
        chat_template=_VICUNA_TEMPLATE,
    ),
    Pair(
        id="qwen2.5-7b-instruct",
        title="Qwen2.5-7B-Instruct",
        target=Repo("Qwen/Qwen2.5-7B-Instruct", 7_615_616_512, _APACHE, "a09a35458c702b33eeacc393d103063234e8bc28"),
        context_tokens=32768,
        layers=28,
        kv_heads=4,
        head_dim=128,
        drafters=(Drafter("draft-model", QWEN25_05B),),
    ),
    Pair(
        id="llama-3.1-8b-instruct",
        title="Llama-3.1-8B-Instruct",
        target=Repo(
            "meta-llama/Llama-3.1-8B-Instruct",
            8_030_261_248,
            "Llama 3.1 Community",
            "0e9e39f249a16976918f6564b8830bc894c89659",
            gated=True,
        ),
        context_tokens=131072,
        layers=32,
        kv_heads=8,
        head_dim=128,
        drafters=(
            Drafter("medusa", Repo("philschmid/llama-3-1-8b-instruct-medusa", 50_343_936, UNKNOWN_LICENCE)),
            Drafter("eagle", Repo("yuhuili/EAGLE-LLaMA3.1-Instruct-8B", 777_003_008, UNKNOWN_LICENCE)),
            Drafter(
                "eagle3",
                Repo(
                    "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B",
                    424_700_000,
                    UNKNOWN_LICENCE,
                    "ada412b672e293d682423de84a095447bf38a637",
                ),
            ),
            Drafter(
                "draft-model",
                Repo(
                    "meta-llama/Llama-3.2-1B-Instruct",
                    1_235_814_400,
                    "Llama 3.2 Community",
                    "9213176726f574b556790deb65791e0c5aa438b6",
                    gated=True,
                ),
            ),
        ),
    ),
    Pair(
        id="qwen3-8b",
        title="Qwen3-8B",
        target=Repo("Qwen/Qwen3-8B", 8_190_735_360, _APACHE, "b968826d9c46dd6066d109eabc6255188de91218"),
        context_tokens=40960,
        layers=36,
        kv_heads=8,
        head_dim=128,
        drafters=(
            Drafter(
                "eagle3",
                Repo("AngelSlim/Qwen3-8B_eagle3", None, UNKNOWN_LICENCE, "9629dfce7a4a10564dd48d3e5485c3976095653c"),
            ),
            Drafter("draft-model", QWEN3_06B),
        ),
    ),
)
"""Smallest first."""


def find_pair(name: str) -> Pair | None:
    """The pair of that id, or of that target repository; None where there is none."""
    return next((pair for pair in PAIRS if name in (pair.id, pair.target.name)), None)
