"""Every zoo model through target iree-cpu, against eager."""

from __future__ import annotations

import pytest
from zoo_on_target import MODELS, check

pytestmark = pytest.mark.target


@pytest.mark.parametrize("name", MODELS)
def test_zoo_model_on_iree_cpu(name: str) -> None:
    check(name, "iree-cpu")
