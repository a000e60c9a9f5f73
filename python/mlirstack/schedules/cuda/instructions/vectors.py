"""Vector accesses: neighbouring elements of any dtype between registers and memory, at most 16 bytes an instruction.

A kernel computes on scalars; what is one access is a vector only here.  Pointers are ``!llvm.ptr<1>`` (global) or
``!llvm.ptr<3>`` (shared).  Booleans take a byte in memory, as torch has them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from mlirstack.bindings import dialect, ir
from mlirstack.passes import functions
from mlirstack.schedules.cuda.values import Bool, Int, Number

if TYPE_CHECKING:
    from mlirstack.schedules.cuda.kernel import Kernel

ACCESS_BYTES = 16  # the widest access of a thread


class Cache(Enum):
    """How an access to memory treats the caches; to shared memory there are NORMAL and PINNED ones.

    All but NORMAL keep their place in the program, whole; the compiler may move NORMAL ones and take them apart.
    """

    NORMAL = "normal"
    PINNED = "pinned"  # the usual caches
    STREAM = "stream"  # read or written once: first to be evicted
    NO_L1 = "no_l1"  # takes no room in the L1 cache

    @property
    def suffix(self) -> str:
        """What it is called in PTX."""
        return {Cache.STREAM: ".cs", Cache.NO_L1: ".L1::no_allocate"}.get(self, "")


def storage_type(element: Any) -> Any:
    """The MLIR type of an element in memory: i8 for i1, i64 for index, ``element`` itself otherwise."""
    if isinstance(element, ir.IndexType):
        return ir.IntegerType.get_signless(64)
    return ir.IntegerType.get_signless(8) if element == ir.IntegerType.get_signless(1) else element


def bytes_of(element: Any) -> int:
    """Size of an element in memory."""
    return int(storage_type(element).width) // 8


def elements_per_access(element: Any) -> int:
    """How many elements 16 bytes hold."""
    return ACCESS_BYTES // bytes_of(element)


def load(kernel: Kernel, element: Any, pointer: Any, count: int = 1, *, cache: Cache = Cache.NORMAL) -> list[Any]:
    """``count`` neighbouring elements, as scalars of type ``element``; ``pointer`` is aligned to the whole access.

    ``count`` times the size of an element is 1, 2, 4, 8 or 16 bytes.  With a cache hint the access keeps its place among
    the other hinted ones; without, the compiler may move it.
    """
    stored = storage_type(element)
    size = _access_size(stored, count)
    if cache is Cache.NORMAL:
        kind = stored if count == 1 else ir.VectorType.get([count], stored)
        elements = _split(kernel.load(kind, pointer, size), count)
    else:
        elements = _load_words(kernel, stored, pointer, size, cache)
    return [_from_storage(element, value) for value in elements]


def store(kernel: Kernel, values: Sequence[Any], pointer: Any, *, cache: Cache = Cache.NORMAL) -> None:
    """Inverse of :func:`load`: MLIR scalars of one type to neighbouring elements, in one access."""
    stored = [_to_storage(getattr(value, "value", value)) for value in values]
    size = _access_size(stored[0].type, len(stored))
    if cache is Cache.NORMAL:
        kernel.store(_join(_rounded_in_pairs(kernel, stored) or stored), pointer, size)
    else:
        _store_words(kernel, _rounded_in_pairs(kernel, stored) or stored, pointer, size, cache)


def load_some(
    kernel: Kernel, element: Any, pointer: Any, count: int, valid: Number, otherwise: Any, *, cache: Cache = Cache.NORMAL
) -> list[Any]:
    """The first ``valid`` of ``count`` elements, one access each; ``otherwise`` (an MLIR scalar) for the rest.

    Needs no more alignment than one element has.
    """
    return [
        value
        for position in range(count)
        for value in _guarded_load(kernel, element, pointer, position, valid, otherwise, cache)
    ]


def store_some(kernel: Kernel, values: Sequence[Any], pointer: Any, valid: Number, *, cache: Cache = Cache.NORMAL) -> None:
    """Store the first ``valid`` of ``values``, one access each."""
    for position, value in enumerate(values):
        raw = getattr(value, "value", value)
        place = kernel.offset(pointer, position, storage_type(raw.type))

        def write(raw: Any = raw, place: Any = place) -> None:
            store(kernel, [raw], place, cache=cache)

        _guard(kernel, position, valid, write)


def either(
    kernel: Kernel,
    condition: Bool,
    yes: Callable[[], Sequence[Sequence[Any]]],
    no: Callable[[], Sequence[Sequence[Any]]],
    vectors: Sequence[tuple[Any, int]],
) -> list[list[Any]]:
    """:meth:`Kernel.either` with vectors as results, of an element type and so many elements each.

    Elements of less than 32 bits share registers on the way; LLVM would give each one of its own.
    """
    word = ir.IntegerType.get_signless(32)
    each = [_elements_per_register(element, count) for element, count in vectors]
    types = [
        word if share > 1 else element
        for (element, count), share in zip(vectors, each, strict=True)
        for _ in range(count // share)
    ]

    def shared(found: Sequence[Sequence[Any]]) -> list[Any]:
        return [
            values[i] if share == 1 else _pack(values[i : i + share], word)
            for values, share in zip(found, each, strict=True)
            for i in range(0, len(values), share)
        ]

    rest = iter(kernel.either(condition, lambda: shared(yes()), lambda: shared(no()), types))
    taken = [[next(rest) for _ in range(count // share)] for (_, count), share in zip(vectors, each, strict=True)]
    return [
        registers if share == 1 else [value for register in registers for value in _unpack(register, element, 32)]
        for registers, (element, _), share in zip(taken, vectors, each, strict=True)
    ]


def _elements_per_register(element: Any, count: int) -> int:
    each = 1 if isinstance(element, ir.IndexType) or element.width not in (8, 16) else 32 // int(element.width)
    return each if count % each == 0 else 1


def aligned(kernel: Kernel, pointers: Sequence[Any], size: int = ACCESS_BYTES) -> Bool:
    """Are all of these global pointers multiples of ``size`` bytes (a power of two)?

    Arguments may be slices of larger tensors: only buffers that the compiler laid out itself are sure to be aligned.
    """
    llvm = dialect("llvm")
    bits = kernel.integer(0, kernel.i64)
    for pointer in pointers:
        bits = bits | Int(llvm.PtrToIntOp(kernel.i64, pointer).res)
    return (bits & (size - 1)).equals(0)


def largest_access(element: Any, count: int) -> int:
    """The most elements that one access can take so that ``count`` is a multiple of it: a power of two."""
    number = elements_per_access(element)
    while count % number:
        number //= 2
    return number


# ------------------------------------------------------------------------------------------------------------ single pieces


def _access_size(stored: Any, count: int) -> int:
    size = int(stored.width) // 8 * count
    assert size in (1, 2, 4, 8, 16), f"no access of {size} bytes"
    return size


def _guarded_load(
    kernel: Kernel, element: Any, pointer: Any, position: int, valid: Number, otherwise: Any, cache: Cache
) -> list[Any]:
    def read() -> list[Any]:
        return load(kernel, element, kernel.offset(pointer, position, storage_type(element)), cache=cache)

    if isinstance(valid, int):
        return read() if position < valid else [otherwise]
    return kernel.either(valid > position, read, lambda: [otherwise], [element])


def _guard(kernel: Kernel, position: int, valid: Number, write: Callable[[], None]) -> None:
    if not isinstance(valid, int):
        kernel.when(valid > position, write)
    elif position < valid:
        write()


def _from_storage(element: Any, value: Any) -> Any:
    arith = dialect("arith")
    if isinstance(element, ir.IndexType):
        return arith.IndexCastOp(element, value).result
    if element == value.type:
        return value
    zero = arith.ConstantOp(value.type, 0).result
    return arith.CmpIOp(arith.CmpIPredicate.ne, value, zero).result


def _to_storage(value: Any) -> Any:
    arith, stored = dialect("arith"), storage_type(value.type)
    if isinstance(value.type, ir.IndexType):
        return arith.IndexCastOp(stored, value).result
    return value if value.type == stored else arith.ExtUIOp(stored, value).result


def _split(value: Any, count: int) -> list[Any]:
    return [value] if count == 1 else list(dialect("vector").ToElementsOp(value).results)


def _join(values: Sequence[Any]) -> Any:
    if len(values) == 1:
        return values[0]
    kind = ir.VectorType.get([len(values)], values[0].type)
    return dialect("vector").FromElementsOp(kind, list(values)).result


def _rounded_in_pairs(kernel: Kernel, values: Sequence[Any]) -> list[Any]:
    """Neighbours that were rounded from f32 to 16 bits, rounded anew two by two (one instruction in the place of three);
    empty for all other values.

    LLVM has that instruction, but finds it only where the roundings stand beside the access.
    """
    kinds = {kernel.f16: "f16x2", kernel.bf16: "bf16x2"}
    name = kinds.get(values[0].type)
    producers = [functions.defining_op(value) for value in values]
    wide = [op.operands[0] for op in producers if op is not None and op.name == "arith.truncf"]
    if name is None or len(values) % 2 or len(wide) < len(values) or any(value.type != kernel.f32 for value in wide):
        return []
    pairs = zip(wide[::2], wide[1::2], strict=True)
    return [kernel.assembly(f"cvt.rn.{name}.f32 $0, $1, $2;", "=r,f,f", [high, low], kernel.i32) for low, high in pairs]


# ----------------------------------------------------------------------------------------------- accesses with cache hints


def _word(kernel: Kernel, stored: Any, size: int) -> tuple[Any, str, str]:
    """The register that an access of ``size`` bytes is made of: MLIR type, constraint and PTX type."""
    bits = max(int(stored.width), min(32, size * 8))
    constraint, name = {8: ("h", "b8"), 16: ("h", "b16"), 32: ("r", "b32"), 64: ("l", "b64")}[bits]
    return ir.IntegerType.get_signless(max(16, bits)), constraint, name


def _load_words(kernel: Kernel, stored: Any, pointer: Any, size: int, cache: Cache) -> list[Any]:
    llvm = dialect("llvm")
    word, constraint, name = _word(kernel, stored, size)
    count = max(1, size * 8 // word.width)
    registers = ", ".join(f"${i}" for i in range(count))
    registers, shape = (f"{{{registers}}}", f".v{count}") if count > 1 else (registers, "")
    is_shared = pointer.type == kernel.shared_pointer
    text = f"ld.{'shared' if is_shared else 'global'}{cache.suffix}{shape}.{name} {registers}, [${count}];"
    address = llvm.PtrToIntOp(kernel.i32, pointer).res if is_shared else pointer
    kind = ir.Type.parse(f"!llvm.struct<({', '.join([str(word)] * count)})>") if count > 1 else word
    constraints = f"={constraint}," * count + ("r" if is_shared else "l")
    loaded = kernel.assembly(text, constraints, [address], kind, has_side_effects=True)
    words = [loaded]
    if count > 1:
        words = [llvm.ExtractValueOp(word, loaded, ir.DenseI64ArrayAttr.get([i])).res for i in range(count)]
    return [element for value in words for element in _unpack(value, stored, min(size * 8, word.width))]


def _store_words(kernel: Kernel, stored: Sequence[Any], pointer: Any, size: int, cache: Cache) -> None:
    word, constraint, name = _word(kernel, stored[0].type, size)
    each = max(1, min(size * 8, word.width) // stored[0].type.width)
    words = [_pack(stored[i : i + each], word) for i in range(0, len(stored), each)]
    registers = ", ".join(f"${i + 1}" for i in range(len(words)))
    registers, shape = (f"{{{registers}}}", f".v{len(words)}") if len(words) > 1 else (registers, "")
    text = f"st.global{cache.suffix}{shape}.{name} [$0], {registers};"
    kernel.assembly(text, "l" + f",{constraint}" * len(words), [pointer, *words], has_side_effects=True)


def _unpack(word: Any, stored: Any, bits: int) -> list[Any]:
    """The elements of type ``stored`` in the low ``bits`` of a register."""
    llvm, arith, count = dialect("llvm"), dialect("arith"), bits // int(stored.width)
    if bits < word.type.width:
        word = arith.TruncIOp(ir.IntegerType.get_signless(bits), word).result
    if count == 1:
        return [word if stored == word.type else arith.BitcastOp(stored, word).result]
    return _split(llvm.BitcastOp(ir.VectorType.get([count], stored), word).res, count)


def shared_register(element: Any) -> tuple[Any, int] | None:
    """The register (i32) that an element came from, and its number in it; None where it has not been one of several."""
    split = functions.defining_op(element)
    if split is None or split.name != "vector.to_elements":
        return None
    cast = functions.defining_op(split.operands[0])
    if cast is None or cast.name != "llvm.bitcast" or cast.operands[0].type != ir.IntegerType.get_signless(32):
        return None
    return cast.operands[0], ir.OpResult(element).result_number


def _pack(values: Sequence[Any], word: Any) -> Any:
    llvm, arith = dialect("llvm"), dialect("arith")
    value = values[0]
    if len(values) > 1:
        bits = int(value.type.width) * len(values)
        value = llvm.BitcastOp(ir.IntegerType.get_signless(bits), _join(values)).res
    elif not isinstance(value.type, ir.IntegerType):
        value = arith.BitcastOp(ir.IntegerType.get_signless(value.type.width), value).result
    return value if value.type == word else arith.ExtUIOp(word, value).result
