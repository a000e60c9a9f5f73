"""The names of all Python steps that mlirstack brings: passes, schedules, translations.

A table of strings: listing it imports nothing.  Whoever reads pipeline text calls :func:`register_steps` first.
"""

from __future__ import annotations

from mlirstack.pipeline.registry import register_step

STEPS: dict[str, str] = {
    "iree-phase": "mlirstack.passes.iree_phase:IreePhase",
}


def register_steps() -> None:
    """Make all steps known to the pipeline parser."""
    for name, loader in STEPS.items():
        register_step(name, loader)
