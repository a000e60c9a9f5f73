"""Writes docs/dialects.md from dialect_samples/: each sample's header, its program, and what its command makes of it.

``python docs/make_dialects.py`` writes the page, ``--check`` fails where it is not current.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "dialects.md"
LINES = 48  # of a result; the rest is left to the reader's terminal
FIELDS = ("For", "Level", "Before", "After", "Natural here", "Try")

INTRODUCTION = """# From TOSA down to PTX: a course in dialects

This page is made from the files in `dialect_samples/` by `docs/make_dialects.py`; each file is also a lit test, so what is
printed here is what the tools print. Change a sample, run its command, and see.

## Why so many levels

A compiler that went from the graph straight to instructions would have to find every structure again that the model had
from the start. Each level keeps what the next optimisation needs, and gives it up when that is done:

- On **whole tensors** (torch, tosa) an operator is one op with a name. Here constants are folded layer by layer, transposes
  cancel, a quantised scale moves through a convolution, a tensor is spread over devices.
- In **linalg** an operator is a loop nest that is not written out: maps from loops to elements, and a scalar body. Fusion is
  composition of maps; tiling gives the same op on slices. On written loops both would need a dependence analysis first.
- In **vector** values are as large as registers. Here it is decided how a small contraction is done: outer products, dot
  products, tensor cores.
- **Bufferization** turns values into memory, once, for the whole program. Before it nothing can be overwritten and
  everything may be moved; after it, there are addresses, and moving things needs alias analysis.
- In **scf** and **affine** loops are ops. Here they are peeled, unrolled, pipelined, mapped to threads. A graph of blocks
  (**cf**) has no loops any more.
- **gpu** knows grids, blocks and workgroup memory; **nvgpu** the instructions of one vendor on vectors and memrefs, so that
  copies can still be pipelined against computation; **nvvm** only which instruction it is.
- **llvm** is the way out. LLVM optimises scalars and small vectors better than anything above it, and knows nothing of
  tensors.

"""

PARTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "Whole tensors",
        "The model as operators. What is done here is done once for a whole layer.",
        ("torch", "tosa", "stablehlo", "tm_tensor", "quant", "shape", "ml_program", "shard"),
    ),
    (
        "Loops that are not written out",
        "The same operators as loop nests in disguise: what to compute, not yet in which order.",
        ("linalg_named", "linalg_generic", "linalg_tiling", "tensor", "sparse_tensor"),
    ),
    (
        "Registers, and who decides",
        "Tiles that fit a register file become vectors. Which sizes these are is the schedule's business.",
        ("transform", "vector", "vector_transfer"),
    ),
    ("Memory", "Values get addresses.", ("bufferization", "memref")),
    ("Loops", "Now the order is written down, and can be given to threads.", ("affine", "scf", "omp", "async")),
    (
        "Numbers",
        "The scalars inside all of this; these ops live at every level from linalg on.",
        ("arith", "math", "complex", "index", "ub"),
    ),
    ("Functions, blocks, LLVM", "The last steps on the CPU.", ("func", "cf", "llvm")),
    ("GPU", "The same way for a kernel: from grids and threads to the instructions of one chip.", ("gpu", "nvgpu", "nvvm")),
    (
        "Beside the stack",
        "Dialects about dialects: patterns and definitions as data, and how to extend the stack without C++.",
        ("pdl", "irdl", "python_dialect", "python_transform_op"),
    ),
)


@dataclass(frozen=True)
class Sample:
    """A sample: its title, its fields by name, and its program without RUN and CHECK lines."""

    name: str
    title: str
    fields: dict[str, str]
    program: str
    language: str


def read(name: str) -> Sample:
    """Read one sample; ValueError where its header lacks a field."""
    path = next(p for p in (ROOT / "dialect_samples").glob(f"{name}.*"))
    text = path.read_text()
    if path.suffix == ".py":
        _, header, program = text.split('"""', 2)
        program = re.sub(r"^[ \t]*# (?:[A-Z]+-)*CHECK.*\n", "", program, flags=re.MULTILINE)
        lines = header.strip().split("\n")
    else:
        head, _, rest = text.partition("// RUN:")
        lines = [line.removeprefix("//").removeprefix(" ") for line in head.strip().split("\n")]
        program = _without_checks("// RUN:" + rest)
    fields = _fields(lines[1:])
    missing = [f for f in ("For", "Level", "Try") if f not in fields]
    if missing:
        raise ValueError(f"{path}: the header has no {', '.join(missing)}")
    return Sample(
        name, lines[0].removeprefix("# "), fields, program.strip("\n"), "mlir" if path.suffix == ".mlir" else "python"
    )


def _fields(lines: list[str]) -> dict[str, str]:
    """``Name: text`` with continuation lines; a line may hold two, ``Before: a. After: b.``"""
    fields: dict[str, str] = {}
    names = "|".join(FIELDS)
    last = ""
    for line in lines:
        if line.startswith("RUN:") or not line.strip():
            last = ""
            continue
        starts = re.match(rf"({names}): (.*)", line)
        if starts:
            last, value = starts[1], starts[2]
            second = re.match(r"(.*?\.) After: (.*)", value) if last == "Before" else None
            fields[last] = second[1] if second else value
            if second:
                last = "After"
                fields[last] = second[2]
        elif last:
            fields[last] += f" {line.strip()}"
    return fields


def _without_checks(text: str) -> str:
    runs = re.findall(r"--check-prefix(?:es)?=([\w,-]+)", text)
    prefixes = {"CHECK", "RUN", *(p for group in runs for p in group.split(","))}
    directive = re.compile(rf"^\s*//\s*(?:{'|'.join(sorted(prefixes))})(?:-[A-Z]+(?:-\d+)?)?:")
    kept = [line for line in text.split("\n") if not directive.match(line)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept))


def result(sample: Sample) -> str:
    """What the sample's command prints."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["/bin/sh", "-c", sample.fields["Try"]], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ValueError(f"{sample.name}: {sample.fields['Try']} failed:\n{done.stderr}")
    lines = [line.rstrip() for line in done.stdout.strip().split("\n")]
    more = len(lines) - LINES
    return "\n".join([*lines[:LINES], f"… {more} more lines"] if more > 0 else lines)


def page() -> str:
    """The entire page."""
    parts = [INTRODUCTION]
    listed = [name for _, _, names in PARTS for name in names]
    present = {
        p.stem for p in (ROOT / "dialect_samples").glob("*") if p.suffix in (".mlir", ".py") and p.name != "lit.cfg.py"
    }
    if set(listed) != present:
        raise ValueError(f"samples that this page does not list, or that are gone: {', '.join(set(listed) ^ present)}")
    samples = {name: read(name) for name in listed}
    parts.append("| level | what is natural at it |\n| --- | --- |\n")
    parts += [
        f"| {s.title.partition(':')[0]} | {s.fields['Natural here']} |\n"
        for s in samples.values()
        if "Natural here" in s.fields
    ]
    for title, text, names in PARTS:
        parts.append(f"\n## {title}\n\n{text}\n")
        parts += [_section(samples[name]) for name in names]
    return "".join(parts)


def _section(sample: Sample) -> str:
    about = [f"- **{field}**: {sample.fields[field]}" for field in FIELDS[:-1] if field in sample.fields]
    return (
        f"\n### {sample.title}\n\n" + "\n".join(about) + f"\n\n```{sample.language}\n{sample.program}\n```\n\n"
        f"`{sample.fields['Try']}`\n\n```\n{result(sample)}\n```\n"
    )


def main() -> None:
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 where the page is not current")
    text = page()
    if parser.parse_args().check:
        if not PAGE.exists() or PAGE.read_text() != text:
            sys.exit("docs/dialects.md is not current: run 'python docs/make_dialects.py'")
        return
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
