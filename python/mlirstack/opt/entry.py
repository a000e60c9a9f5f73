"""How the tools of this package end: one exit status, wrong use on stderr, a reader that has left a pipe is no error."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NoReturn

from mlirstack.opt.flags import FlagError


def run_tool(body: Callable[[list[str]], int], argv: list[str] | None) -> NoReturn:
    """Call ``body`` with the arguments (of the process if None) and exit: with its status, or 1 for wrong use."""
    try:
        status = body(sys.argv[1:] if argv is None else argv)
    except FlagError as error:
        sys.stderr.write(f"{error}\n")
        status = 1
    except BrokenPipeError:  # the reader of a pipe has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        status = 0
    sys.exit(status)
