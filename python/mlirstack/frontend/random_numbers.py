"""Random numbers that a compiled program draws itself: decompositions of torch's random ops into a counter-based generator.

A number is a function of a seed, the number of calls so far, the op and the position in its tensor (Philox4x32-10; Salmon et
al., "Parallel random numbers: as easy as 1, 2, 3", 2011), so any target computes it with integer arithmetic and every call
draws anew.  The distributions are torch's; the numbers are never those of torch's own generator.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

Decomposition = Callable[..., Any]
aten = torch.ops.aten

SEED = "random.seed"  # names of the two parameters, int64 of rank 0
CALLS = "random.calls"

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
# Random bits of a uniform number: as many as the significand of its dtype has, as in eager.
_BITS = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}


# Stand for the two parameters until decomposing is over and the graph can have new placeholders.
@torch.library.custom_op("mlirstack::random_seed", mutates_args=(), schema="() -> Tensor")
def _seed() -> Tensor:
    raise NotImplementedError("stands for an argument of a compiled program")


@torch.library.custom_op("mlirstack::random_calls", mutates_args=(), schema="() -> Tensor")
def _calls() -> Tensor:
    raise NotImplementedError("stands for an argument of a compiled program")


@_seed.register_fake
@_calls.register_fake
def _rank_zero() -> Tensor:
    return torch.empty((), dtype=torch.int64)


@dataclass
class Generator:
    """Decompositions for one graph; each random op of it gets a stream of numbers of its own."""

    streams: itertools.count[int] = field(default_factory=itertools.count)

    def decompositions(self) -> dict[Any, Decomposition]:
        """Operator overload → decomposition, for all random ops that have one."""
        rules: dict[Any, Decomposition] = {
            aten.rand.default: self._rand,
            aten.rand_like.default: self._rand_like,
            aten.randn.default: self._randn,
            aten.randn_like.default: self._randn_like,
            aten.uniform.default: self._uniform,
            aten.normal_functional.default: self._normal_like,
            aten.normal.Tensor_Tensor: self._normal,
            aten.normal.Tensor_float: self._normal,
            aten.normal.float_Tensor: self._normal,
            aten.normal.float_float: self._normal_of_size,
            aten.exponential.default: self._exponential,
            aten.geometric.default: self._geometric,
            aten.cauchy.default: self._cauchy,
            aten.log_normal.default: self._log_normal,
            aten.randint.default: self._randint,
            aten.randint.low: self._randint_low,
            aten.randint_like.default: self._randint_like,
            aten.randint_like.low_dtype: self._randint_like_low,
            aten.randperm.default: self._randperm,
            aten.bernoulli.default: self._bernoulli_of,
            aten.bernoulli.p: self._bernoulli,
            aten.bernoulli.Tensor: self._bernoulli,
            aten.native_dropout.default: self._native_dropout,
            aten.rrelu_with_noise_functional.default: self._rrelu,
            aten.multinomial.default: self._multinomial,
        }
        for name in ("rand", "randn", "rand_like", "randn_like", "randint", "randperm"):
            packet = getattr(aten, name)
            rules[packet.generator] = rules[packet.default]
        rules[aten.randint.low_generator] = rules[aten.randint.low]
        return {op: _without_generator(rule) for op, rule in rules.items()}

    # ------------------------------------------------------------------------------------------------------- the numbers

    def _words(self, shape: Sequence[Any]) -> list[Tensor]:
        """Four int64 tensors of ``shape`` with 32 random bits each."""
        seed, calls = torch.ops.mlirstack.random_seed(), torch.ops.mlirstack.random_calls()
        # As operands of rank 0: with Python numbers every mask and shift would make a constant of its own.
        mask, half = torch.full((), _MASK), torch.full((), 32)
        index = torch.arange(math.prod(shape), dtype=torch.int64).reshape(list(shape))
        zero = torch.zeros_like(index)
        # Words 0 and 2 are factors and hold 32 bits.  The others and the keys are only joined by "xor" before bits above 32
        # are masked away, so these may hold anything there.
        counter = [index & mask, index >> half, zero + next(self.streams), zero + calls]
        keys = [seed, seed >> half]
        for _ in range(_ROUNDS):
            low, high = counter[0] * _MULTIPLIERS[0], counter[2] * _MULTIPLIERS[1]
            counter = [
                ((high >> half) ^ counter[1] ^ keys[0]) & mask,
                high,
                ((low >> half) ^ counter[3] ^ keys[1]) & mask,
                low,
            ]
            keys = [key + step for key, step in zip(keys, _KEY_STEPS, strict=True)]
        return [counter[0], counter[1] & mask, counter[2], counter[3] & mask]

    def _unit(self, shape: Sequence[Any], dtype: torch.dtype) -> Tensor:
        """Uniform on [0, 1)."""
        return _fraction(self._words(shape), dtype)

    def _gauss(self, shape: Sequence[Any], dtype: torch.dtype) -> Tensor:
        """Normal with mean 0 and deviation 1, by the method of Box and Muller."""
        compute = torch.float64 if dtype == torch.float64 else torch.float32
        words = self._words(shape)
        radius = torch.sqrt(-2 * torch.log(1 - _fraction(words[:2], compute)))
        return (radius * torch.cos(2 * math.pi * _fraction(words[2:], compute))).to(dtype)

    def _whole(self, shape: Sequence[Any], low: int, high: int, dtype: torch.dtype) -> Tensor:
        """Uniform among the integers from ``low`` to ``high - 1``."""
        words = self._words(shape)
        bits = words[0] if not isinstance(high, int) or high - low <= _MASK else words[0] * 2**31 + _shifted(words[1], 1)
        return (torch.remainder(bits, high - low) + low).to(dtype)

    # -------------------------------------------------------------------------------------------------------------- rules

    def _rand(self, size: Sequence[Any], *, dtype: torch.dtype | None = None, **_: Any) -> Any:
        return self._floating(self._unit, size, dtype)

    def _rand_like(self, x: Tensor, *, dtype: torch.dtype | None = None, **_: Any) -> Any:
        return self._floating(self._unit, x.shape, dtype or x.dtype)

    def _randn(self, size: Sequence[Any], *, dtype: torch.dtype | None = None, **_: Any) -> Any:
        return self._floating(self._gauss, size, dtype)

    def _randn_like(self, x: Tensor, *, dtype: torch.dtype | None = None, **_: Any) -> Any:
        return self._floating(self._gauss, x.shape, dtype or x.dtype)

    def _floating(self, draw: Callable[..., Tensor], size: Sequence[Any], dtype: torch.dtype | None) -> Any:
        wanted = dtype or torch.get_default_dtype()
        return draw(size, wanted) if wanted in _BITS else NotImplemented

    def _uniform(self, x: Tensor, low: float = 0.0, high: float = 1.0) -> Any:
        return self._floating(self._unit, x.shape, x.dtype) * (high - low) + low if x.dtype in _BITS else NotImplemented

    def _normal_like(self, x: Tensor, mean: float = 0.0, std: float = 1.0) -> Any:
        return self._gauss(x.shape, x.dtype) * std + mean if x.dtype in _BITS else NotImplemented

    def _normal(self, mean: Tensor | float, std: Tensor | float = 1.0) -> Any:
        like = mean + std * 0 if isinstance(mean, Tensor) else mean + std
        assert isinstance(like, Tensor)
        return self._gauss(like.shape, like.dtype) * std + mean if like.dtype in _BITS else NotImplemented

    def _normal_of_size(
        self, mean: float, std: float, size: Sequence[Any], *, dtype: torch.dtype | None = None, **_: Any
    ) -> Any:
        wanted = dtype or torch.get_default_dtype()
        return self._gauss(size, wanted) * std + mean if wanted in _BITS else NotImplemented

    def _exponential(self, x: Tensor, lambd: float = 1.0) -> Any:
        return -torch.log(1 - self._unit(x.shape, x.dtype)) / lambd if x.dtype in _BITS else NotImplemented

    def _geometric(self, x: Tensor, p: float) -> Tensor:
        trials = torch.ceil(torch.log(1 - self._unit(x.shape, torch.float64)) / math.log1p(-p)) if p < 1 else None
        return torch.ones_like(x) if trials is None else torch.clamp(trials, min=1).to(x.dtype)

    def _cauchy(self, x: Tensor, median: float = 0.0, sigma: float = 1.0) -> Any:
        if x.dtype not in _BITS:
            return NotImplemented
        angle = math.pi * (self._unit(x.shape, torch.float64) - 0.5)
        return (median + sigma * torch.sin(angle) / torch.cos(angle)).to(x.dtype)

    def _log_normal(self, x: Tensor, mean: float = 1.0, std: float = 2.0) -> Any:
        return torch.exp(self._gauss(x.shape, x.dtype) * std + mean) if x.dtype in _BITS else NotImplemented

    def _randint(self, high: int, size: Sequence[Any], *, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
        return self._whole(size, 0, high, dtype or torch.int64)

    def _randint_low(
        self, low: int, high: int, size: Sequence[Any], *, dtype: torch.dtype | None = None, **_: Any
    ) -> Tensor:
        return self._whole(size, low, high, dtype or torch.int64)

    def _randint_like(self, x: Tensor, high: int, *, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
        return self._whole(x.shape, 0, high, dtype or x.dtype)

    def _randint_like_low(self, x: Tensor, low: int, high: int, *, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
        return self._whole(x.shape, low, high, dtype or x.dtype)

    def _randperm(self, n: int, *, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
        """The order of as many random numbers."""
        return torch.argsort(self._unit([n], torch.float64)).to(dtype or torch.int64)

    def _bernoulli_of(self, p: Tensor) -> Tensor:
        return self._bernoulli(p, p)

    def _bernoulli(self, x: Tensor, p: Tensor | float = 0.5) -> Tensor:
        wide = isinstance(p, Tensor) and p.dtype == torch.float64
        return (self._unit(x.shape, torch.float64 if wide else torch.float32) < p).to(x.dtype)

    def _native_dropout(self, x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
        if train is False or p == 0:
            return x.clone(), torch.ones_like(x, dtype=torch.bool)
        kept = self._unit(x.shape, torch.float32) >= p
        return x * kept * (0.0 if p == 1 else 1 / (1 - p)), kept

    def _rrelu(
        self, x: Tensor, noise: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False
    ) -> tuple[Tensor, Tensor]:
        if not training:
            return torch.nn.functional.leaky_relu(x, (lower + upper) / 2), noise
        slope = (self._unit(x.shape, torch.float32) * (upper - lower) + lower).to(x.dtype)
        return torch.where(x <= 0, x * slope, x), torch.where(x <= 0, slope, 1.0)

    def _multinomial(self, weights: Tensor, count: int, replacement: bool = False) -> Tensor:
        """Rows of category numbers, drawn in proportion to ``weights`` (``[categories]`` or ``[rows, categories]``)."""
        wide = weights.to(torch.float64)
        if not replacement:  # the first arrivals of as many Poisson processes
            return torch.topk(wide / -torch.log(1 - self._unit(wide.shape, torch.float64)), count)[1]
        limits = torch.cumsum(wide, -1) / wide.sum(-1, keepdim=True)
        drawn = self._unit([*wide.shape[:-1], count], torch.float64)
        passed = (drawn.unsqueeze(-1) >= limits.unsqueeze(-2)).to(torch.int64).sum(-1)
        return torch.clamp(passed, max=wide.size(-1) - 1)


def _without_generator(rule: Decomposition) -> Decomposition:
    """``rule`` for calls that draw from torch's default generator; a generator of the user's own is not replaced."""

    def decomposition(*args: Any, generator: object = None, **kwargs: Any) -> Any:
        if generator is not None or any(isinstance(a, torch.Generator) for a in args):
            return NotImplemented
        return rule(*args, **kwargs)

    return decomposition


def _shifted(x: Tensor, bits: int) -> Tensor:
    return torch.bitwise_right_shift(x, bits)


def _fraction(words: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """Random bits as numbers of ``dtype`` in [0, 1)."""
    bits = _BITS[dtype]
    whole = words[0] * 2 ** (bits - 32) + _shifted(words[1], 64 - bits) if bits > 32 else _shifted(words[0], 32 - bits)
    compute = torch.float64 if bits > 32 else torch.float32
    return (whole.to(compute) * 2.0**-bits).to(dtype)


# ------------------------------------------------------------------------------------------------------------- the graph


@dataclass(frozen=True)
class BoundGenerator:
    """New placeholders of a graph by parameter name, and the node of the next :data:`CALLS`."""

    placeholders: dict[str, fx.Node]
    next_calls: fx.Node


def bind_generator(graph: fx.Graph) -> BoundGenerator | None:
    """Give ``graph`` placeholders for seed and calls, where it draws numbers; None where it does not."""
    standing = {
        SEED: graph.find_nodes(op="call_function", target=torch.ops.mlirstack.random_seed.default),
        CALLS: graph.find_nodes(op="call_function", target=torch.ops.mlirstack.random_calls.default),
    }
    if not standing[SEED]:
        return None
    last = list(graph.find_nodes(op="placeholder"))[-1:]
    found: dict[str, fx.Node] = {}
    for name, nodes in standing.items():
        with graph.inserting_after(*last) if last else graph.inserting_before(next(iter(graph.nodes))):
            found[name] = graph.placeholder(name.replace(".", "_"))
        found[name].meta = {"val": nodes[0].meta["val"]}
        last = [found[name]]
        for node in nodes:
            node.replace_all_uses_with(found[name])
            graph.erase_node(node)
    with graph.inserting_before(next(node for node in reversed(graph.nodes) if node.op == "output")):
        following = graph.call_function(aten.add.Scalar, (found[CALLS], 1))
    following.meta = dict(found[CALLS].meta)
    return BoundGenerator(found, following)


def first_values() -> dict[str, Tensor]:
    """What the two parameters hold at first; the seed is drawn from torch's default generator (``torch.manual_seed``)."""
    return {SEED: torch.randint(2**63 - 1, (), dtype=torch.int64), CALLS: torch.zeros((), dtype=torch.int64)}
