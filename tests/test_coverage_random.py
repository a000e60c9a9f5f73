"""Random numbers that compiled programs draw themselves: their distributions, their independence, their seed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import mlirstack as ms
from mlirstack.errors import UnsupportedError
from mlirstack.frontend.export import export
from mlirstack.frontend.random_numbers import CALLS, SEED
from mlirstack.targets.callable import CompiledFunction

N = 20_000


class Distributions(nn.Module):
    """Mean and standard deviation of every kind, over enough numbers to tell them apart."""

    def forward(self, x):
        big = x.expand(N)
        drawn = {
            "randn": torch.randn(N, dtype=torch.float64),
            "exponential": big.clone().exponential_(2.0),
            "randint": torch.randint(-5, 6, (N,)).float(),
            "dropout": nn.functional.dropout(big + 1, 0.2, training=True),
            "rrelu": nn.functional.rrelu(big - 1, 0.2, 0.6, training=True),
            "multinomial": torch.multinomial(torch.tensor([1.0, 0.0, 3.0]), N, replacement=True).float(),
        }
        return {name: (value.double().mean(), value.double().std()) for name, value in drawn.items()}


class Orders(nn.Module):
    def forward(self, weights):
        return torch.randperm(50), torch.multinomial(weights, 3)


@pytest.fixture(scope="module")
def distributions() -> CompiledFunction:
    torch.manual_seed(0)
    return ms.compile(Distributions(), (torch.zeros(1),), allow_random=True)


# Mean and deviation by the textbook: uniform (b - a) / sqrt(12), two values sqrt(p (1 - p)) times their distance.
@pytest.mark.parametrize(
    ("name", "mean", "deviation"),
    [
        ("randn", 0.0, 1.0),
        ("exponential", 0.5, 0.5),
        ("randint", 0.0, 10**0.5),
        ("dropout", 1.0, 0.5),
        ("rrelu", -0.4, 0.4 * 12**-0.5),
        ("multinomial", 1.5, 0.75**0.5),
    ],
)
def test_each_distribution_has_the_mean_and_the_deviation_of_torch(distributions, name, mean, deviation):
    found = distributions(torch.zeros(1))[name]
    error = deviation / N**0.5
    assert found[0].item() == pytest.approx(mean, abs=5 * error)
    assert found[1].item() == pytest.approx(deviation, rel=0.05)


def test_every_call_draws_anew_and_the_seed_is_torchs(distributions):
    first, second = (distributions(torch.zeros(1))["randn"][0] for _ in range(2))
    assert first != second
    torch.manual_seed(0)
    program = export(Orders(), (torch.ones(4),), allow_random=True)
    assert program.parameters[SEED] == distributions.parameters[SEED]
    assert program.parameters[CALLS] == 0


def test_orders_without_replacement_repeat_nothing():
    function = ms.compile(Orders(), (torch.ones(4),), allow_random=True)
    order, chosen = function(torch.tensor([1.0, 1.0, 1.0, 0.0]))
    assert sorted(order.tolist()) == list(range(50))
    assert order.tolist() != list(range(50))
    assert sorted(chosen.tolist()) == [0, 1, 2]


def test_dropout_in_attention_drops_weights_and_keeps_the_mean():
    class Attention(nn.Module):
        def forward(self, q, v):
            return nn.functional.scaled_dot_product_attention(q, q, v, dropout_p=0.5)

    q, v = torch.zeros(1, 8, 64, 4), torch.ones(1, 8, 64, 4)
    found = ms.compile(Attention(), (q, v), allow_random=True)(q, v)
    # Each result is the sum of 64 weights 1/64, of which half are dropped and the others doubled.
    assert found.mean().item() == pytest.approx(1.0, abs=5 * 64**-0.5 / 512**0.5)
    assert found[..., 0].std().item() == pytest.approx(64**-0.5, rel=0.2)


def test_the_generator_is_philox():
    """Random123's known answer for counter 0 and key 0: its first word is 0x6627e8d5."""

    class First(nn.Module):
        def forward(self, x):
            return torch.rand(2, dtype=torch.float32) + x

    program = export(First(), (torch.zeros(2),), allow_random=True)
    program.parameters[SEED].zero_()
    assert ms.compile(program)(torch.zeros(2))[0].item() == (0x6627E8D5 >> 8) / 2**24


def test_random_numbers_are_refused_unless_they_are_allowed():
    with pytest.raises(UnsupportedError, match="draws random numbers") as refused:
        ms.compile(Orders(), (torch.ones(4),))
    assert "allow_random=True" in str(refused.value)


def test_a_kind_that_has_no_replacement_is_refused_by_name():
    class Poisson(nn.Module):
        def forward(self, x):
            return torch.poisson(x) + torch.rand_like(x)

    with pytest.raises(UnsupportedError, match="random numbers") as refused:
        ms.compile(Poisson(), (torch.ones(4),), allow_random=True)
    assert [op.op for op in refused.value.ops] == ["aten.poisson.default"]
