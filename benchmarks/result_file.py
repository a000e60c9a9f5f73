"""Files of results: what was measured, by which command, with which versions, on which machine, and when."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from mlirstack.versions import versions


def write_results(file: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write the rows of this command, as JSON; of files elsewhere on this machine the command names the last part alone."""
    command = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv]
    data = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(["python", *command]),
        "versions": versions(),
        "machine": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        "results": list(rows),
    }
    file.write_text(json.dumps(data, indent=1) + "\n")
