"""Parameters on disk: one safetensors file, written for bundles and for the replay of a dump."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mlirstack.errors import BundleError

if TYPE_CHECKING:
    import torch


def save_parameters(parameters: Mapping[str, torch.Tensor], file: Path) -> None:
    """Write ``parameters`` to ``file``, or remove the file where there are none; :class:`BundleError` where it cannot be."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        if not parameters:
            file.unlink(missing_ok=True)
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        # clone: safetensors refuses tensors that share storage, and tied weights do
        save_file({name: t.detach().clone().contiguous() for name, t in parameters.items()}, file)
    except (OSError, SafetensorError) as error:
        file.unlink(missing_ok=True)
        raise BundleError(f"cannot write {file}: {error}", hint="free space, or name another directory") from error
