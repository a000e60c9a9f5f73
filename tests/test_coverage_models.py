"""Hugging Face models, unchanged, with their default attention: every tensor of what they return is eager's.

They need the extra ``models``, which a plain test installation leaves out.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils import _pytree as pytree

import mlirstack as ms
from mlirstack.frontend import trees
from mlirstack.frontend.references import ModelSource, load

pytest.importorskip("transformers", reason="needs the extra 'models'")

EXAMPLES = Path(__file__).parent.parent / "examples" / "hugging_face.py"


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "mistral", "t5", "vit", "whisper_encoder"])
def test_a_model_of_hugging_face_gives_eagers_answer_in_its_own_container(name, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    source = load(f"{EXAMPLES}:{name}")
    assert isinstance(source, ModelSource)
    compiled = ms.compile(source.model, source.inputs, kwargs=source.kwargs)
    found = compiled(*source.inputs, **source.kwargs)
    with torch.no_grad():
        wanted = source.eager(*source.inputs, **source.kwargs)
    assert type(found) is type(wanted)
    # What a bundle holds of the containers is read where the model was never seen; numbers stay numbers.
    written = trees.dumps(pytree.tree_structure(wanted))
    assert trees.loads(written) == pytree.tree_structure(wanted)
    leaves = pytree.tree_leaves(found), pytree.tree_leaves(wanted)
    assert len(leaves[0]) == len(leaves[1]) > 0
    for mine, eagers in zip(*leaves, strict=True):
        torch.testing.assert_close(mine, eagers, rtol=1e-4, atol=1e-5)
