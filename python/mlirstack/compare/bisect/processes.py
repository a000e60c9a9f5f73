"""The processes that execute stages, as their parent starts them.

Apart from :mod:`.executor`, which needs torch: a process is started first, and loads torch while its parent does.
"""

from __future__ import annotations

import sys

from mlirstack.supervised import Supervised

TIMEOUT = 300.0  # seconds for lowering or executing one stage


def execution_process(timeout: float = TIMEOUT) -> Supervised:
    """The process that executes; one may serve many executors, one after the other.  ``timeout``: seconds for a stage."""
    return Supervised([sys.executable, "-m", "mlirstack.compare.bisect.execute"], timeout=timeout)


def bundle_process() -> Supervised:
    """The process that executes bundles, where there is no MLIR."""
    return Supervised([sys.executable, "-m", "mlirstack.compare.bisect.execute_bundle"], timeout=TIMEOUT)
