"""What a training run can be told. The CLI draws its options from these fields."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field


class TrainOptions(BaseModel):
    """Options of `train_medusa` and `train_eagle`. None means: the method's own default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: Path = Field(description="JSONL file (may be gzipped) of prompts and the target's own answers.")
    out: Path = Field(description="Folder that receives the weights, config.json and README.md.")
    model: Path = Field(description="Folder of the target model in the transformers layout.")
    cache: Path | None = Field(
        default=None,
        description="Folder for cached features and saved state; default: `<out>-work`, next to the output.",
    )
    max_tokens: int | None = Field(
        default=None, gt=0, description="Use at most this many tokens of text (prompts included)."
    )
    max_length: int = Field(default=512, ge=8, description="Cut sequences after this many tokens.")
    epochs: float | None = Field(default=None, gt=0, description="Passes over the data (EAGLE: stage 1).")
    unroll_epochs: float | None = Field(
        default=None, ge=0, description="EAGLE only: passes of training-time test (stage 2)."
    )
    unroll_steps: int = Field(
        default=3, ge=2, le=8, description="EAGLE only: steps unrolled on own features in stage 2."
    )
    heads: int = Field(default=5, ge=1, le=10, description="Medusa only: number of heads.")
    batch_tokens: int = Field(default=1024, ge=16, description="Tokens in a batch.")
    learning_rate: float | None = Field(default=None, gt=0, description="Peak learning rate.")
    draft_vocab: int = Field(default=8192, gt=0, description="Draft vocabulary: the most frequent answer tokens.")
    threads: int = Field(default=1, ge=1, description="CPU threads.")
    seed: int = Field(default=0, ge=0, description="Seed of everything random.")
    save_every: int = Field(default=100, ge=1, description="Steps between saved training states.")
    target_sha256: str | None = Field(
        default=None, description="Hash of the target's weights for config.json; default: hashed from the folder."
    )

    def with_defaults(self, *, epochs: float, unroll_epochs: float, learning_rate: float) -> TrainOptions:
        """The same options with the method's own values where None was given."""
        defaults = {"epochs": epochs, "unroll_epochs": unroll_epochs, "learning_rate": learning_rate}
        return self.model_copy(update={name: value for name, value in defaults.items() if getattr(self, name) is None})

    @property
    def work_folder(self) -> Path:
        """Where features and training states are kept."""
        return self.cache if self.cache is not None else self.out.with_name(self.out.name + "-work")
