"""Warp-specialised products on Hopper: copy engine, rings of shared memory, warpgroup products."""
