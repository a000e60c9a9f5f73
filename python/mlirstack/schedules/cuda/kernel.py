"""A GPU kernel being written: its parameters, its body, and the launch that takes the place of a kernel function's body.

Takes a kernel function over memrefs, leaves ``gpu.module`` with one ``gpu.func`` and, in the function, one
``gpu.launch_func``.  Emitters write the body through :class:`Kernel`: numbers (:mod:`mlirstack.schedules.cuda.values`),
memory, loops and conditions; what only some GPUs have (tensor cores, the copy engine) is in modules of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.ir.ops import walk
from mlirstack.schedules.cuda.extent import Extent, Size, host, host_number, host_size
from mlirstack.schedules.cuda.values import Bool, Float, Int, Number

TENSOR_MAP = "mlirstack.tensor_map"  # of the host cast that makes a tensor map of a memref, and of the kernel's parameter
CLUSTER = "mlirstack.cluster"  # kernel attribute: blocks of a cluster
MIN_BLOCKS = "mlirstack.min_blocks"  # kernel attribute: blocks that a multiprocessor must have room for
OVERLAPS = "mlirstack.overlaps"  # kernel attribute: it waits itself until the kernel before it is done
ALONE = "mlirstack.alone"  # kernel attribute: it starts when the kernel before it is done, and none starts before its end
SCHEDULE = "mlirstack.schedule"  # of a kernel: its emitter's name; of its function: {name = "rows", threads = 256 : i64, …}
SHARED = "shared_memory"  # symbol of the dynamic shared memory of a kernel
_DYNAMIC_INDEX = -2147483648  # LLVM dialect: this index of a getelementptr is an operand


@dataclass(frozen=True)
class TensorMapLayout:
    """How the copy engine sees a buffer; innermost dimension first, ``strides`` in bytes without the innermost.

    ``element``: "f32", "tf32", "f16", "bf16", "i8" (any one-byte type).  Strides are multiples of 16 bytes.
    With ``lower`` and ``upper`` it sees the pixels of images, dimensions (channels, spatial ones, images): a load takes
    ``box[0]`` channels of ``box[1]`` pixels in order, every ``element_strides`` one from ``lower`` to ``size - 1 + upper``
    of each spatial dimension (im2col mode).  ``varying`` (axis, dimension, factor): of this axis ``sizes`` has the most that
    its size can be, which is ``factor`` times that of a dimension of the memref.
    """

    element: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 128
    element_strides: tuple[int, ...] = ()
    l2_promotion: int = 256
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()
    varying: tuple[int, ...] = ()

    @staticmethod
    def of(attribute: Any) -> TensorMapLayout:
        """Inverse of :meth:`attribute`."""
        given = {named.name: named.attr for named in ir.DictAttr(attribute)}
        lists = {
            n: tuple(map(int, ir.DenseI64ArrayAttr(a))) for n, a in given.items() if isinstance(a, ir.DenseI64ArrayAttr)
        }
        single = {n: int(ir.IntegerAttr(given[n]).value) for n in ("swizzle", "l2_promotion")}
        return TensorMapLayout(str(ir.StringAttr(given["element"]).value), **lists, **single)  # type: ignore[arg-type]

    def attribute(self) -> Any:
        """The dictionary attribute that says so in the IR."""
        numbers = {
            name: ir.DenseI64ArrayAttr.get(list(getattr(self, name)))
            for name in ("sizes", "strides", "box", "element_strides", "lower", "upper", "varying")
        }
        i64 = ir.IntegerType.get_signless(64)
        single = {name: ir.IntegerAttr.get(i64, getattr(self, name)) for name in ("swizzle", "l2_promotion")}
        return ir.DictAttr.get({"element": ir.StringAttr.get(self.element), **numbers, **single})


class Kernel:
    """One kernel of ``function`` (a func.func over memrefs), launched where the host code of the function stands.

    ``grid`` and ``threads`` are numbers of blocks and of threads per block; ``shared_bytes`` is dynamic shared memory.
    Use: make it, add parameters, write the body inside ``with kernel.body():``, then :meth:`launch`.
    """

    def __init__(
        self,
        function: Any,
        *,
        threads: int,
        schedule: str,
        suffix: str = "",
        cluster: int = 1,
        min_blocks: int | None = None,
    ) -> None:
        self.function = function
        self.threads = threads
        self.name = ir.StringAttr(function.attributes["sym_name"]).value + suffix
        self.module_name = f"{self.name}_device"  # a symbol beside the function's own
        self.location = _main_location(function)
        self._arguments: list[Any] = []  # host values, one per parameter
        self._tensor_maps: dict[int, Any] = {}  # number of the parameter → layout, as an attribute
        self._sizes: dict[Any, Int] = {}  # memref, axis and type → the parameter that is its size
        self._name_types()
        self._create(schedule, cluster, min_blocks)

    @classmethod
    def existing(cls, function: Any, kernel: Any) -> Kernel:
        """A ``gpu.func`` that ``function`` launches already, for what a pass adds to its body."""
        made = cls.__new__(cls)
        made.function, made.kernel, made.block = function, kernel, kernel.regions[0].blocks[0]
        made.location = kernel.location
        made._name_types()
        return made

    def _name_types(self) -> None:
        self.i1, self.i8, self.i16, self.i32, self.i64 = (ir.IntegerType.get_signless(n) for n in (1, 8, 16, 32, 64))
        self.f16, self.bf16, self.f32, self.f64 = (k.get() for k in (ir.F16Type, ir.BF16Type, ir.F32Type, ir.F64Type))
        self.generic_pointer, self.global_pointer, self.shared_pointer = (
            ir.Type.parse(text) for text in ("!llvm.ptr", "!llvm.ptr<1>", "!llvm.ptr<3>")
        )

    def _create(self, schedule: str, cluster: int, min_blocks: int | None) -> None:
        gpu = dialect("gpu")
        self.function.parent.attributes["gpu.container_module"] = ir.UnitAttr.get()
        with ir.InsertionPoint(self.function), self.location:
            self.module_block = _entry_block(gpu.GPUModuleOp(self.module_name))
        with ir.InsertionPoint(self.module_block), self.location:
            self.kernel = gpu.GPUFuncOp(ir.TypeAttr.get(ir.FunctionType.get([], [])), self.name, kernel=True)
            self.block = _entry_block(self.kernel)
        attributes = self.kernel.attributes
        attributes["known_block_size"] = ir.DenseI32ArrayAttr.get([self.threads, 1, 1])
        attributes[SCHEDULE] = ir.StringAttr.get(schedule)
        if cluster > 1:
            attributes[CLUSTER] = ir.IntegerAttr.get(self.i64, cluster)
        if min_blocks:
            attributes[MIN_BLOCKS] = ir.IntegerAttr.get(self.i64, min_blocks)

    def run_alone(self) -> None:
        """No blocks of other kernels beside its own: see :mod:`mlirstack.passes.cuda.overlap`."""
        self.kernel.attributes[ALONE] = ir.UnitAttr.get()

    # -------------------------------------------------------------------------------------------------------- parameters

    def pointer(self, memref: Any) -> Any:
        """A parameter: the address of a host memref, as a pointer to global memory (``!llvm.ptr<1>``)."""
        with ir.InsertionPoint(self.block), self.location:
            return dialect("llvm").AddrSpaceCastOp(self.global_pointer, self._parameter(self._host_cast(memref))).result

    def tensor_map(self, memref: Any, layout: TensorMapLayout) -> Any:
        """A parameter: a tensor map over a host memref (``!llvm.ptr`` to a ``__grid_constant__`` object)."""
        cast = self._host_cast(memref)
        cast.owner.attributes[TENSOR_MAP] = self._tensor_maps[len(self._arguments)] = layout.attribute()
        return self._parameter(cast)

    def scalar(self, value: Any) -> Any:
        """A parameter: a host value of type i32, i64, index, f32 or f64."""
        return self._parameter(value)

    def number(self, size: Size, kind: Any = None) -> Number:
        """A size: as it is where it is known, else what is made of a parameter, of MLIR type ``kind`` (i32 unless given)."""
        if not isinstance(size, Extent):
            return size
        kind = kind or self.i32
        key = (size.value, size.axis, kind)
        if key not in self._sizes:
            index = host_size(self.function, size.value, size.axis)
            with self._host():
                passed = dialect("arith").IndexCastOp(kind, index).result
            self._sizes[key] = Int(self._parameter(passed))
        return (self._sizes[key] * size.factor + (size.unit - 1)) // size.unit * size.count

    def opaque(self, value: int) -> Int:
        """A parameter: a constant (i32) that the kernel's compiler does not know, so that it unrolls no loop over it."""
        with self._host():
            constant = dialect("arith").ConstantOp(self.i32, value).result
        return Int(self._parameter(constant))

    def _host_cast(self, memref: Any) -> Any:
        with self._host():
            return dialect("builtin").UnrealizedConversionCastOp([self.generic_pointer], [memref]).results[0]

    def _parameter(self, host_value: Any) -> Any:
        self._arguments.append(host_value)
        return self.block.add_argument(host_value.type, self.location)

    def _host(self) -> Any:
        """Where host code goes."""
        return _at(host(self.function), self.location)

    # -------------------------------------------------------------------------------------------------------------- body

    @contextmanager
    def body(self) -> Iterator[None]:
        """Ops made inside go to the end of the kernel; the return is added at the end."""
        with ir.InsertionPoint(self.block), self.location:
            yield
            dialect("gpu").ReturnOp([])

    def launch(self, grid: Sequence[Any], *, shared_bytes: int = 0) -> None:
        """Launch with ``grid`` blocks, up to three numbers (sizes, or host values of type index)."""
        parameters = [argument.type for argument in self.block.arguments]
        self.kernel.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(parameters, []))
        if self._tensor_maps:
            described = (
                {TENSOR_MAP: self._tensor_maps[i]} if i in self._tensor_maps else {} for i in range(len(parameters))
            )
            self.kernel.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(entry) for entry in described])
        if shared_bytes:
            self._declare_shared_memory()
        with self._host():
            sizes = [host_number(self.function, n) if isinstance(n, Size) else n for n in (*grid, 1, 1, 1)[:3]]
            block = [host_number(self.function, n) for n in (self.threads, 1, 1)]
            shared = dialect("arith").ConstantOp(self.i32, shared_bytes).result if shared_bytes else None
            dialect("gpu").LaunchFuncOp(
                [self.module_name, self.name], tuple(sizes), tuple(block), self._arguments, dynamic_shared_memory_size=shared
            )

    def _declare_shared_memory(self) -> None:
        text = (
            f"llvm.mlir.global external @{SHARED}() {{addr_space = 3 : i32, alignment = 1024 : i64}} : !llvm.array<0 x i8>"
        )
        with self.location:
            ir.InsertionPoint.at_block_begin(self.module_block).insert(ir.Operation.parse(text))

    # ----------------------------------------------------------------------------------------------------------- numbers

    def integer(self, value: int, kind: Any = None) -> Int:
        """A constant, i32 unless ``kind`` says otherwise."""
        return Int(dialect("arith").ConstantOp(kind or self.i32, value).result)

    def real(self, value: float, kind: Any = None) -> Float:
        """A constant, f32 unless ``kind`` says otherwise."""
        return Float(dialect("arith").ConstantOp(kind or self.f32, float(value)).result)

    def thread(self) -> Int:
        """Number of the thread in its block (i32)."""
        return Int(dialect("nvvm").ThreadIdXOp(results=[self.i32]).result)

    def block_index(self, axis: str = "x") -> Int:
        """Number of the block along an axis of the grid (i32)."""
        return Int(getattr(dialect("nvvm"), f"BlockId{axis.upper()}Op")(results=[self.i32]).result)

    def grid_size(self, axis: str = "x") -> Int:
        """Number of blocks along an axis (i32)."""
        return Int(getattr(dialect("nvvm"), f"GridDim{axis.upper()}Op")(results=[self.i32]).result)

    # ------------------------------------------------------------------------------------------------------------ memory

    def shared(self) -> Any:
        """The dynamic shared memory, aligned to 1024 bytes (``!llvm.ptr<3>``)."""
        return dialect("llvm").AddressOfOp(self.shared_pointer, ir.FlatSymbolRefAttr.get(SHARED)).result

    def offset(self, pointer: Any, elements: Number, element: Any = None) -> Any:
        """``pointer`` moved by a number of elements (bytes if no type is given)."""
        llvm, kind = dialect("llvm"), ir.TypeAttr.get(element or self.i8)
        if isinstance(elements, int):
            return pointer if elements == 0 else llvm.GEPOp(pointer.type, pointer, [], [elements], kind, 0).result
        return llvm.GEPOp(pointer.type, pointer, [elements.value], [_DYNAMIC_INDEX], kind, 0).result

    def load(self, kind: Any, pointer: Any, alignment: int | None = None) -> Any:
        """A value of MLIR type ``kind`` (vectors too)."""
        return dialect("llvm").LoadOp(kind, pointer, alignment=alignment).res

    def store(self, value: Any, pointer: Any, alignment: int | None = None) -> None:
        """Store an MLIR value."""
        dialect("llvm").StoreOp(getattr(value, "value", value), pointer, alignment=alignment)

    # ----------------------------------------------------------------------------------------------------------- control

    def loop(
        self, low: Number, high: Number, step: Number, carried: Sequence[Any], body: Callable[..., Sequence[Any] | None]
    ) -> list[Any]:
        """``for (i = low; i < high; i += step)``: ``body(i, *carried)`` returns the next ``carried``; returns the last ones.

        Carried values may be :class:`Int`, :class:`Float` or MLIR values, and come back as the same kind.
        """
        scf = dialect("scf")
        bounds = [self._int(n).value for n in (low, high, step)]
        loop = scf.ForOp(*bounds, [_raw(v) for v in carried])
        with ir.InsertionPoint(loop.body):
            inner = [_like(old, new) for old, new in zip(carried, loop.inner_iter_args, strict=True)]
            scf.YieldOp([_raw(v) for v in body(Int(loop.induction_variable), *inner) or ()])
        return [_like(old, new) for old, new in zip(carried, loop.results, strict=True)]

    def when(self, condition: Bool, body: Callable[[], None]) -> None:
        """``if (condition) body()``."""
        scf = dialect("scf")
        branch = scf.IfOp(condition.value)
        with ir.InsertionPoint(branch.then_block):
            body()
            scf.YieldOp([])

    def either(
        self,
        condition: Bool,
        yes: Callable[[], Sequence[Any] | None],
        no: Callable[[], Sequence[Any] | None],
        types: Sequence[Any] = (),
    ) -> list[Any]:
        """``if``/``else`` with results of MLIR ``types``; returns MLIR values."""
        scf = dialect("scf")
        branch = scf.IfOp(condition.value, list(types), has_else=True)
        for block, body in ((branch.then_block, yes), (branch.else_block, no)):
            with ir.InsertionPoint(block):
                scf.YieldOp([_raw(v) for v in body() or ()])
        return list(branch.results)

    def barrier(self) -> None:
        """All threads of the block wait for each other; what they wrote to shared memory is visible to all."""
        dialect("gpu").BarrierOp()

    def assembly(
        self, text: str, constraints: str, operands: Sequence[Any], result: Any = None, *, has_side_effects: bool = False
    ) -> Any:
        """Inline PTX: ``$0`` is the result if there is one (an MLIR type), then come the operands."""
        op = dialect("llvm").InlineAsmOp(
            result, [_raw(v) for v in operands], text, constraints, has_side_effects=has_side_effects or None
        )
        return op.res if result is not None else None

    def _int(self, number: Number) -> Int:
        return number if isinstance(number, Int) else self.integer(number)


def _raw(value: Any) -> Any:
    return value.value if isinstance(value, (Int, Float, Bool)) else value


def _like(old: Any, new: Any) -> Any:
    return type(old)(new) if isinstance(old, (Int, Float, Bool)) else new


def _main_location(function: Any) -> Any:
    """The location of the op that ``function`` is there for, the one with most loops: what an emitter writes around the
    bodies of ops (addresses, copies, barriers) comes from it."""
    loops = [(len(op.attributes["iterator_types"]), op) for op in walk(function) if "iterator_types" in op.attributes]
    return max(loops, key=lambda entry: entry[0])[1].location if loops else function.location


@contextmanager
def _at(point: Any, location: Any) -> Iterator[None]:
    with point, location:
        yield


def _entry_block(op: Any) -> Any:
    blocks = op.regions[0].blocks
    return blocks[0] if len(blocks) else blocks.append()
