"""What a program's calls free stays with the process: told from the pages that the system has to bring."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# Six blocks at a time, as a program's intermediate tensors: together more than glibc keeps on its own.
_CALLS = """
import ctypes, resource
from mlirstack.passes.runtime_libraries import resolve
from mlirstack.targets.cpu.heap import keep_freed_memory

malloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)(resolve("malloc")[1])
free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(resolve("free")[1])

def call():
    blocks = [malloc(4 << 20) for _ in range(6)]
    for block in blocks:
        ctypes.memset(block, 1, 4 << 20)
    for block in blocks:
        free(block)

def pages():
    call()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    call()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

first = pages()
keep_freed_memory()
print(first, pages())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="limits of glibc's heap")
def test_a_second_call_needs_no_new_pages() -> None:
    result = subprocess.run([sys.executable, "-c", _CALLS], capture_output=True, text=True, check=True, timeout=300)
    before, after = map(int, result.stdout.split())
    assert before > 1000, "the heap would have kept them anyway"
    assert after < 100
