"""EAGLE-3: the drafter reads low, middle and high features fused, and drafts from its own vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from explorer.methods._features import EagleParams, FeatureMethod
from explorer.methods.base import Setup
from explorer.target import tap_hidden


class Eagle3(FeatureMethod):
    """EAGLE-3 (arXiv 2503.01840) with EAGLE-2's dynamic tree, or a static one; see FeatureMethod.

    A true feature is the drafter's fusion of three hidden states of the target (section 3.1); a predicted one is
    the drafter's own output, which was never trained to equal it (section 3.2), so their distance says less than
    with EAGLE. Tokens outside the draft vocabulary are never drafted; the output does not depend on it.
    """

    name = "eagle3"
    title = "EAGLE-3"
    paper = "Li et al. 2025, arXiv 2503.01840"
    summary = "EAGLE with features fused from three depths of the target, and a drafter with its own vocabulary."
    needs = "eagle3"
    feature_words = "features of three depths, fused,"

    def __init__(self, params: EagleParams, setup: Setup) -> None:
        super().__init__(params, setup)
        self._layers: tuple[int, ...] = setup.drafter.taps_of(setup.num_layers)

    @classmethod
    def taps_for(cls, drafter: Any, num_layers: int) -> frozenset[str]:
        """The inputs of the layers that the drafter names, or of layers 2, L//2 and L-3. ExplorerError if too few."""
        return frozenset(tap_hidden(layer) for layer in drafter.taps_of(num_layers))

    @property
    def tapped_layers(self) -> tuple[int, ...]:
        """Low to high."""
        return self._layers

    def features(self, taps: Mapping[str, Tensor]) -> Tensor:
        """Fused, low to high."""
        device = self._drafter.fc.weight.device
        fused: Tensor = self._drafter.fuse_features(
            torch.cat([taps[tap_hidden(layer)].to(device) for layer in self._layers], dim=-1)
        )
        return fused
