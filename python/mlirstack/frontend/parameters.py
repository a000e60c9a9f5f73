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
        save_file(_separate(parameters), file)
    except (OSError, SafetensorError) as error:
        file.unlink(missing_ok=True)
        raise BundleError(f"cannot write {file}: {error}", hint="free space, or name another directory") from error


def _separate(parameters: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Contiguous tensors, none of which shares storage with another: safetensors refuses tied weights.

    Only what is shared is copied; a copy of everything would cost more than writing it.
    """
    separate: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    for name, tensor in parameters.items():
        plain = tensor.detach().contiguous()
        storage = plain.untyped_storage()
        is_whole = storage.nbytes() == plain.numel() * plain.element_size()
        if storage.data_ptr() in seen or not is_whole:
            plain = plain.clone()
        seen.add(plain.untyped_storage().data_ptr())
        separate[name] = plain
    return separate
