"""Packed products are the plain ones, up to the order of summation, and a packed model decodes as the plain one."""

from __future__ import annotations

import copy
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from explorer import products
from explorer.load import describe
from explorer.products import PackedLinear, Product, pack_linears
from explorer.target import TargetModel
from tests.lanes import SETTINGS, Bench, assert_same_output, decode, make_toy, setting_name

CLOSE = {torch.float32: {"atol": 1e-4, "rtol": 1e-4}, torch.bfloat16: {"atol": 0.1, "rtol": 0.05}}


@settings(deadline=None)
@given(
    st.integers(1, 70), st.integers(1, 90), st.integers(1, 130), st.booleans(), st.sampled_from(products.PACKED_DTYPES)
)
def test_a_product_is_the_plain_product(rows: int, inner: int, outer: int, biased: bool, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(rows * 10_007 + inner * 101 + outer)
    x = torch.randn(rows, inner, generator=generator).to(dtype)
    weight = torch.randn(outer, inner, generator=generator).to(dtype)
    bias = torch.randn(outer, generator=generator).to(dtype) if biased else None
    product = Product(weight, bias)
    made = product(x)
    assert made.dtype == dtype
    torch.testing.assert_close(made, F.linear(x, weight, bias), **CLOSE[dtype])


def test_without_the_operator_the_plain_product_is_made() -> None:
    weight, x = torch.randn(5, 7), torch.randn(3, 7)
    with mock.patch.object(torch.ops.mkldnn, "_reorder_linear_weight", side_effect=RuntimeError("no such operator")):
        product = Product(weight)
    assert not product.is_packed
    assert torch.equal(product(x), F.linear(x, weight))
    assert not Product(weight.double()).is_packed


def test_rows_of_another_type_are_multiplied_plainly_or_refused_like_there() -> None:
    product = Product(torch.randn(5, 7))
    with pytest.raises(RuntimeError):
        product(torch.randn(3, 7, dtype=torch.bfloat16))


def test_a_copy_is_a_product_of_its_own() -> None:
    product = Product(torch.randn(5, 7))
    other, x = copy.deepcopy(product), torch.randn(3, 7)
    assert other.weight is not product.weight
    torch.testing.assert_close(other(x), product(x))


def test_every_linear_but_the_kept_one_is_packed() -> None:
    head = nn.Linear(8, 3, bias=False)
    model = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.ReLU(), nn.Linear(8, 8, bias=False)), head)
    plain = copy.deepcopy(model)
    assert pack_linears(model, keep=head) == 2
    assert isinstance(model[0], PackedLinear)
    assert model[2] is head
    x = torch.randn(2, 5, 4)
    with torch.inference_mode():
        torch.testing.assert_close(model(x), plain(x), **CLOSE[torch.float32])
    assert [name for name, _ in model.named_parameters()] == ["2.weight"]


def packed_toy() -> tuple[Bench, Bench]:
    """The same toy plain and packed."""
    plain, other = make_toy(1), make_toy(1)
    assert pack_linears(other.model, keep=other.model.get_output_embeddings()) > 0
    target = TargetModel(other.model, other.target.tokenizer, describe(other.model, model_id="toy", label="toy"))
    return plain, Bench(other.model, target, other.drafters)


@pytest.mark.parametrize("setting", SETTINGS[::5], ids=setting_name)
def test_a_packed_model_decodes_what_the_plain_one_generates(setting: tuple[str, dict[str, object]]) -> None:
    plain, packed = packed_toy()
    name, params = setting
    ids = plain.ids("1 2 3 1 2 3 1 2 3")
    assert_same_output(plain, ids, decode(packed.lane(name, params, ids=ids, budget=20)), plain.expected(ids, 20))
