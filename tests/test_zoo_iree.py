"""Every zoo model through target iree-cpu, against eager."""

from __future__ import annotations

import pytest
from zoo_on_target import MODELS, check, check_sizes

from mlirstack import zoo

pytestmark = pytest.mark.target


@pytest.mark.parametrize("name", MODELS)
def test_zoo_model_on_iree_cpu(name: str) -> None:
    check(name, "iree-cpu")


@pytest.mark.parametrize("name", zoo.names("dynamic"))
def test_dynamic_model_on_iree_cpu_at_other_sizes(name: str) -> None:
    check_sizes(name, "iree-cpu", (2, 7, 19))
