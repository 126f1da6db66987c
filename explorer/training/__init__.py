"""Training of drafters on text that the target wrote: features, losses, loops, held-out figures."""

from explorer.training.eagle import train_eagle
from explorer.training.medusa import train_medusa
from explorer.training.options import TrainOptions

__all__ = ["TrainOptions", "train_eagle", "train_medusa"]
