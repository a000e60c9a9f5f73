"""Names to models: looks a name up in the catalog, imports its family, builds module and inputs from a seed.

Nothing here imports torch before a model is asked for, so that the command line can list and check names at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING

from mlirstack.errors import UsageError
from mlirstack.zoo.catalog import CATALOG

if TYPE_CHECKING:
    from torch import nn

    from mlirstack.zoo.recipe import DynamicShapes, Inputs

# Models of real size, seconds each to compile; quick tests leave them out.
HEAVY = frozenset({"tiny_mlp", "resnet18_64"})


@dataclass(frozen=True)
class ZooModel:
    """A model ready to run: ``module(*inputs)``, in eval mode.

    ``dynamic_shapes`` is what ``torch.export.export`` takes, or None.  ``make_inputs(seed)`` gives other inputs of the same
    shapes and dtypes for the same weights.
    """

    name: str
    family: str
    doc: str
    module: nn.Module
    inputs: Inputs
    dynamic_shapes: DynamicShapes | None
    make_inputs: Callable[[int], Inputs]


def families() -> Mapping[str, Mapping[str, str]]:
    """Family → name → one line of description."""
    return CATALOG


def names(family: str | None = None) -> list[str]:
    """All model names, or those of one family, in catalog order."""
    if family is None:
        return [name for members in CATALOG.values() for name in members]
    if family not in CATALOG:
        raise UsageError(f"the zoo has no family '{family}'", hint=f"families: {', '.join(CATALOG)}")
    return list(CATALOG[family])


def family_of(name: str) -> str:
    """The family of a model; :class:`UsageError` with the nearest names if there is no such model."""
    for family, members in CATALOG.items():
        if name in members:
            return family
    near = get_close_matches(name, names(), n=3)
    raise UsageError(
        f"the zoo has no model '{name}'",
        hint=f"did you mean {' or '.join(near)}?" if near else f"families: {', '.join(CATALOG)}",
    )


def get(name: str, seed: int = 0) -> ZooModel:
    """Build a model: ``seed`` sets its weights and its inputs; the global random state is left as it was."""
    family = family_of(name)
    import_module(f"mlirstack.zoo.{family}")
    from mlirstack.zoo.recipe import RECIPES

    recipe = RECIPES[name]
    return ZooModel(
        name=name,
        family=family,
        doc=CATALOG[family][name],
        module=recipe.make_module(seed),
        inputs=recipe.make_inputs(seed),
        dynamic_shapes=recipe.dynamic_shapes,
        make_inputs=recipe.make_inputs,
    )
