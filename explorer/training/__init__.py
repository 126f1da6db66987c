"""Training of drafters on text that the target wrote: text, features, losses, loops, held-out figures."""

from explorer.training.draft_model import train_draft_model
from explorer.training.eagle import train_eagle
from explorer.training.eagle3 import train_eagle3
from explorer.training.medusa import train_medusa
from explorer.training.options import TrainOptions

__all__ = ["TrainOptions", "train_draft_model", "train_eagle", "train_eagle3", "train_medusa"]
