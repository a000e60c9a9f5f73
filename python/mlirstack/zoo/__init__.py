"""Small models with fixed seeds, written here, for examples, tests and benchmarks: ``zoo.get("tiny_mlp")``.

Listing the zoo imports no torch; building a model does.
"""

from mlirstack.zoo.registry import HEAVY, ZooModel, families, family_of, get, names

__all__ = ["HEAVY", "ZooModel", "families", "family_of", "get", "names"]
