"""What a training run can be told. The CLI draws its options from these fields."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator


class TrainOptions(BaseModel):
    """Options of all trainings. None means: the method's own default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: Path = Field(description="JSONL file (may be gzipped) of prompts and the target's own answers.")
    out: Path = Field(description="Folder that receives the weights, config.json and README.md.")
    model: Path = Field(description="Folder of the target model in the transformers layout.")
    cache: Path | None = Field(
        default=None,
        description="Folder for features, saved state, checkpoints and report; default: `<out>-work`.",
    )
    features: Path | None = Field(
        default=None, description="Folder for cached features, which several drafters may share; default: in the cache."
    )
    max_tokens: int | None = Field(
        default=None, gt=0, description="Use at most this many tokens of text (prompts included)."
    )
    max_length: int = Field(default=512, ge=8, description="Cut sequences after this many tokens.")
    epochs: float | None = Field(default=None, gt=0, description="Passes over the data (EAGLE: stage 1).")
    unroll_epochs: float | None = Field(
        default=None, ge=0, description="EAGLE only: passes of training-time test (stage 2)."
    )
    warm_epochs: float = Field(
        default=0.0, ge=0, description="EAGLE-3 only: passes of single steps before the training-time test (paper: 0)."
    )
    unroll_steps: int = Field(
        default=3, ge=2, le=8, description="EAGLE and EAGLE-3: steps unrolled on own outputs (EAGLE-3's paper: 7)."
    )
    step_decay: float = Field(
        default=0.8,
        gt=0,
        le=1,
        description="EAGLE and EAGLE-3: weight of an unrolled step over that of the one before.",
    )
    regression_weight: float = Field(default=1.0, ge=0, description="EAGLE only: weight of the smooth-L1 loss.")
    cross_entropy_weight: float = Field(
        default=0.5, ge=0, description="EAGLE only: weight of the cross-entropy (paper: 0.1)."
    )
    noise: float = Field(default=0.1, ge=0, description="EAGLE only: half width of the uniform noise on features.")
    heads: int = Field(default=5, ge=1, le=10, description="Medusa only: number of heads.")
    head_layers: int = Field(default=1, ge=1, le=4, description="Medusa only: residual blocks of a head.")
    head_decay: float = Field(
        default=1.0, gt=0, le=1, description="Medusa only: weight of a head over that of the one before (paper: 0.8)."
    )
    own_output: bool = Field(
        default=False, description="Medusa only: each head has its own output matrix, as in the paper."
    )
    labels: Literal["soft", "text"] = Field(
        default="soft", description="Medusa only: learn the target's distribution, or the token of the text (paper)."
    )
    kv_heads: int | None = Field(
        default=None, ge=1, description="EAGLE-3 only: key/value heads of the draft layer; default: its query heads."
    )
    layers: tuple[int, ...] | None = Field(
        default=None, description="draft-model only: layers of the target to start from; default: first two and last."
    )
    full_loss: bool = Field(
        default=False, description="Cross-entropy over the whole draft vocabulary instead of a batch's candidates."
    )
    batch_tokens: int = Field(default=1024, ge=16, description="Tokens in a batch.")
    accumulate: int = Field(default=1, ge=1, description="Batches of a process before the weights change.")
    learning_rate: float | None = Field(default=None, gt=0, description="Peak learning rate.")
    warm_up_steps: int = Field(default=30, ge=1, description="Steps in which the learning rate rises.")
    draft_vocab: int = Field(default=8192, gt=0, description="Draft vocabulary: the most frequent answer tokens.")
    device: str = Field(default="cpu", description="cpu, cuda or auto.")
    mixed_precision: Literal["no", "bf16", "fp16"] = Field(
        default="bf16", description="Type of the products; weights stay in float32. fp16 needs CUDA."
    )
    threads: int = Field(default=1, ge=1, description="CPU threads of a process.")
    seed: int = Field(default=0, ge=0, description="Seed of everything random.")
    save_every: int = Field(default=100, ge=1, description="Steps between saved training states.")
    target_sha256: str | None = Field(
        default=None, description="Hash of the target's weights for config.json; default: hashed from the folder."
    )

    @field_validator("layers", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        """The command line writes layers as `0;1;-1`."""
        return value.replace(" ", "").split(";") if isinstance(value, str) else value

    def with_defaults(self, *, epochs: float, learning_rate: float, unroll_epochs: float = 0.0) -> TrainOptions:
        """The same options with the method's own values where None was given."""
        defaults = {"epochs": epochs, "unroll_epochs": unroll_epochs, "learning_rate": learning_rate}
        return self.model_copy(update={name: value for name, value in defaults.items() if getattr(self, name) is None})

    @property
    def passes(self) -> float:
        """Passes over the data; `with_defaults` comes first."""
        assert self.epochs is not None
        return self.epochs

    @property
    def rate(self) -> float:
        """Peak learning rate; `with_defaults` comes first."""
        assert self.learning_rate is not None
        return self.learning_rate

    @property
    def work_folder(self) -> Path:
        """Where states, checkpoints and the report are kept."""
        return self.cache if self.cache is not None else self.out.with_name(self.out.name + "-work")

    @property
    def features_folder(self) -> Path:
        """Where features are kept."""
        return self.features if self.features is not None else self.work_folder / "features"

    def recipe(self) -> dict[str, Any]:
        """What decides how the weights come out, for config.json and for the fingerprint of a saved state."""
        left_out = {"data", "out", "model", "cache", "features", "device", "threads", "save_every", "target_sha256"}
        return self.model_dump(mode="json", exclude=left_out)
