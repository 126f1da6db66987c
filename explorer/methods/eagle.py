"""EAGLE: a one-layer drafter extrapolates the target's features; a dynamic tree keeps the likeliest drafts."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from explorer.methods._features import EagleParams, FeatureMethod
from explorer.methods.base import TrainingParams
from explorer.target import TAP_LAST


class TrainedEagleParams(EagleParams, TrainingParams):
    """EAGLE's drafter also comes barely trained."""


class Eagle(FeatureMethod):
    """EAGLE-1 (static tree, chain) and EAGLE-2 (dynamic tree) from the same weights; see FeatureMethod.

    A feature is the target's last hidden state after its final norm. Deviations from the original code: the
    re-ranking breaks ties by pool order, so that a parent is always kept before its child (the original may lose
    the parent, and then attaches the child to a stranger); and EAGLE-1's token after a fully accepted path comes
    from the processed distribution (the original leaves out temperature and filters there).
    """

    name = "eagle"
    title = "EAGLE"
    paper = "Li et al. 2024, arXiv 2401.15077 and 2406.16858"
    summary = "A small drafter predicts the target's next features; the likeliest branches of its tree are verified."
    needs = "eagle"
    taps = frozenset({TAP_LAST})
    Params = TrainedEagleParams

    def features(self, taps: Mapping[str, Tensor]) -> Tensor:
        """The last hidden state as it is."""
        return taps[TAP_LAST].to(self._drafter.fc.weight.device)
