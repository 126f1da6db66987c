"""One matrix product, laid out for few rows: the output head is the largest product of a decoding pass.

Measured in docs/design/cpu-products.md. The rule depends on shapes alone, never on a timing, so that the same
seed gives the same trace.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

FEW_ROWS = 12
"""Up to so many rows a CPU's float32 product reads its weights faster the other way round."""


def output_product(rows: Tensor, weight: Tensor) -> Tensor:
    """(T, h) and (V, h) to (T, V): `F.linear`, as weight @ rows.T where that is faster.

    A single row is computed twice: a matrix-vector product reads the weights at half the speed of a
    product with two columns.
    """
    count = rows.shape[0]
    if count > FEW_ROWS or rows.dtype != torch.float32 or rows.device.type != "cpu":
        return F.linear(rows, weight)
    columns = rows if count > 1 else rows.repeat(2, 1)
    return torch.mm(weight, columns.t())[:, :count].t().contiguous()
