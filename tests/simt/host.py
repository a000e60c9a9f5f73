"""Running whole programs: the host code around the launches is executed like a kernel of one thread.

:func:`run_plan` takes a module at the stages ``mapped`` or ``gpu`` and calls ``@main`` on arrays; :func:`run_kernel`
launches one kernel of a module on arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlirstack.bindings import ir
from mlirstack.passes import abi
from mlirstack.passes.cuda.memory import INPUT_ALIGNMENT

from .build import Body, Builder, Op, Step, meaning
from .faults import Fault, Unsupported
from .frames import Frame, Unit, Values
from .kinds import Kind, kind_of
from .launch import Options, Resources, build_kernel, run_blocks
from .memory import Memory
from .memrefs import View, identity
from .tensor_maps import TensorMap

TENSOR_MAP = "mlirstack.tensor_map"


class Program:
    """A module being executed: its symbols, the memory, and what was built of it so far."""

    def __init__(self, module: Any, options: Options) -> None:
        self.module = getattr(module, "operation", module)
        self.options = options
        self.memory = Memory()
        self.symbols = _symbols(self.module)
        self._kernels: dict[str, Any] = {}
        self._functions: dict[str, tuple[Builder, Body]] = {}
        self.resources = ProgramResources("host", self.symbols, self.memory, options, program=self)

    def kernel(self, path: str) -> Any:
        """The kernel ``module::function``, ready to run."""
        if path not in self._kernels:
            module_name, _, name = path.rpartition("::")
            symbols = _symbols(self.symbols[module_name])
            self._kernels[path] = build_kernel(symbols[name], symbols, self.memory, self.options)
        return self._kernels[path]

    def call(self, name: str, arguments: Sequence[Any]) -> list[Any]:
        """Execute a host function."""
        if name not in self._functions:
            builder = Builder(self.resources)
            self._functions[name] = (builder, builder.body(self.symbols[name].regions[0].blocks[0]))
        builder, body = self._functions[name]
        unit = Unit(self.memory, (1, 1, 1), (1, 1, 1), np.arange(1), is_host=True)
        return body.run(Frame(unit, Values(builder.ranks), np.arange(1)), arguments)


@dataclass
class ProgramResources(Resources):
    """Host code refers to the whole program."""

    program: Any = None


def _symbols(operation: Any) -> dict[str, Any]:
    block = operation.regions[0].blocks[0]
    return {op.attributes["sym_name"].value: op.operation for op in block.operations if "sym_name" in op.attributes}


def _array(value: Any) -> np.ndarray[Any, Any]:
    """A numpy array, or a torch tensor as one (bfloat16 included)."""
    if not hasattr(value, "detach"):
        return np.asarray(value)
    import ml_dtypes
    import torch

    tensor = value.detach().contiguous()
    small = {torch.bfloat16: ml_dtypes.bfloat16, torch.float8_e4m3fn: ml_dtypes.float8_e4m3fn}
    if tensor.dtype in small:
        bits = torch.int16 if tensor.element_size() == 2 else torch.uint8
        return tensor.view(bits).numpy().view(small[tensor.dtype])
    return tensor.numpy()


def _place(memory: Memory, array: np.ndarray[Any, Any], name: str) -> int:
    """Copy an argument of the program into memory, as badly aligned as it may be."""
    address = memory.allocate(array.nbytes, name, 2 * INPUT_ALIGNMENT, shift=INPUT_ALIGNMENT)
    memory.write_array(address, array)
    return address


def run_plan(module: Any, inputs: Sequence[Any], *, entry: str = "main", options: Options | None = None) -> list[Any]:
    """Call ``@main`` of a module on arrays (or torch tensors and numbers); returns its results as arrays.

    ``inputs``: the arguments of ``@main``; where the module carries mlirstack's calling convention, the arguments of the
    program, by number (None for those that are not used).  Raises :class:`Fault` where a kernel does what it may not do.
    """
    module = getattr(module, "module", module)
    with getattr(module, "operation", module).context, np.errstate(all="ignore"):
        program = Program(module, options or Options())
        results = _call_main(program, entry, inputs)
        return [_result(program.memory, kind, value) for kind, value in results]


def _call_main(program: Program, entry: str, inputs: Sequence[Any]) -> list[tuple[Kind, Any]]:
    if abi.ENTRY_ABI not in program.symbols[entry].attributes:
        block = program.symbols[entry].regions[0].blocks[0]
        return _call_entry(program, entry, list(enumerate(inputs)), range(len(list(block.operations)[-1].operands)))
    prepared = _call_described(program, abi.PREPARE, inputs, []) if abi.PREPARE in program.symbols else []
    return _call_described(program, entry, inputs, [value for _, value in prepared])


def _call_described(program: Program, name: str, inputs: Sequence[Any], prepared: Sequence[Any]) -> list[tuple[Kind, Any]]:
    """Call an entry point by the description that it carries."""
    described = abi.FunctionAbi.parse(ir.StringAttr(program.symbols[name].attributes[abi.ENTRY_ABI]).value)
    sources = {"argument": inputs, "prepared": prepared}
    given = [(value.index or 0, sources[value.source or "argument"][value.index or 0]) for value in described.inputs]
    return _call_entry(program, name, given, described.order)


def _call_entry(program: Program, name: str, given: list[tuple[int, Any]], order: Sequence[int]) -> list[tuple[Kind, Any]]:
    """Call with arguments (number of the program's argument, value); out-parameters, which come last, are made here."""
    block = program.symbols[name].regions[0].blocks[0]
    kinds = [kind_of(argument.type) for argument in block.arguments]
    if len(kinds) < len(given):
        raise Fault(f"@{name} takes {len(kinds)} arguments, {len(given)} given")
    values = [
        _argument(program.memory, kind, value, f"argument {number}")
        for kind, (number, value) in zip(kinds, given, strict=False)
    ]
    outs = [
        identity(program.memory.allocate(_bytes(kind), f"result {position} of @{name}"), kind)
        for position, kind in enumerate(kinds[len(given) :])
    ]
    returned = [kind_of(value.type) for value in list(block.operations)[-1].operands]
    results = [*outs, *program.call(name, [*values, *outs])]
    described = list(zip([*kinds[len(given) :], *returned], results, strict=True))
    return [described[position] for position in order]


def _bytes(kind: Kind) -> int:
    sizes, _, _ = kind.layout or ((), (), 0)
    return int(np.prod(sizes, dtype=int)) * (kind.element or kind).bytes


def _argument(memory: Memory, kind: Kind, given: Any, name: str) -> Any:
    if isinstance(given, tuple):  # a memref already
        return given
    if kind.element is None:
        return np.asarray(given).astype(kind.dtype)[()]
    array = _array(given)
    if array.dtype != kind.element.dtype and array.dtype.itemsize == kind.element.dtype.itemsize:
        array = np.ascontiguousarray(array).view(kind.element.dtype)  # u8 as i8
    if array.dtype != kind.element.dtype:
        raise Fault(f"{name} holds {array.dtype}, its type says {kind.element.dtype}")
    strides = [np.int64(s // array.itemsize) for s in np.empty(array.shape, array.dtype).strides]
    sizes = [np.int64(size) for size in array.shape]
    return (np.int64(_place(memory, array, name)), np.int64(0), *sizes, *strides)


def _result(memory: Memory, kind: Kind, value: Any) -> Any:
    if kind.element is None:
        return value
    shape = tuple(int(size) for size in View(value).sizes)
    if 0 in shape:
        return np.zeros(shape, kind.element.dtype)
    return memory.load(_addresses(kind, value), kind.element).reshape(shape)


def _addresses(kind: Kind, value: Any) -> Any:
    """Addresses of all elements of a memref, in order."""
    view = View(value)
    indices = [axis.reshape(-1).astype(np.int64) for axis in np.indices([int(size) for size in view.sizes])]
    return np.atleast_1d(view.address(indices, kind.element.bytes))


def run_kernel(
    module: Any,
    name: str,
    arguments: Sequence[Any],
    grid: Sequence[int],
    shared_bytes: int = 0,
    *,
    threads: Sequence[int] | int | None = None,
    options: Options | None = None,
) -> list[Any]:
    """Launch kernel ``name`` (its symbol, or ``module::symbol``) and return the arrays of ``arguments`` afterwards.

    ``arguments``: arrays (for memrefs and pointers; ``np.empty`` arrays of :func:`unwritten` count as not written), numbers,
    and :class:`TensorMap` descriptions over one of the arrays.  ``threads``: of a block; taken from ``known_block_size``
    where the kernel has it.
    """
    with getattr(module, "operation", module).context, np.errstate(all="ignore"):
        program = Program(module, options or Options())
        path = name if "::" in name else _path(program, name)
        kernel = program.kernel(path)
        kinds = [kind_of(argument.type) for argument in kernel.function.regions[0].blocks[0].arguments]
        addresses: dict[int, int] = {}
        values = [
            _kernel_argument(program.memory, kind, given, f"argument {i}", addresses)
            for i, (kind, given) in enumerate(zip(kinds, arguments, strict=False))
        ]
        if threads is None:
            threads = list(kernel.function.attributes["known_block_size"])
        block = (threads,) if isinstance(threads, int) else tuple(threads)
        run_blocks(kernel, values, _three(grid), _three(block), shared_bytes)
        return [
            program.memory.data[addresses[id(given)] :][: given.nbytes].copy().view(given.dtype).reshape(given.shape)
            if id(given) in addresses
            else given
            for given in arguments
        ]


def _three(sizes: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*sizes, 1, 1, 1)[:3]
    return int(x), int(y), int(z)


def _path(program: Program, name: str) -> str:
    for module_name, operation in program.symbols.items():
        if operation.operation.name == "gpu.module" and name in _symbols(operation):
            return f"{module_name}::{name}"
    raise KeyError(f"no kernel {name} in the module")


def unwritten(shape: Sequence[int], dtype: Any) -> np.ndarray[Any, Any]:
    """An output array for :func:`run_kernel`: reading it before it is written is a fault."""
    return np.zeros(shape, dtype).view(_Unwritten)


class _Unwritten(np.ndarray[Any, Any]):
    """Marks arrays whose contents do not count."""


def _kernel_argument(memory: Memory, kind: Kind, given: Any, name: str, addresses: dict[int, int]) -> Any:
    if isinstance(given, TensorMap):
        return given.place(memory, addresses[id(given.array)])
    if not isinstance(given, np.ndarray) or given.ndim == 0:
        return np.asarray(given).astype(kind.dtype)[()]
    if id(given) not in addresses:
        addresses[id(given)] = memory.allocate(given.nbytes, name)
        if not isinstance(given, _Unwritten):
            memory.write_array(addresses[id(given)], given)
    address = np.int64(addresses[id(given)])
    if kind.element is None:
        return address
    sizes = [np.int64(size) for size in given.shape]
    strides = [np.int64(s // given.itemsize) for s in np.empty(given.shape, given.dtype).strides]
    return (address, np.int64(0), *sizes, *strides)


# ------------------------------------------------------------------------------------------------------------------ host ops


@meaning("func.call")
def _(op: Op) -> Step:
    callee = op.attribute("callee")
    program = getattr(op.builder.resources, "program", None)
    if program is None:
        raise Unsupported(f"a call of @{callee} in a kernel")

    def step(frame: Frame) -> None:
        results = program.call(callee, [frame.env[number] for number in op.operands])
        for number, value in zip(op.results, results, strict=True):
            frame.env[number] = value

    return step


@meaning("gpu.launch_func")
def _(op: Op) -> Step:
    segments = op.segments()  # dependencies; grid, block and cluster by axis; shared memory; arguments
    dependencies, dynamic, arguments = segments[0], segments[10], segments[11]
    grid, block, cluster = ([n for group in segments[i : i + 3] for n in group] for i in (1, 4, 7))
    if dependencies or cluster:
        raise Unsupported("gpu.launch_func with dependencies or a cluster size")
    path = "::".join([part.strip().lstrip("@").strip('"') for part in op.text("kernel").split("::")])
    program = op.builder.resources.program

    def step(frame: Frame) -> None:
        env = frame.env
        sizes, threads = ([int(env[number]) for number in group] for group in (grid, block))
        shared = int(env[dynamic[0]]) if dynamic else 0
        run_blocks(program.kernel(path), [env[n] for n in arguments], _three(sizes), _three(threads), shared)

    return step


@meaning("memref.copy")
def _(op: Op) -> Step:
    source, target = op.operands
    kinds = op.operand_kinds

    def step(frame: Frame) -> None:
        places = [_addresses(kind, frame.env[number]) for kind, number in zip(kinds, (source, target), strict=True)]
        frame.unit.memory.copy(*places, kinds[0].element.bytes)

    return step


@meaning("builtin.unrealized_conversion_cast")
def _(op: Op) -> Step:
    (source,), (result,) = op.operands, op.results
    (kind,), target = op.operand_kinds, op.kind
    layout = op.operation.attributes.get(TENSOR_MAP)

    def step(frame: Frame) -> None:
        value = frame.env[source]
        if kind.element is None or target.element is not None:
            frame.env[result] = value
            return
        address = value[0] + value[1] * kind.element.bytes
        if layout is not None:
            sizes = value[2 : 2 + (len(value) - 2) // 2]
            address = TensorMap.from_attribute(layout, sizes).place(frame.unit.memory, int(address))
        frame.env[result] = address

    return step


__all__ = ["Options", "Program", "identity", "run_kernel", "run_plan", "unwritten"]
