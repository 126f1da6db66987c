"""Matrix products laid out for few rows: a decoding pass is little else, and reading the weights is what it waits for.

On a CPU the usual layout reads the weights at a third of the memory's speed. oneDNN's own blocked layout, the one
that `torch.compile` packs weights into, reaches it; measured in docs/design/cpu-products.md. Packing changes the
layout alone: values stay as they are, and sums are rounded like any other order of summation.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PACKED_FOR_ROWS = 16
"""The batch size that the layout is chosen for: the middle of what a candidate tree has."""
PACKED_DTYPES = (torch.float32, torch.bfloat16)


class Product:
    """rows (..., in) to rows @ weight.T + bias (..., out), from a weight (out, in) that is packed where that pays."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight = weight
        self._bias = None if bias is None else bias.detach()
        self._plain = weight.detach()
        self._packed = packed(self._plain)

    @classmethod
    def of(cls, weight: Tensor, known: Product | None) -> Product:
        """`known` where it was made from this very tensor, else a new one: a module may have moved to another type."""
        return known if known is not None and known.weight is weight else cls(weight)

    def __deepcopy__(self, memo: dict[int, object]) -> Product:
        return Product(copy.deepcopy(self.weight, memo), self._bias)  # a packed tensor cannot be copied

    @property
    def is_packed(self) -> bool:
        """Is a packed copy in use?"""
        return self._packed is not None

    def __call__(self, rows: Tensor) -> Tensor:
        """The product; equal to F.linear up to the order of summation."""
        if self._packed is None or rows.dtype != self._plain.dtype:
            return F.linear(rows, self._plain, self._bias)
        return packed_linear(rows, self._packed, self._bias)


class PackedLinear(nn.Module):
    """An nn.Linear for inference whose products are made from a packed weight; the plain one stays where asked for."""

    def __init__(self, linear: nn.Linear, weight: Tensor, *, keep_weight: bool) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self._packed = weight  # oneDNN's layout: neither indexed nor saved
        self._bias = None if linear.bias is None else linear.bias.detach()
        if keep_weight:
            self.weight, self.bias = linear.weight, linear.bias

    def forward(self, rows: Tensor) -> Tensor:
        """(..., in) to (..., out)."""
        return packed_linear(rows, self._packed, self._bias)

    def __deepcopy__(self, memo: dict[int, object]) -> PackedLinear:
        return self  # never changed, and a packed tensor cannot be copied: copies of a model share it

    def extra_repr(self) -> str:
        """As nn.Linear shows itself."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self._bias is not None}"


@dataclass(frozen=True)
class Whole:
    """Several layers as one product."""

    weight: Tensor
    """(sum of out, in), packed."""
    bias: Tensor | None
    """(sum of out,)"""

    def __call__(self, rows: Tensor) -> Tensor:
        """(..., in) to the outputs of all layers, behind one another."""
        return packed_linear(rows, self.weight, self.bias)


class FusedPart(nn.Module):
    """One of several linear layers that read the same rows and are one product; called alone it makes all of them."""

    def __init__(self, linear: nn.Linear, whole: Whole, start: int, *, keep_weight: bool) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.whole = whole
        self._start = start
        self._biased = linear.bias is not None
        if keep_weight:
            self.weight, self.bias = linear.weight, linear.bias

    def forward(self, rows: Tensor) -> Tensor:
        """(..., in) to (..., out): this part's columns."""
        return self.whole(rows)[..., self._columns]

    def alone(self) -> nn.Linear:
        """The layer that this was: its weight (out, in), and its bias."""
        linear = nn.Linear(self.in_features, self.out_features, bias=self._biased, device="meta")
        weight = self.whole.weight.to_dense()[self._columns]
        linear.weight = nn.Parameter(weight.clone(), requires_grad=False)
        if self._biased and self.whole.bias is not None:
            linear.bias = nn.Parameter(self.whole.bias[self._columns].clone(), requires_grad=False)
        return linear

    @property
    def _columns(self) -> slice:
        return slice(self._start, self._start + self.out_features)

    def __deepcopy__(self, memo: dict[int, object]) -> FusedPart:
        return self  # as PackedLinear


def fuse_linears(parent: nn.Module, names: Sequence[str], *, keep_weights: bool = False) -> bool:
    """Make one packed product of a module's linear layers of these names; did it? Not to be trained.

    All or none: where one of them is no plain nn.Linear, or their weights cannot be packed here, nothing is changed.
    """
    linears = [getattr(parent, name) for name in names]
    if any(type(each) is not nn.Linear or not _can_be_packed(each.weight) for each in linears):
        return False
    weight = packed(torch.cat([each.weight.detach() for each in linears]))
    if weight is None:
        return False
    whole, start = Whole(weight, _joined_bias(linears)), 0
    for name, linear in zip(names, linears, strict=True):
        setattr(parent, name, FusedPart(linear, whole, start, keep_weight=keep_weights))
        start += linear.out_features
    return True


def split_fused(model: nn.Module) -> None:
    """Make every part of a fused product a plain layer of its own again, for `pack_linears` to pack."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, FusedPart):
                setattr(parent, name, child.alone())


def fuse_layer(attention: nn.Module, mlp: nn.Module, *, keep_weights: bool = False) -> None:
    """Fuse what reads the same rows in a Llama layer: query, key and value; gate and up."""
    fuse_linears(attention, ("q_proj", "k_proj", "v_proj"), keep_weights=keep_weights)
    fuse_linears(mlp, ("gate_proj", "up_proj"), keep_weights=keep_weights)


def together(linears: Sequence[nn.Module], rows: Tensor) -> Sequence[Tensor]:
    """Each layer's output for the same rows (..., in): one product where they are the parts of one, in their order."""
    first = linears[0]
    if isinstance(first, FusedPart):
        sizes = [each.out_features for each in linears if isinstance(each, FusedPart) and each.whole is first.whole]
        assert len(sizes) == len(linears), "parts of one product are fused together"
        return first.whole(rows).split(sizes, dim=-1)
    return [each(rows) for each in linears]


def _joined_bias(linears: Sequence[nn.Linear]) -> Tensor | None:
    """(sum of out,) biases behind one another, zeros where one of several has none; None where none has one."""
    if all(each.bias is None for each in linears):
        return None
    return torch.cat([each.weight.new_zeros(each.out_features) if each.bias is None else each.bias.detach()
                      for each in linears])  # fmt: skip


def pack_linears(model: nn.Module, *, keep: nn.Module | None = None, keep_weights: bool = False) -> int:
    """Replace every plain nn.Linear of a model on a CPU by its packed form; the number replaced. Not to be trained.

    `keep` stays as it is: the output head, whose weight drafters borrow and which may be tied to the embedding.
    keep_weights: the plain weights stay too, for small modules that are asked for them; otherwise they are freed.
    """
    count = 0
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is not nn.Linear or child is keep:
                continue
            weight = packed(child.weight.detach())
            if weight is not None:
                setattr(parent, name, PackedLinear(child, weight, keep_weight=keep_weights))
                count += 1
    return count


def packed(weight: Tensor) -> Tensor | None:
    """The weight (out, in) in oneDNN's layout; None where this build or this tensor has none."""
    if not _can_be_packed(weight):
        return None
    try:
        with torch.no_grad():
            return torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), PACKED_FOR_ROWS)
    except (RuntimeError, AttributeError):  # a build without the operator, a type without kernels
        return None


def _can_be_packed(weight: Tensor) -> bool:
    return weight.device.type == "cpu" and weight.dtype in PACKED_DTYPES and torch.backends.mkldnn.is_available()


def packed_linear(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """(..., in) and a packed (out, in) to (..., out)."""
    return torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")
