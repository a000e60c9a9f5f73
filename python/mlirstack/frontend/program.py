"""A program: an MLIR module with one entry function, the signature that ties it to the user's call, and its parameters.

The entry function ``@main`` takes all :attr:`Signature.arguments` in order (parameters, buffers and lifted constants are
arguments like the user's inputs: weights never stand in the IR) and returns each distinct result once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    import torch

ENTRY = "main"

Dim = int | str  # a size, or the name of a dynamic dimension


@dataclass(frozen=True)
class ArgumentSpec:
    """One argument of ``@main``.

    ``kind`` is ``"input"`` (the user's; ``leaf`` is its position among the flattened inputs) or ``"parameter"`` (bound at
    load; ``name`` is its key in :attr:`Program.parameters`).  ``dtype`` is torch's name without the prefix (``"float32"``);
    Python scalars have ``shape`` None and dtype ``"int64"``, ``"float64"`` or ``"bool"``.  ``order`` lists the dimensions
    from the outermost in memory to the innermost: ``@main`` takes the tensor permuted so, (0, 2, 3, 1) for a channels-last
    image; None where that is the order of the shape.
    """

    name: str
    kind: Literal["input", "parameter"]
    shape: tuple[Dim, ...] | None
    dtype: str
    leaf: int | None = None
    order: tuple[int, ...] | None = None


@dataclass(frozen=True)
class OutputSpec:
    """One leaf of what the model returns.

    ``kind``: ``"result"`` (``index`` into the function's results), ``"input"`` (the user's leaf ``index``, passed through),
    ``"parameter"`` (``name``), or ``"constant"`` (``value``: a Python scalar or None).
    ``scalar`` marks a result that is a Python number, not a tensor.
    """

    kind: Literal["result", "input", "parameter", "constant"]
    index: int | None = None
    name: str | None = None
    value: int | float | bool | str | None = None
    shape: tuple[Dim, ...] | None = None
    dtype: str | None = None
    scalar: bool = False


@dataclass(frozen=True)
class Mutation:
    """The model writes result ``index`` into an argument: an input (``leaf``) or a parameter/buffer (``name``)."""

    index: int
    leaf: int | None = None
    name: str | None = None


@dataclass(frozen=True)
class ResultSpec:
    """One result of ``@main``: shape and dtype as torch sees them (shape None: a scalar).

    ``order`` as in :class:`ArgumentSpec`: ``@main`` gives the tensor permuted so, and permuted back it has eager's strides.
    """

    shape: tuple[Dim, ...] | None
    dtype: str
    order: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Signature:
    """How a call of the model maps to a call of ``@main``; JSON-serialisable by ``dataclasses.asdict``.

    ``in_spec`` and ``out_spec`` are ``torch.utils._pytree.treespec_dumps`` texts of ``(args, kwargs)`` and of the output.
    ``dynamic`` gives the range of each named dimension: ``{"batch": (1, 64)}``; an upper bound of None is unbounded.
    ``specialized`` lists leaves of the user's inputs that are part of the program (Python scalars and None, as torch.export
    has it), each with the one value that a call may give there; they are no arguments of ``@main``.
    """

    arguments: tuple[ArgumentSpec, ...]
    results: tuple[ResultSpec, ...]
    outputs: tuple[OutputSpec, ...]
    in_spec: str
    out_spec: str
    mutations: tuple[Mutation, ...] = ()
    dynamic: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    specialized: tuple[tuple[int, int | float | bool | str | None], ...] = ()


class ExportedGraph(Protocol):
    """The payload at level "fx": a decomposed torch.export program, ready to be imported into the torch dialect."""

    @property
    def text(self) -> str:
        """The graph as readable Python text, parameters by name."""
        ...


@dataclass
class Program:
    """What the front end hands to a target.

    ``payload`` stands at level ``level``: an :class:`ExportedGraph` at "fx" for torch models (the first stages of every
    pipeline import it), an ``ir.Module`` at the level recognised for .mlir input.  ``parameters`` maps argument names to
    tensors on the CPU.  ``copied_inputs`` names the inputs that had gaps or overlaps in the example: compiled
    code reads dense tensors, so such inputs are copied at each call.
    """

    name: str
    payload: ExportedGraph | Any
    level: str
    signature: Signature
    parameters: dict[str, torch.Tensor]
    copied_inputs: tuple[str, ...] = ()
