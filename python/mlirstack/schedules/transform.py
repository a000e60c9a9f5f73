"""Writes transform-dialect schedules: a :class:`Script` is filled by typed Python functions and printed as a module.

One method per transform op that mlirstack uses; each takes and returns :class:`Handle` values, so a schedule reads from top
to bottom like the text it becomes.  Nothing here knows a target.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

ANY = "!transform.any_op"
TAG = "mlirstack.op"


@dataclass(frozen=True)
class Handle:
    """A transform-dialect value that stands for operations of the payload."""

    name: str
    type: str = ANY

    def __str__(self) -> str:
        return self.name


def _list(values: Sequence[int]) -> str:
    return "[" + ", ".join(str(v) for v in values) + "]"


class Script:
    """Collects the lines of one ``@__transform_main``; ``root`` is the payload module."""

    def __init__(self) -> None:
        self.root = Handle("%module")
        self._lines: list[str] = []
        self._count: dict[str, int] = {}
        self._indent = 2

    @property
    def empty(self) -> bool:
        """Has nothing been written yet?"""
        return not self._lines

    def text(self) -> str:
        """The schedule as a module."""
        body = "\n".join(self._lines)
        return (
            "module attributes {transform.with_named_sequence} {\n"
            f"  transform.named_sequence @__transform_main({self.root}: {ANY}) {{\n{body}\n"
            "    transform.yield\n  }\n}\n"
        )

    def comment(self, text: str) -> None:
        """A line for whoever reads the dump."""
        self._emit(f"// {text}")

    # -------------------------------------------------------------------------------------------------------- matching

    def function(self, symbol: str) -> Handle:
        """The func.func named ``symbol``."""
        return self._one(
            "fn", f'transform.structured.match ops{{["func.func"]}} attributes {{sym_name = "{symbol}"}} in {self.root}', ANY
        )

    def linalg_ops(self, inside: Handle, count: int) -> tuple[Handle, ...]:
        """The ``count`` structured linalg ops below ``inside``, in the order of ``schedules.linalg_ops.linalg_ops``."""
        return self.split_handle(self._match("interface{LinalgOp}", inside), count)

    def named(self, inside: Handle, *ops: str) -> Handle:
        """All ops below ``inside`` that have one of these names."""
        names = ", ".join(f'"{op}"' for op in ops)
        return self._match(f"ops{{[{names}]}}", inside)

    def tagged(self, inside: Handle, tag: str) -> Handle:
        """All ops below ``inside`` that :meth:`tag` marked with ``tag`` (tiling hands the mark on to the tiled op)."""
        return self._match(f'attributes {{{TAG} = "{tag}"}}', inside)

    def loops(self, inside: Handle) -> Handle:
        """All loops below ``inside``."""
        return self._match("interface{LoopLikeInterface}", inside)

    def split_handle(self, handle: Handle, count: int) -> tuple[Handle, ...]:
        """One handle for each of the ``count`` ops of ``handle``."""
        if count == 1:
            return (handle,)
        name = self._fresh("op")
        self._emit(f"{name}:{count} = transform.split_handle {handle} : ({ANY}) -> ({', '.join([ANY] * count)})")
        return tuple(Handle(f"{name}#{i}") for i in range(count))

    def producer(self, op: Handle, operand: int, op_name: str | None = None) -> Handle:
        """What defines operand ``operand`` of ``op``; ``op_name`` narrows the type of the handle."""
        kind = f'!transform.op<"{op_name}">' if op_name else ANY
        line = f"transform.get_producer_of_operand {op}[{operand}] : ({op.type}) -> {kind}"
        return self._one("producer", line, kind, typed=True)

    def tag(self, op: Handle, tag: str) -> None:
        """Mark ``op`` so that :meth:`tagged` finds it, and what it is tiled into, again."""
        value = self._fresh("tag")
        self._emit(f'{value} = transform.param.constant "{tag}" -> !transform.any_param')
        self._emit(f'transform.annotate {op} "{TAG}" = {value} : {op.type}, !transform.any_param')

    # ---------------------------------------------------------------------------------------------------------- tiling

    def tile(self, op: Handle, sizes: Sequence[int], interchange: Sequence[int] = ()) -> Handle:
        """Tile with scf.for loops, one for each non-zero size; all zero: no loop.  Returns the tiled op."""
        loops = sum(size != 0 for size in sizes)
        if not loops:
            return op
        order = f" interchange = {_list(interchange)}" if interchange else ""
        name = self._fresh("tiled")
        self._emit(
            f"{name}, {self._fresh('loop')}:{loops} = transform.structured.tile_using_for {op} tile_sizes {_list(sizes)}"
            f"{order} : ({op.type}) -> ({', '.join([ANY] * (loops + 1))})"
        )
        return Handle(name)

    def fuse(self, op: Handle, sizes: Sequence[int]) -> Handle:
        """Tile ``op`` and fuse its producers into the loops, as far as they tile; returns the outermost loop."""
        loops = sum(size != 0 for size in sizes)
        name = self._fresh("loop")
        self._emit(
            f"{self._fresh('tiled')}, {name}:{loops} = transform.structured.fuse {op} tile_sizes {_list(sizes)}"
            f" {{apply_cleanup}} : ({op.type}) -> ({', '.join([ANY] * (loops + 1))})"
        )
        return Handle(f"{name}#0" if loops > 1 else name)

    def fuse_parallel(self, op: Handle, sizes: Sequence[int]) -> None:
        """Tile ``op`` with one ``scf.forall`` and fuse its producers into it, as far as they tile."""
        self._emit(
            f"{self._fresh('tiled')}, {self._fresh('loop')} = transform.structured.fuse {op} tile_sizes {_list(sizes)}"
            f" {{apply_cleanup, use_forall}} : ({op.type}) -> ({ANY}, {ANY})"
        )

    def tile_reduction(self, op: Handle, sizes: Sequence[int]) -> tuple[Handle, Handle, Handle]:
        """Tile reduction loops, keeping one partial result for each point of the tile.

        Returns the op that fills the partial results, the tiled op, and the op that combines the partial results.
        """
        name = self._fresh("reduced")
        self._emit(
            f"{name}:3, {self._fresh('loop')} = transform.structured.tile_reduction_using_for {op}"
            f" by tile_sizes = {_list(sizes)} : ({op.type}) -> ({', '.join([ANY] * 4)})"
        )
        return Handle(f"{name}#0"), Handle(f"{name}#1"), Handle(f"{name}#2")

    def split(self, op: Handle, dimension: int, after: int) -> tuple[Handle, Handle]:
        """Split the iteration space of ``op``: points below ``after`` along ``dimension``, and the rest."""
        name = self._fresh("part")
        self._emit(f"{name} = transform.structured.split {op} after {after} {{dimension = {dimension}}} : {op.type}")
        low, high = self.split_handle(Handle(name), 2)
        return low, high

    def flatten(self, op: Handle) -> Handle:
        """Collapse an elementwise op over identity maps to one loop."""
        return self._one("flat", f"transform.structured.flatten_elementwise {op}", ANY)

    def generalize(self, op: Handle) -> Handle:
        """A named op as linalg.generic."""
        return self._one("generic", f"transform.structured.generalize {op}", ANY)

    # ------------------------------------------------------------------------------------------------------------- GPUs

    def tile_parallel(self, op: Handle, sizes: Sequence[int], mapping: Sequence[str]) -> tuple[Handle, Handle]:
        """Tile with one ``scf.forall`` of tiles of ``sizes``; returns the tiled op and the loop.

        ``mapping`` says what the loop's dimensions are, ``#gpu.block<y>`` for example.
        """
        return self._forall(op, f"tile_sizes {_list(sizes)}", mapping)

    def tile_threads(self, op: Handle, counts: Sequence[int], mapping: Sequence[str]) -> tuple[Handle, Handle]:
        """As :meth:`tile_parallel`, with the number of pieces along each dimension given."""
        return self._forall(op, f"num_threads {_list(counts)}", mapping)

    def _forall(self, op: Handle, how: str, mapping: Sequence[str]) -> tuple[Handle, Handle]:
        tiled, loop = self._fresh("tiled"), self._fresh("loop")
        self._emit(
            f"{tiled}, {loop} = transform.structured.tile_using_forall {op} {how} (mapping = [{', '.join(mapping)}])"
            f" : ({op.type}) -> ({ANY}, {ANY})"
        )
        return Handle(tiled), Handle(loop)

    def tile_loops(self, op: Handle, sizes: Sequence[int], interchange: Sequence[int] = ()) -> tuple[Handle, list[Handle]]:
        """As :meth:`tile`; also returns the loops, outermost first."""
        tiled, count = self.tile(op, sizes, interchange), sum(size != 0 for size in sizes)
        loop = f"%loop{self._count['loop'] - 1}"
        return tiled, [Handle(f"{loop}#{i}" if count > 1 else loop) for i in range(count)]

    def fuse_into(self, producer: Handle, loop: Handle) -> None:
        """Compute ``producer`` inside of ``loop``, piece by piece."""
        self._emit(
            f"{self._fresh('fused')}, {self._fresh('loop')} = transform.structured.fuse_into_containing_op {producer}"
            f" into {loop} : ({ANY}, {ANY}) -> ({ANY}, {ANY})"
        )

    def unroll_all(self, loops: Sequence[Handle], counts: Sequence[int]) -> None:
        """Unroll nested loops of known trip counts, given outermost first."""
        for loop, count in reversed(list(zip(loops, counts, strict=True))):
            self._emit(f"transform.loop.unroll {loop} {{factor = {count}}} : {ANY}")

    def promote(self, op: Handle, operands: Sequence[int], space: str) -> None:
        """Copy ``operands`` of an op over memrefs into buffers of memory space ``space`` (an attribute)."""
        self._emit(
            f"{self._fresh('promoted')} = transform.structured.promote {op} {{operands_to_promote = {_list(operands)},"
            f" mapping = [{space}], use_full_tiles_by_default, use_original_subview_size}} : ({ANY}) -> {ANY}"
        )

    def launch_blocks_and_threads(self, function: Handle, block: Sequence[int]) -> None:
        """``scf.forall`` loops mapped to blocks, warps and threads as one ``gpu.launch``; ``block``: threads of a block."""
        launch = self._fresh("launch")
        self._emit(f"{launch} = transform.gpu.map_forall_to_blocks {function} {{generate_gpu_launch}} : ({ANY}) -> {ANY}")
        self._emit(
            f"{self._fresh('launch')} = transform.gpu.map_nested_forall_to_threads {launch} block_dims = {_list(block)}"
            f" : ({ANY}) -> {ANY}"
        )

    def multibuffer(self, allocations: Handle, factor: int) -> None:
        """Give every iteration of the loop around the uses another one of ``factor`` copies of a buffer."""
        kind = '!transform.op<"memref.alloc">'
        cast = self._fresh("alloc")
        self._emit(f"{cast} = transform.cast {allocations} : {ANY} to {kind}")
        self._emit(
            f"{self._fresh('buffers')} = transform.memref.multibuffer {cast} {{factor = {factor} : i64, skip_analysis}}"
            f" : ({kind}) -> {ANY}"
        )

    def async_groups(self, inside: Handle) -> Handle:
        """Copies from global into shared memory become asynchronous, in groups; returns ``inside`` anew."""
        name = self._fresh("asynchronous")
        self._emit(f"{name} = transform.nvgpu.create_async_groups {inside} {{bypass_l1}} : ({ANY}) -> {ANY}")
        return Handle(name)

    def pipeline_copies(self, loop: Handle, depth: int) -> None:
        """Start the asynchronous copies of a loop ``depth`` iterations ahead."""
        kind = '!transform.op<"scf.for">'
        cast = self._fresh("for")
        self._emit(f"{cast} = transform.cast {loop} : {ANY} to {kind}")
        self._emit(
            f"{self._fresh('pipelined')} = transform.nvgpu.pipeline_shared_memory_copies failures(propagate) {cast}"
            f" {{depth = {depth} : i64}} : ({kind}) -> {ANY}"
        )

    # --------------------------------------------------------------------------------------------------- vectorization

    def vectorize(self, op: Handle) -> None:
        """Replace an op of static size by vector ops of exactly that size."""
        self._emit(f"transform.structured.vectorize {op} : {op.type}")

    def vectorize_contraction(self, op: Handle) -> None:
        """As :meth:`vectorize`; a contraction becomes ``vector.contract`` where its body allows."""
        self._emit(f"transform.structured.vectorize {op} {{create_named_contraction}} : {op.type}")

    # ------------------------------------------------------------------------------------------------------- rewriting

    def apply_patterns(self, inside: Handle, *patterns: str) -> None:
        """Apply pattern sets together, to a fixed point; ``"vector.lower_transfer max_transfer_rank = 1"`` and the like."""
        self._emit(f"transform.apply_patterns to {inside} {{")
        for pattern in patterns:
            self._emit(f"  transform.apply_patterns.{pattern}")
        self._emit(f"}} : {inside.type}")

    def cse(self, inside: Handle) -> None:
        """Common subexpression elimination."""
        self._emit(f"transform.apply_cse to {inside} : {inside.type}")

    def licm(self, loops: Handle) -> None:
        """Move what does not change out of ``loops``."""
        self._emit(f"transform.apply_licm to {loops} : {loops.type}")

    def hoist_subsets(self, loops: Handle) -> None:
        """Carry a tensor slice that every iteration reads and writes in a loop variable."""
        self._emit(f"transform.loop.hoist_loop_invariant_subsets {loops} : {loops.type}")

    @contextmanager
    def foreach(self, ops: Handle) -> Iterator[Handle]:
        """The body runs once for each op of ``ops``."""
        item = Handle(self._fresh("item"), ops.type)
        self._emit(f"transform.foreach {ops} : {ops.type} {{")
        self._emit(f"^bb0({item}: {item.type}):")
        self._indent += 1
        yield item
        self._indent -= 1
        self._emit("}")

    # --------------------------------------------------------------------------------------------------------- helpers

    def _emit(self, line: str) -> None:
        self._lines.append("  " * self._indent + line)

    def _fresh(self, hint: str) -> str:
        number = self._count.get(hint, 0)
        self._count[hint] = number + 1
        return f"%{hint}{number}"

    def _one(self, hint: str, line: str, kind: str, *, typed: bool = False) -> Handle:
        name = self._fresh(hint)
        self._emit(f"{name} = {line}" + ("" if typed else f" : ({ANY}) -> {kind}"))
        return Handle(name, kind)

    def _match(self, what: str, inside: Handle) -> Handle:
        return self._one("match", f"transform.structured.match {what} in {inside}", ANY)
