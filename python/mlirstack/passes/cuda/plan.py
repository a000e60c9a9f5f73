"""The launch plan: what the host does to run a lowered graph on a GPU: buffers, launches in order, constants, as data.

The compiler writes it, the run time executes it, the dump and the bundle show it as JSON.  A machine that only runs plans
imports nothing else of this package.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

FORMAT = 1

# An integer that the host computes: a number, or a list in prefix notation such as ["mul", ["dim", 0, 1], 64].
# Leaves: ["dim", i, axis] (size of an axis of input i), ["scalar", i] (Python number given as input i).
# Operators: add sub mul floordiv ceildiv mod min max neg eq ne lt le gt ge and or not; select takes condition, a, b.
Expr = int | list[Any]


@dataclass(frozen=True)
class Input:
    """One argument of a planned function: a tensor (contiguous, on the device) or a Python scalar (``shape`` None).

    ``source`` and ``index`` are those of :class:`mlirstack.passes.abi.ValueAbi`: argument of the program or result of
    @prepare.  ``element`` is an MLIR element type; ``shape`` has None for a dynamic size.
    """

    element: str
    shape: tuple[int | None, ...] | None
    source: Literal["argument", "prepared"]
    index: int


@dataclass(frozen=True)
class Buffer:
    """A piece of device memory of ``bytes`` bytes.

    ``kind`` "input": input ``index`` of the function.  "result": allocated per call, owned by the caller, of type
    ``element`` and ``shape``.  "temporary": lives in the arena at ``offset`` (None where sizes are dynamic: laid out at run
    time) from step ``first`` to step ``last``, both inclusive.  "constant": :attr:`LaunchPlan.constants` entry ``index``.
    """

    kind: Literal["input", "result", "temporary", "constant"]
    bytes: Expr
    element: str = "i8"
    shape: tuple[Expr, ...] = ()
    index: int = 0
    offset: int | None = None
    first: int = 0
    last: int = 0


@dataclass(frozen=True)
class TensorMap:
    """What ``cuTensorMapEncodeTiled`` takes: innermost dimension first; ``strides`` in bytes, without the innermost.

    With ``lower`` and ``upper`` corners of the spatial dimensions, what ``cuTensorMapEncodeIm2col`` takes; ``box`` then is
    (channels of a pixel, pixels of a column).
    """

    element: str  # "f32", "tf32", "f16", "bf16", "i8" (bytes: fp8 too)
    sizes: tuple[Expr, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 128  # bytes: 0, 32, 64, 128
    element_strides: tuple[int, ...] = ()  # all 1 if empty
    l2_promotion: int = 256  # bytes: 0, 64, 128, 256
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()


@dataclass(frozen=True)
class Argument:
    """One kernel argument: address of ``buffer`` plus ``offset`` bytes, a tensor map over that address, or a number."""

    kind: Literal["pointer", "tensor_map", "i32", "i64", "f32", "f64"]
    buffer: int = -1
    offset: Expr = 0
    tensor_map: TensorMap | None = None
    value: Expr | float = 0


@dataclass(frozen=True)
class Launch:
    """Launch ``kernel`` with ``grid`` blocks of ``block`` threads and ``shared`` bytes of dynamic shared memory.

    ``overlaps``: it may start before the launch in the step before it, or of whoever used the stream before, is done: the
    kernel waits for that itself.
    """

    kernel: str
    grid: tuple[Expr, Expr, Expr]
    block: tuple[int, int, int]
    arguments: tuple[Argument, ...]
    shared: int = 0
    cluster: int = 1
    overlaps: bool = False
    kind: Literal["launch"] = "launch"


@dataclass(frozen=True)
class Copy:
    """Copy ``bytes`` bytes between two buffers on the device; byte offsets."""

    source: int
    destination: int
    bytes: Expr
    source_offset: Expr = 0
    destination_offset: Expr = 0
    kind: Literal["copy"] = "copy"


@dataclass(frozen=True)
class Fill:
    """Set ``bytes`` bytes of a buffer to the repeated 1-, 2- or 4-byte pattern ``value``."""

    buffer: int
    bytes: Expr
    value: int
    width: int = 1
    offset: Expr = 0
    kind: Literal["fill"] = "fill"


@dataclass(frozen=True)
class Check:
    """A run-time check of the model: the byte at ``offset`` of ``buffer`` must not be 0; or ``condition`` must hold."""

    message: str
    buffer: int = -1
    offset: Expr = 0
    condition: Expr = 1
    kind: Literal["check"] = "check"


Step = Launch | Copy | Fill | Check


@dataclass(frozen=True)
class ResultRef:
    """A result of the program: a buffer (of kind "result", or "input" where an argument is returned), or a number."""

    buffer: int = -1
    value: Expr = 0


@dataclass(frozen=True)
class PlannedFunction:
    """``main`` or ``prepare``: inputs, buffers, steps in order, results in the program's order.

    ``arena_bytes`` is the size of the arena with reuse, ``unshared_bytes`` without; None where sizes are dynamic.
    """

    name: str
    inputs: tuple[Input, ...]
    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    results: tuple[ResultRef, ...]
    arena_bytes: int | None = 0
    unshared_bytes: int | None = 0


@dataclass(frozen=True)
class Constant:
    """A table of the program; ``data`` is zlib-compressed bytes in base64."""

    element: str
    shape: tuple[int, ...]
    data: str

    @staticmethod
    def of(element: str, shape: Sequence[int], data: bytes) -> Constant:
        """Pack ``data``."""
        return Constant(element, tuple(shape), base64.b64encode(zlib.compress(data, 9)).decode())

    def bytes(self) -> bytes:
        """Unpack."""
        return zlib.decompress(base64.b64decode(self.data))


@dataclass(frozen=True)
class KernelInfo:
    """One row of the kernel table.  What ptxas says is None before the cubin exists; the roofline needs the device.

    ``bytes`` and ``flops`` are those of one launch: every operand read once, every result written once.
    """

    name: str
    schedule: str
    threads: int
    shared_bytes: int
    bytes: int | None = None
    flops: int | None = None
    registers: int | None = None
    static_shared_bytes: int | None = None
    spill_bytes: int | None = None
    stack_bytes: int | None = None
    warning: str | None = None  # of ptxas, about speed


@dataclass(frozen=True)
class LaunchPlan:
    """A whole program: entry points, constants, kernels, and the architecture that the kernels are for (``sm_90a``).

    Where another compiler lowers the program, the functions are those that it calls, and ``program`` is the program itself:
    MLIR bytecode, zlib-compressed in base64.
    """

    arch: str
    functions: tuple[PlannedFunction, ...]
    kernels: tuple[KernelInfo, ...]
    constants: tuple[Constant, ...] = ()
    program: str = ""
    format: int = FORMAT

    def function(self, name: str) -> PlannedFunction | None:
        """The entry point ``name``, or None."""
        return next((f for f in self.functions if f.name == name), None)

    def to_json(self, *, indent: int | None = None) -> str:
        """JSON text; fields that hold their default are left out."""
        return json.dumps(_plain(self), indent=indent)

    @staticmethod
    def from_json(text: str) -> LaunchPlan:
        """Inverse of :meth:`to_json`; ValueError where the format is another one."""
        data = json.loads(text)
        if data.get("format", FORMAT) != FORMAT:
            raise ValueError(f"launch plan of format {data.get('format')}, this version reads {FORMAT}")
        return LaunchPlan(
            arch=data["arch"],
            functions=tuple(_function(f) for f in data["functions"]),
            kernels=tuple(KernelInfo(**k) for k in data["kernels"]),
            constants=tuple(Constant(c["element"], tuple(c["shape"]), c["data"]) for c in data.get("constants", ())),
            program=data.get("program", ""),
        )


_OPERATORS: dict[str, Any] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b, "ceildiv": lambda a, b: -(-a // b), "mod": lambda a, b: a % b,
    "min": min, "max": max, "neg": lambda a: -a, "select": lambda c, a, b: a if c else b,
    "eq": lambda a, b: int(a == b), "ne": lambda a, b: int(a != b), "lt": lambda a, b: int(a < b),
    "le": lambda a, b: int(a <= b), "gt": lambda a, b: int(a > b), "ge": lambda a, b: int(a >= b),
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "not": lambda a: int(not a),
}  # fmt: skip


def evaluate(expr: Expr | float, shapes: Mapping[int, Sequence[int]], scalars: Mapping[int, int]) -> int:
    """The value of ``expr`` for the shapes of the tensor inputs and the values of the scalar inputs, by input number."""
    if not isinstance(expr, (list, tuple)):
        return expr  # type: ignore[return-value]
    head, *rest = expr
    if head == "dim":
        return shapes[rest[0]][rest[1]]
    if head == "scalar":
        return scalars[rest[0]]
    return int(_OPERATORS[head](*(evaluate(e, shapes, scalars) for e in rest)))


def is_static(expr: Expr | float) -> bool:
    """Is it a plain number?"""
    return not isinstance(expr, (list, tuple))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        result = {}
        for field in dataclasses.fields(value):
            entry = getattr(value, field.name)
            if field.name in ("kind", "format") or field.default is dataclasses.MISSING or entry != field.default:
                result[field.name] = _plain(entry)
        return result
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return value


_STEPS: dict[str, type] = {"copy": Copy, "fill": Fill, "check": Check}


def _function(data: dict[str, Any]) -> PlannedFunction:
    def optional(shape: Any) -> Any:
        return None if shape is None else tuple(shape)

    return PlannedFunction(
        name=data["name"],
        inputs=tuple(Input(**{**i, "shape": optional(i["shape"])}) for i in data["inputs"]),
        buffers=tuple(Buffer(**{**b, "shape": tuple(b.get("shape", ()))}) for b in data["buffers"]),
        steps=tuple(_launch(s) if s["kind"] == "launch" else _STEPS[s["kind"]](**s) for s in data["steps"]),
        results=tuple(ResultRef(**r) for r in data["results"]),
        arena_bytes=data.get("arena_bytes", 0),
        unshared_bytes=data.get("unshared_bytes", 0),
    )


def _launch(data: dict[str, Any]) -> Launch:
    arguments = []
    for argument in data["arguments"]:
        given = argument.get("tensor_map")
        encoded = _tensor_map(given) if given else None
        arguments.append(Argument(**{**argument, "tensor_map": encoded}))
    grid, block = tuple(data["grid"]), tuple(data["block"])
    return Launch(**{**data, "grid": grid, "block": block, "arguments": tuple(arguments)})


def _tensor_map(data: dict[str, Any]) -> TensorMap:
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
    return TensorMap(**fields)
