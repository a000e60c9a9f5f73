"""How a zoo model is written down: a builder of its module, one maker per input, the dynamic dimensions.

``@model`` registers a function that builds an ``nn.Module``; ``@operation`` registers a plain function of tensors.  Makers
draw from a ``torch.Generator``, so that a seed gives the same inputs on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, TypeAlias

import torch
from torch import Generator, Tensor, nn

from mlirstack.zoo.catalog import CATALOG

InputValue: TypeAlias = "Tensor | int | float | bool | list[InputValue] | tuple[InputValue, ...] | dict[str, InputValue]"
Inputs: TypeAlias = tuple[InputValue, ...]
Maker: TypeAlias = Callable[[Generator], InputValue]
DynamicShapes: TypeAlias = tuple[dict[int, torch.export.Dim] | None, ...]

_NORMALIZATIONS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.InstanceNorm2d, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
_INPUT_SEED_OFFSET = 1 << 32  # inputs and weights must not be the same stream of numbers


@dataclass(frozen=True)
class Recipe:
    """A registered model, not yet built."""

    name: str
    build: Callable[[], nn.Module]
    makers: tuple[Maker, ...]
    dynamic_shapes: DynamicShapes | None = None

    def make_module(self, seed: int) -> nn.Module:
        """The module in eval mode, weights drawn from ``seed``."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = self.build().eval()
            _randomize_normalization(module)
        return module

    def make_inputs(self, seed: int) -> Inputs:
        """The inputs that belong to ``seed``."""
        generator = torch.Generator().manual_seed(_INPUT_SEED_OFFSET + seed)
        return tuple(maker(generator) for maker in self.makers)


RECIPES: dict[str, Recipe] = {}


class Operation(nn.Module):
    """A plain function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: InputValue) -> Any:
        return self.function(*inputs)

    def extra_repr(self) -> str:
        return getattr(self.function, "__name__", repr(self.function))


def model(
    name: str, *makers: Maker, dynamic: DynamicShapes | None = None
) -> Callable[[Callable[[], nn.Module]], Callable[[], nn.Module]]:
    """Register the decorated builder of a module under ``name``, one maker per positional input."""

    def register(build: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
        _add(Recipe(name, build, makers, dynamic), build.__module__)
        return build

    return register


def operation(name: str, *makers: Maker) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function of tensors under ``name``, one maker per argument."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        assert isinstance(function, FunctionType)
        # torch.export takes source lines from frames named forward only; the line of the operation is the one to show.
        function.__code__ = function.__code__.replace(co_name="forward")
        _add(Recipe(name, lambda: Operation(function), makers), function.__module__)
        return function

    return register


def _add(recipe: Recipe, module_name: str) -> None:
    family = module_name.rsplit(".", 1)[-1]
    if recipe.name not in CATALOG.get(family, {}):
        raise ValueError(f"{module_name} registers '{recipe.name}', which the catalog does not list under '{family}'")
    if recipe.name in RECIPES:
        raise ValueError(f"{module_name} registers '{recipe.name}' twice")
    RECIPES[recipe.name] = recipe


# ---------------------------------------------------------------------------------------------------------------- makers


def normal(*shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> Maker:
    """Normally distributed floats with standard deviation ``scale``, drawn in float32."""
    return lambda generator: (torch.randn(shape, generator=generator) * scale).to(dtype)


def channels_last(*shape: int) -> Maker:
    """Normally distributed float32 images (N, C, H, W) that lie in memory as N, H, W, C."""
    return lambda generator: torch.randn(shape, generator=generator).to(memory_format=torch.channels_last)


def integers(low: int, high: int, *shape: int, dtype: torch.dtype = torch.int64) -> Maker:
    """Integers from ``low`` up to but not including ``high``."""
    return lambda generator: torch.randint(low, high, shape, generator=generator).to(dtype)


def booleans(*shape: int) -> Maker:
    """True and False, equally likely."""
    return lambda generator: torch.rand(shape, generator=generator) < 0.5


def distinct_indices(rows: int, columns: int, size: int) -> Maker:
    """``rows`` rows of ``columns`` int64 indices below ``size``, none twice in a row."""
    return lambda generator: torch.stack([torch.randperm(size, generator=generator)[:columns] for _ in range(rows)])


def value(constant: int | float | bool) -> Maker:
    """A Python number, whatever the seed."""
    return lambda generator: constant


def tensor(values: Sequence[float] | float, dtype: torch.dtype = torch.float32) -> Maker:
    """A tensor of given values, whatever the seed."""
    return lambda generator: torch.tensor(values, dtype=dtype)


def listed(*makers: Maker) -> Maker:
    """A list of inputs."""
    return lambda generator: [maker(generator) for maker in makers]


def named(**makers: Maker) -> Maker:
    """A dictionary of inputs."""
    return lambda generator: {name: maker(generator) for name, maker in makers.items()}


def _randomize_normalization(module: nn.Module) -> None:
    """Give normalization layers weights and running statistics other than 0 and 1, which would hide a wrong lowering."""
    for layer in module.modules():
        mean, variance = getattr(layer, "running_mean", None), getattr(layer, "running_var", None)
        if isinstance(mean, Tensor) and isinstance(variance, Tensor):
            mean.normal_(std=0.2)
            variance.uniform_(0.5, 1.5)
        if isinstance(layer, _NORMALIZATIONS):
            weight, bias = getattr(layer, "weight", None), getattr(layer, "bias", None)
            with torch.no_grad():
                if isinstance(weight, Tensor):
                    weight.uniform_(0.5, 1.5)
                if isinstance(bias, Tensor):
                    bias.normal_(std=0.2)
