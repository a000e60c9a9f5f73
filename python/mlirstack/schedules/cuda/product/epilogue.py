"""What comes after a matrix product, on accumulators in registers: the steps of a :class:`Product`, run by run.

A run is a few accumulators of adjacent columns of one row.  Extra operands are loaded as wide as layout and edges allow,
row vectors and column vectors once per tile; every step is computed in the order and with the roundings of the IR.  Shared
by all matrix-product emitters and by convolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlirstack.bindings import dialect, ir
from mlirstack.passes import functions
from mlirstack.schedules.cuda.extent import is_multiple
from mlirstack.schedules.cuda.graph import Tensor
from mlirstack.schedules.cuda.instructions import vectors
from mlirstack.schedules.cuda.instructions.approximate import Approximation
from mlirstack.schedules.cuda.kernel import Kernel
from mlirstack.schedules.cuda.product.access import Access, Digits
from mlirstack.schedules.cuda.product.contraction import PRODUCT, SECOND, Product, Result, Source, Step
from mlirstack.schedules.cuda.values import Bool, Float, Int, Number

_MAX_OFFSET = 2**31  # elements that a 32-bit offset reaches


class Epilogue:
    """The steps of ``contraction`` in ``kernel``; made before the kernel's body, because it adds parameters.

    ``tile_rows``, ``tile_columns``: a tile never begins beyond the edge, and where these sizes divide those of the result,
    accesses need no bounds checks.  ``stores``: numbers of the outputs that :meth:`Tile.store` will write.
    """

    def __init__(
        self,
        kernel: Kernel,
        contraction: Product,
        *,
        tile_rows: int,
        tile_columns: int,
        stores: Sequence[int] | None = None,
    ) -> None:
        self.kernel = kernel
        self.contraction = contraction
        self.whole_rows = is_multiple(contraction.row_points, tile_rows)
        self.whole_columns = contraction.n % tile_columns == 0
        numbers = range(len(contraction.outputs)) if stores is None else stores
        written = [contraction.outputs[number].access for number in numbers]
        self._pointers: dict[Tensor, Any] = {}
        for access in (*contraction.extra_operands, *written):
            if access.tensor not in self._pointers:
                self._pointers[access.tensor] = kernel.pointer(access.tensor.value)
        self._approximations = [Approximation(kernel, step.node) for step in contraction.steps]

    def tile(self, batch: Int | None = None) -> Tile:
        """A tile of product number ``batch`` (i32; None where there is only one).

        Loads are shared between the runs of a tile: all calls on it must stand in one block of the IR or in blocks inside
        of the one that made the first of them.
        """
        return Tile(self, batch)

    def pointer(self, tensor: Tensor) -> Any:
        """The parameter that points to a tensor."""
        return self._pointers[tensor]

    def result_types(self) -> list[Any]:
        """The MLIR type of each output's elements."""
        return [output.access.tensor.element for output in self.contraction.outputs]

    def approximation(self, step: int) -> Approximation:
        """How the body of a step is written."""
        return self._approximations[step]


class Tile:
    """The epilogue of one tile; see :meth:`Epilogue.tile`."""

    def __init__(self, epilogue: Epilogue, batch: Int | None) -> None:
        self._epilogue = epilogue
        self._kernel = epilogue.kernel
        self._contraction = epilogue.contraction
        self._batch = batch
        self._parts: dict[Any, Int] = {}  # (digits, index) → offset; values hold their keys' Int objects alive
        self._loads: dict[Any, list[Any]] = {}
        self._constants: dict[Any, Any] = {}
        self._axes: list[Int] | None = None

    def apply(self, accumulators: Sequence[Any], row: Int, column: Int) -> list[list[Any]]:
        """Per output, the MLIR values for the columns ``column``, ``column + 1``, … of ``row`` (i32).

        ``accumulators``: MLIR values or :class:`Float`, f32 (f64, or i32 for integers), or of two products a tuple of both;
        their number, 1, 2, 4 or 8, divides ``column``.  Rows and columns beyond the edge give values that mean nothing;
        nothing beyond the edge is read.
        """
        count = len(accumulators)
        values: dict[Result, list[Any]] = {}
        if isinstance(accumulators[0], tuple):
            accumulators, second = zip(*accumulators, strict=True)
            values[SECOND] = [self._product(getattr(a, "value", a), None) for a in second]
        initial = self._source(self._contraction.initial, values, row, column, count)
        values[PRODUCT] = [
            self._product(getattr(a, "value", a), start) for a, start in zip(accumulators, initial, strict=True)
        ]
        for number, step in enumerate(self._contraction.steps):
            self._evaluate(number, step, values, row, column, count)
            if self._contraction.initial == Result(number):
                values[PRODUCT] = [
                    self._product(getattr(a, "value", a), start)
                    for a, start in zip(accumulators, values[Result(number)], strict=True)
                ]
        return [values[output.value] for output in self._contraction.outputs]

    def prefetch(self, row: Int, column: Int, count: int) -> None:
        """Load what :meth:`apply` will read for the same run (the same ``row`` and ``column`` objects).

        A thread waits at the first use of a load, and no load moves above a store or a barrier: where these stand between
        runs, loading several runs ahead waits once instead of once per run.
        """
        for access in self._contraction.extra_operands:
            self._load(access, row, column, count)

    def store(self, output: int, values: Sequence[Any], row: Int, column: Int) -> None:
        """Write a run of an output that :meth:`apply` gave; what lies beyond the edge is left out."""
        access = self._contraction.outputs[output].access
        whole = self._whole_run(access, len(values))
        self._offset(access, row, column)  # what several runs share is computed out here, not under a condition
        inside = self._inside_row(row)
        if whole and not self._epilogue.whole_columns:
            inside = _both(inside, column < self._contraction.n)

        def write() -> None:
            if whole:
                self._store_run(access, values, row, column)
                return
            for position, value in enumerate(values):
                place = column + position

                def one(value: Any = value, place: Int = place) -> None:
                    vectors.store(self._kernel, [value], self._address(access, row, place))

                if self._epilogue.whole_columns:
                    one()
                else:
                    self._kernel.when(place < self._contraction.n, one)

        if inside is None:
            write()
        else:
            self._kernel.when(inside, write)

    def address(self, output: int, row: Int, column: Int) -> Any:
        """Where an element of an output lies; those of the columns after it follow."""
        return self._address(self._contraction.outputs[output].access, row, column)

    # ------------------------------------------------------------------------------------------------------------- steps

    def _product(self, accumulator: Any, start: Any) -> Any:
        """``scale * accumulator + start`` in the type that the sum has in the IR."""
        arith, kind = dialect("arith"), self._contraction.accumulator
        if isinstance(accumulator.type, ir.IntegerType):
            if kind.width > accumulator.type.width:
                accumulator = arith.ExtSIOp(kind, accumulator).result
            return accumulator if start is None else arith.AddIOp(accumulator, start).result
        value = Float(accumulator)
        if self._contraction.scale != 1.0:
            value = value * self._contraction.scale
        if start is not None:
            value = value + Float(start).to(value.type)
        return value.to(kind).value

    def _evaluate(self, number: int, step: Step, values: dict[Result, list[Any]], row: Int, column: Int, count: int) -> None:
        sources = [self._source(source, values, row, column, count) for source in step.sources]
        results: list[list[Any]] = []
        needs_index = "linalg.index" in step.node.body_ops()
        for position in range(count):
            indices = self._indices(step, row, column + position) if needs_index else ()
            scalars = [source[position] for source in sources]
            results.append(step.node.inline(scalars, indices, replace=self._epilogue.approximation(number)))
        for output, run in enumerate(zip(*results, strict=True)):
            values[Result(number, output)] = list(run)

    def _source(self, source: Source, values: dict[Result, list[Any]], row: Int, column: Int, count: int) -> list[Any]:
        """``count`` values of a source; None where there is nothing to read."""
        if source is None:
            return [None] * count
        if isinstance(source, Result):
            return values.get(source, [None] * count)
        if isinstance(source, Access):
            return self._load(source, row, column, count)
        if source not in self._constants:
            producer = functions.defining_op(source)
            assert producer is not None
            self._constants[source] = producer.clone().operation.results[0]
        return [self._constants[source]] * count

    def _indices(self, step: Step, row: Int, column: Int) -> list[Any]:
        kernel = self._kernel
        found = [kernel.integer(0) if p is None else self._offset(p, row, column) for p in step.positions]
        return [index.index() for index in found]

    # ------------------------------------------------------------------------------------------------------------ memory

    def _load(self, access: Access, row: Int, column: Int, count: int) -> list[Any]:
        key = (access, row if access.rows else None, column if access.columns else None)
        if key not in self._loads:
            self._loads[key] = self._load_run(access, self._clamped_row(row), column, count)
        return self._loads[key]

    def _load_run(self, access: Access, row: Int, column: Int, count: int) -> list[Any]:
        element, n = access.tensor.element, self._contraction.n
        if not access.columns:
            return vectors.load(self._kernel, element, self._address(access, row, column)) * count
        if not self._whole_run(access, count):
            places = [self._clamped(column + i, n - 1, self._epilogue.whole_columns) for i in range(count)]
            return [vectors.load(self._kernel, element, self._address(access, row, place))[0] for place in places]
        address = self._address(access, row, self._clamped(column, n - count, self._epilogue.whole_columns))
        width = min(count, vectors.elements_per_access(element))
        pieces = [self._kernel.offset(address, i, vectors.storage_type(element)) for i in range(0, count, width)]
        return [value for piece in pieces for value in vectors.load(self._kernel, element, piece, width)]

    def _store_run(self, access: Access, values: Sequence[Any], row: Int, column: Int) -> None:
        element = access.tensor.element
        address = self._address(access, row, column)
        width = min(len(values), vectors.elements_per_access(element))
        for first in range(0, len(values), width):
            piece = self._kernel.offset(address, first, vectors.storage_type(element))
            vectors.store(self._kernel, values[first : first + width], piece)

    def _whole_run(self, access: Access, count: int) -> bool:
        """Is a run of ``count`` columns contiguous, aligned to its size, and never cut by the edge?"""
        n = self._contraction.n
        others = [digit.stride for digits in (access.rows, *access.batches) for digit in digits]
        return access.column_stride(n) == 1 and n % count == 0 and all(stride % count == 0 for stride in others)

    def _address(self, access: Access, row: Int, column: Int) -> Any:
        element = vectors.storage_type(access.tensor.element)
        return self._kernel.offset(self._epilogue.pointer(access.tensor), self._offset(access, row, column), element)

    def _offset(self, access: Access, row: Int, column: Int) -> Int:
        wide = access.tensor.count >= _MAX_OFFSET
        sizes = self._contraction
        axes = zip(access.batches, self._batch_axes(), sizes.batches, strict=True)
        parts = [self._part(digits, axis, size, wide) for digits, axis, size in axes]
        parts += [self._part(access.rows, row, sizes.m, wide), self._part(access.columns, column, sizes.n, wide)]
        present = [part for part in parts if part is not None]
        if not present:
            return self._kernel.integer(0, self._kernel.i64 if wide else None)
        total = present[0]
        for part in present[1:]:
            total = total + part
        return total

    def _part(self, digits: Digits, index: Int, size: int, wide: bool) -> Int | None:
        """What one index, below ``size``, adds to an offset, in elements."""
        if not digits:
            return None
        key = (digits, index, wide)
        if key not in self._parts:
            terms = []
            for digit in digits:
                value = index // digit.divisor
                if digit.divisor * digit.size < size:  # else the digit is bounded by the index itself
                    value = value % digit.size
                terms.append((value.wide() if wide else value) * digit.stride)
            total = terms[0]
            for term in terms[1:]:
                total = total + term
            self._parts[key] = total
        return self._parts[key]

    def _batch_axes(self) -> list[Int]:
        """The index along each batch axis."""
        if self._axes is None:
            sizes, rest, axes = self._contraction.batches, self._batch, list[Int]()
            for position in reversed(range(len(sizes))):
                assert rest is not None
                axes.insert(0, rest % sizes[position] if position else rest)
                rest = rest // sizes[position]
            self._axes = axes
        return self._axes

    # ------------------------------------------------------------------------------------------------------------- edges

    def _inside_row(self, row: Int) -> Bool | None:
        return None if self._epilogue.whole_rows else row < self._kernel.number(self._contraction.row_points)

    def _clamped_row(self, row: Int) -> Int:
        key = ("row", row)
        if key not in self._parts:
            last = self._kernel.number(self._contraction.row_points) - 1
            self._parts[key] = self._clamped(row, last, self._epilogue.whole_rows)
        return self._parts[key]

    def _clamped(self, index: Int, last: Number, whole: bool) -> Int:
        return index if whole else index.minimum(last)


def pack_pair(kernel: Kernel, low: Any, high: Any) -> Int:
    """Two values of a 16-bit type in one 32-bit register, ``low`` in the low half.

    Where both were just rounded from f32, they are rounded together: one instruction instead of three.
    """
    vector = ir.VectorType.get([2], low.type)
    producers = [functions.defining_op(value) for value in (low, high)]
    rounded = [p.operands[0] for p in producers if p is not None and p.name == "arith.truncf"]
    arith, vec = dialect("arith"), dialect("vector")
    if len(rounded) == 2 and all(value.type == kernel.f32 for value in rounded):
        pair = arith.TruncFOp(vector, vec.FromElementsOp(ir.VectorType.get([2], kernel.f32), rounded).result).result
    else:
        pair = vec.FromElementsOp(vector, [low, high]).result
    return Int(dialect("llvm").BitcastOp(kernel.i32, pair).res)


def _both(first: Bool | None, second: Bool) -> Bool:
    return second if first is None else first & second
