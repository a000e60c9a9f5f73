"""Which tile a convolution gets whose factors the copy engine brings: those of matrix products, and some of its own."""

from __future__ import annotations

from mlirstack.schedules.cuda.convolution.wgmma_window import WindowCopies
from mlirstack.schedules.cuda.device import Device
from mlirstack.schedules.cuda.wgmma.wgmma_choice import candidates
from mlirstack.schedules.cuda.wgmma.wgmma_tile import WgmmaProblem, WgmmaTile

# Features come in fewer columns than those of matrix products, or in multiples of 320 (diffusion models), and small images
# have few pixels for very long windows.
_TILES = (
    WgmmaTile(128, 160, 5), WgmmaTile(256, 64, 5), WgmmaTile(128, 64, 8), WgmmaTile(64, 128, 7, split=4),
    WgmmaTile(64, 128, 7, split=8),
)  # fmt: skip
_MAX_PADDING = 1.4  # K with channels padded to whole steps, against K itself
_LONG_K = 1024  # from here on the main loop takes so long that results may leave one by one
_MANY_FEATURES = 64  # up to here, tiles are so narrow that copying and multiplying by the same threads is as fast


def window_tiles(copies: WindowCopies, device: Device) -> list[WgmmaTile]:
    """Tiles worth trying, the best one by the model first."""
    return candidates(
        copies.contraction(), copies.operands, device, factor_bytes=copies.factor_bytes(), further_tiles=_TILES
    )


def is_preferred(copies: WindowCopies, tile: WgmmaTile) -> bool:
    """Is this better than copies by all threads?

    Not where most of a step would be padding, or where results leave one by one (channels first) after a short main loop.
    """
    product = copies.match.product
    whole = copies.padded_k <= _MAX_PADDING * product.k and product.n > _MANY_FEATURES
    staged = WgmmaProblem(copies.contraction(), copies.operands, tile).staged
    return whole and (tile.split > 1 or all(staged) or product.k >= _LONG_K)
