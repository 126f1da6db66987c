"""EAGLE-1 draft layer (Li et al. 2024, arXiv 2401.15077), also used by EAGLE-2 (arXiv 2406.16858).

Slot t reads the embedding of token t+1 and the target's feature t (hidden state after the final norm) and
predicts feature t+1; the target's output matrix turns that into a distribution of token t+2. Layout of the
public checkpoints: `fc` on concat[embedding, feature], then one Llama layer *without* input norm, no final
norm. Slot t has position t. The rope base is the config's, or 10,000.

An optional `token_map` tensor (vLLM's; a deviation in the original layout) limits drafting to a draft
vocabulary, the rows of the output matrix that it names. Tokens outside of it are never drafted; the output
stays right.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer.drafters.checkpoint import Checkpoint, DrafterInfo, describe, need, read_token_map
from explorer.drafters.detect import TITLES, detect
from explorer.drafters.eagle_file import EagleFile, own_matrix
from explorer.drafters.layers import Attention, DraftCache, GatedMlp, RootMeanSquareNorm, SlotNetwork, SlotShape, attend
from explorer.errors import ExplorerError
from explorer.products import Product


@dataclass(frozen=True)
class EagleShape(SlotShape):
    """Sizes of the draft layer."""

    fc_bias: bool = True
    qkv_bias: bool = False


class DraftLayer(nn.Module):
    """One Llama layer without input norm, split around the attention scores."""

    def __init__(self, shape: EagleShape) -> None:
        super().__init__()
        size, heads, kv_heads = shape.hidden_size, shape.num_heads, shape.num_kv_heads
        self.self_attn = Attention(
            size, size, heads=heads, kv_heads=kv_heads, head_dim=shape.head_dim, qkv_bias=shape.qkv_bias
        )
        self.mlp = GatedMlp(size, shape.intermediate_size)
        self.post_attention_layernorm = RootMeanSquareNorm(size, shape.rms_norm_eps)

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(..., T, h) -> rotated queries (..., heads, T, d), rotated keys and values (..., kv_heads, T, d)."""
        return self.self_attn.project(x, cos, sin)

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """Residuals and MLP; `attended` is (..., heads, T, d)."""
        x = x + self.self_attn.o_proj(attended.transpose(-3, -2).flatten(-2))
        return x + self.mlp(self.post_attention_layernorm(x))


class EagleHead(SlotNetwork):
    """The draft layer with what it borrows from the target (bound, never stored)."""

    output_weight: Tensor | None

    def __init__(self, shape: EagleShape, *, token_map: Tensor | None = None, info: DrafterInfo | None = None) -> None:
        super().__init__(shape, token_map)
        self.shape = shape
        self.fc = nn.Linear(2 * shape.hidden_size, shape.hidden_size, bias=shape.fc_bias)
        self.layers = nn.ModuleList([DraftLayer(shape)])
        self.register_buffer("output_weight", None, persistent=False)
        self._output: Product | None = None
        own = sum(parameter.numel() for parameter in self.parameters())
        self.info = info or DrafterInfo("untrained", own, own * self.fc.weight.element_size(), None)

    @property
    def layer(self) -> DraftLayer:
        layer = self.layers[0]
        assert isinstance(layer, DraftLayer)
        return layer

    def bind(self, embed_weight: Tensor, output_weight: Tensor) -> None:
        """Take embedding and output matrix, both (V, h), in the layer's own type.

        The embedding is not copied where type and device agree; of the output matrix only the rows of
        the draft vocabulary are kept (or given in its order, (D, h)).
        """
        for matrix in (embed_weight, output_weight):
            if matrix.shape[-1] != self.hidden_size:
                raise ExplorerError(
                    f"The EAGLE head is made for hidden size {self.hidden_size}, the target has {matrix.shape[-1]}."
                )
        self.embed_weight = embed_weight.detach().to(self.fc.weight)
        rows = output_weight.detach()
        if self.token_map is not None and len(rows) != len(self.token_map):
            rows = rows[self.token_map]
        self.output_weight = rows.to(self.fc.weight).contiguous()  # (D, h)

    def fuse(self, token_ids: Tensor, features: Tensor) -> Tensor:
        """concat[embedding of token t+1, feature t] through `fc`; (..., T) and (..., T, h) -> (..., T, h)."""
        return self.fc(torch.cat((self.embed(token_ids), features), dim=-1))

    def slot_inputs(self, token_ids: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        """What the layer's attention reads and what its residual starts from; the same here, both (..., T, h)."""
        x = self.fuse(token_ids, features)
        return x, x

    def forward(
        self, token_ids: Tensor, features: Tensor, positions: Tensor, cache: DraftCache, mask: Tensor | None = None
    ) -> Tensor:
        """Run T slots behind those in the cache and append them.

        token_ids (T,); features (T, h); positions (T,) < cache.capacity; mask (T, cache.length + T)
        additive, None = causal. Returns the predicted next features (T, h).
        """
        x = self.fuse(token_ids, features)
        queries, keys, values = self.layer.project(x, *self.rotary(positions))
        cache.append(keys, values)
        return self.layer.finish(x, attend(queries, cache, mask))

    def log_probs(self, features: Tensor) -> Tensor:
        """(T, h) -> (T, D) log-softmax over the draft vocabulary, float32 (no temperature: EAGLE-2, 4.1)."""
        assert self.output_weight is not None, "bind() comes before log_probs()"
        self._output = Product.of(self.output_weight, self._output)
        return F.log_softmax(self._output(features).float(), dim=-1)

    def export(self) -> dict[str, Tensor]:
        """Tensors under their public names, bf16, without any tensor of the target."""
        tensors = {name: tensor.detach().to(torch.bfloat16) for name, tensor in self.state_dict().items()}
        if self.token_map is not None:
            tensors["token_map"] = self.token_map.to(torch.int32)
        return tensors


def load_eagle(
    folder: Path,
    *,
    embed_weight: Tensor,
    output_weight: Tensor,
    device: torch.device | str,
    dtype: torch.dtype,
) -> EagleHead:
    """The head of a checkpoint folder, bound to the target's matrices (V, h).

    A checkpoint with its own `embed_tokens.weight` or `lm_head.weight` (vLLM's form) keeps these.
    """
    checkpoint = EagleFile(Checkpoint(folder))
    if (kind := detect(checkpoint.shapes, folder)) != "eagle":
        raise ExplorerError(f"The drafter in {folder} is {TITLES[kind]}, not an EAGLE head.")
    vocab_size, hidden_size = output_weight.shape
    shape = _read_shape(checkpoint, hidden_size)
    tensors = checkpoint.read()
    token_map = read_token_map(tensors, vocab_size, folder)
    head = EagleHead(shape, token_map=token_map, info=describe(folder, tensors, checkpoint.config))
    checkpoint.fill(head, tensors, "a plain EAGLE head", ("embed_tokens.weight", "lm_head.weight", "token_map"))
    if "embed_tokens.weight" in tensors:
        embed_weight = own_matrix(tensors, "embed_tokens.weight", embed_weight, folder)
    if "lm_head.weight" in tensors:
        rows = vocab_size
        if token_map is not None and checkpoint.shapes["lm_head.weight"][:1] == (len(token_map),):
            rows = len(token_map)
        output_weight = need(tensors, "lm_head.weight", (rows, hidden_size), folder).clone()
    head = head.to(device=device, dtype=dtype).eval().requires_grad_(False)
    head.bind(embed_weight.to(device), output_weight.to(device))
    return head


def _read_shape(checkpoint: EagleFile, hidden_size: int) -> EagleShape:
    """Sizes from keys and shapes first; the config only says what the tensors cannot."""
    folder, shapes = checkpoint.folder, checkpoint.shapes
    for name in ("fc.weight", "layers.0.self_attn.q_proj.weight", "layers.0.self_attn.k_proj.weight"):
        if name not in shapes or len(shapes[name]) != 2:
            raise ExplorerError(f"The drafter in {folder} is not an EAGLE head: it lacks the tensor {name}.")
    found = shapes["fc.weight"][0]
    if found != hidden_size:
        raise ExplorerError(
            f"The EAGLE head in {folder} is made for hidden size {found}, the target has {hidden_size}."
        )
    return EagleShape(
        hidden_size=hidden_size,
        fc_bias="fc.bias" in shapes,
        qkv_bias="layers.0.self_attn.q_proj.bias" in shapes,
        **checkpoint.layer_sizes("layers.0", hidden_size, hidden_size),
    )
