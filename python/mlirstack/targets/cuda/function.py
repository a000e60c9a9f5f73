"""One entry point of a loaded plan: called with tensors on the device, it enqueues its steps and returns fresh tensors.

Everything that is the same in every call is done once, per set of shapes: expressions are numbers, argument blocks packed,
graphs instantiated.  A call patches the addresses that changed and launches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from mlirstack.errors import BundleError, DeviceMemoryError
from mlirstack.passes.cuda.memory import INPUT_ALIGNMENT
from mlirstack.passes.cuda.plan import Check, PlannedFunction
from mlirstack.targets.cuda.driver import Driver, Handle
from mlirstack.targets.cuda.frame import Bases, Frame, failed_check
from mlirstack.targets.cuda.replay import Replay
from mlirstack.targets.cuda.specialize import Number, specialize

REMEMBERED_SHAPES = 64  # sets of shapes of a dynamic function whose frames are kept
GRAPH_LAUNCHES = 5  # from so many steps on, one graph launch costs less than the launches

T = TypeVar("T")

# What torch.empty_strided does on its way to the allocator; a third of a microsecond less.
_guards: Any = torch._C._dynamo.guards
_EMPTY = {"cuda": _guards._empty_strided_cuda, "cpu": _guards._empty_strided_cpu}


@dataclass(frozen=True)
class ResultType:
    """What a result is for torch: a tensor of a dtype, or (``dtype`` None) a Python number made by ``convert``."""

    dtype: torch.dtype | None
    convert: type[bool] | type[int] | type[float] = int


class _Specialized:
    """A function for one set of shapes: its static plan, frames, and graphs by stream."""

    def __init__(self, function: PlannedFunction, bases: Bases, types: Sequence[ResultType]) -> None:
        self.function = function
        self.arena_bytes = function.arena_bytes or 0
        self.frames: list[Frame] = []
        self.captured: list[Frame] = []  # frames for graphs of the user's, which nobody has to check
        self.replays: dict[int, list[Replay]] = {}
        self.failed = next((s.message for s in function.steps if isinstance(s, Check) and not s.condition), None)
        # For each result buffer its base, shape, strides and dtype.
        self.outs: list[tuple[int, tuple[int, ...], tuple[int, ...], torch.dtype]] = []
        dtypes = {r.buffer: t.dtype for r, t in zip(function.results, types, strict=True) if r.buffer >= 0}
        for position, buffer in enumerate(bases.results):
            dtype = dtypes.get(buffer) or torch.uint8
            sizes = function.buffers[buffer].shape if buffer in dtypes else (function.buffers[buffer].bytes,)
            shape = tuple(size for size in sizes if isinstance(size, int))
            assert len(shape) == len(sizes), "the plan is static"
            strides = tuple(math.prod(max(size, 1) for size in shape[axis + 1 :]) for axis in range(len(shape)))
            self.outs.append((bases.result(position), shape, strides, dtype))


class LoadedFunction:
    """``function`` with its kernels on the device of ``driver``.

    ``constants`` and the tensors of ``fixed`` (by input number) are on the device and stay where they are; ``live`` tensors
    are looked at in every call.  The other inputs are given per call: ``given`` lists their input numbers in order.
    ``assertions`` are kernels that stop the device, by the message of the check.
    """

    def __init__(
        self,
        function: PlannedFunction,
        driver: Driver,
        kernels: Mapping[str, Handle],
        constants: Sequence[torch.Tensor],
        fixed: Mapping[int, torch.Tensor],
        live: Mapping[int, torch.Tensor],
        given: Sequence[int],
        types: Sequence[ResultType],
        assertions: Mapping[str, Handle],
    ) -> None:
        self.function = function
        self.copies = 0
        self._driver, self._kernels, self._types, self._assertions = driver, kernels, types, assertions
        self._empty = _EMPTY[driver.device.type]
        self._bases = Bases.of(function, len(constants))
        self._fixed, self._live = fixed, live
        inputs = list(enumerate(given))
        # Plain tuples, read in every call: position among what is given, number of the input (and its base).
        self._tensors = [(at, i, self._bases.input(i)) for at, i in inputs if function.inputs[i].shape is not None]
        self._scalars = [(at, i) for at, i in inputs if function.inputs[i].shape is None]
        self._dynamic = [(at, i) for at, i, _ in self._tensors if None in (function.inputs[i].shape or ())]
        self._template = [0] * self._bases.count
        for index, tensor in fixed.items():
            self._template[self._bases.input(index)] = tensor.data_ptr()
        for index, tensor in enumerate(constants):
            self._template[self._bases.constant(index)] = tensor.data_ptr()
        self._constants = constants  # alive as long as their addresses
        self._known: dict[tuple[object, ...], _Specialized] = {}
        self._static = None if self._dynamic or self._scalars else self._specialize(())
        self._takes = [
            (type_, result.buffer, None if result.buffer < 0 else function.buffers[result.buffer])
            for type_, result in zip(types, function.results, strict=True)
        ]
        buffers = [result.buffer for result in function.results]
        self._outs_in_order = buffers == list(self._bases.results)

    @property
    def is_static(self) -> bool:
        """Does nothing depend on a shape or a number that is given per call?"""
        return self._static is not None

    @property
    def wants_graph(self) -> bool:
        """Is one graph launch quicker than launching step by step?"""
        return self._static is not None and len(self._static.function.steps) >= GRAPH_LAUNCHES

    def static(self, values: Sequence[Any] = ()) -> PlannedFunction:
        """The static plan that a call with ``values`` runs."""
        return (self._static or self._specialize(values)).function

    def run(self, values: Sequence[Any], *, use_graph: bool) -> list[Any]:
        """Call with one value per given input.  Tensors must be on the device, and of the dtype and shape of the input.

        Raises :class:`RuntimeCheckError` where a check of the model fails, :class:`DeviceMemoryError` where memory is short.
        """
        special = self._static or self._specialize(values)
        if special.failed is not None:
            raise failed_check(special.failed)
        addresses = self._template.copy()
        kept: list[torch.Tensor] = []  # copies that must live until everything is enqueued
        for position, _, base in self._tensors:
            tensor = values[position]
            address = tensor.data_ptr()
            if not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg() or address % INPUT_ALIGNMENT:
                kept.append(plain(tensor))
                address = kept[-1].data_ptr()
                self.copies += 1
            addresses[base] = address
        for index, tensor in self._live.items() if self._live else ():
            kept.append(plain(tensor))
            addresses[self._bases.input(index)] = kept[-1].data_ptr()
        outs = []
        try:
            for base, shape, strides, dtype in special.outs:
                out = self._empty(shape, strides, dtype)  # on the current device, which the caller sees to
                outs.append(out)
                addresses[base] = out.data_ptr()
            self._enqueue(special, addresses, use_graph)
        except torch.OutOfMemoryError as error:
            raise self._out_of_memory(special) from error
        return outs if self._outs_in_order else self._results(special, outs, values)

    # ----------------------------------------------------------------------------------------------------------- enqueue

    def _enqueue(self, special: _Specialized, addresses: list[int], use_graph: bool) -> None:
        stream = self._driver.stream()
        # The user's graph takes the place of ours, and its replays are nothing that the host could check.
        is_captured = (use_graph or bool(self._assertions)) and self._driver.is_capturing()
        if use_graph and not is_captured:
            self._replay(special, addresses, stream)
            return
        # Frames are taken out of the pool while they are in use, so that threads do not meet in one.
        pool = special.captured if is_captured else special.frames
        frame = _taken(pool) or self._new_frame(special, self._assertions if is_captured else None)
        if special.arena_bytes:
            arena = self._new_arena(special)
            addresses[0] = arena.data_ptr()
        frame.point(addresses)
        if frame.has_checks:
            frame.reset_checks()
        frame.enqueue(addresses, stream)
        try:
            if frame.has_checks:
                frame.check(stream)
        finally:
            pool.append(frame)

    def _replay(self, special: _Specialized, addresses: list[int], stream: int) -> None:
        pool = special.replays.setdefault(stream, [])
        replay = _taken(pool)
        if replay is None:
            arena = self._new_arena(special)
            addresses[0] = arena.data_ptr()
            replay = Replay(self._driver, self._new_frame(special), arena, addresses)
        else:
            addresses[0] = replay.arena_address
        frame = replay.frame
        if frame.has_checks:
            frame.reset_checks()
        replay.launch(addresses, stream)
        try:
            if frame.has_checks:
                frame.check(stream)
        finally:
            pool.append(replay)

    def _new_frame(self, special: _Specialized, assertions: Mapping[str, Handle] | None = None) -> Frame:
        bases = Bases.of(special.function, len(self._constants))
        return Frame(special.function, bases, self._driver, self._kernels, assertions)

    def _new_arena(self, special: _Specialized) -> torch.Tensor:
        """From torch's allocator: freed when the call returns, its memory goes to later work of the same stream only."""
        return torch.empty(special.arena_bytes, dtype=torch.uint8, device=self._driver.device)

    def _specialize(self, values: Sequence[Any]) -> _Specialized:
        key = (
            *(values[position].shape for position, _ in self._dynamic),
            *(_exact(values[position]) for position, _ in self._scalars),
        )
        found = self._known.get(key)
        if found is None:
            inputs = enumerate(self.function.inputs)
            shapes = {i: tuple(size or 0 for size in given.shape) for i, given in inputs if given.shape is not None}
            shapes |= {i: tuple(values[at].shape) for at, i in self._dynamic}
            scalars: dict[int, Number] = {i: values[at] for at, i in self._scalars}
            function = specialize(self.function, shapes, scalars)
            found = _Specialized(function, self._bases, self._types)
            while len(self._known) >= REMEMBERED_SHAPES:
                self._known.pop(next(iter(self._known)), None)
            self._known[key] = found
        return found

    # ----------------------------------------------------------------------------------------------------------- results

    def _results(self, special: _Specialized, outs: list[torch.Tensor], values: Sequence[Any]) -> list[Any]:
        """Results in the program's order: no tensor twice, and none that is an input or a constant itself."""
        by_buffer = dict(zip(self._bases.results, outs, strict=True))
        tensors = {i: values[at] for at, i, _ in self._tensors} | {**self._fixed, **self._live}
        results: list[Any] = []
        for (type_, number, buffer), result in zip(self._takes, special.function.results, strict=True):
            if buffer is None:
                results.append(type_.convert(result.value))  # type: ignore[arg-type]
            elif buffer.kind == "result":
                # A second result of the same buffer is a copy.
                first = by_buffer.pop(number, None)
                same = next(i for i, (_, other, _) in enumerate(self._takes) if other == number)
                results.append(first if first is not None else results[same].clone())
            elif buffer.kind == "input":
                assert type_.dtype is not None
                results.append(plain(tensors[buffer.index]).clone().view(type_.dtype))
            else:
                raise BundleError(f"a result of '{self.function.name}' is a {buffer.kind}")
        return results

    def _out_of_memory(self, special: _Specialized) -> DeviceMemoryError:
        results = sum(math.prod(shape) * dtype.itemsize for _, shape, _, dtype in special.outs)
        return DeviceMemoryError(
            f"{self._driver.device} has not enough free memory for a call of '{self.function.name}': "
            f"{special.arena_bytes} bytes of temporaries, {results} bytes of results",
            hint="free tensors, call with a smaller batch, or torch.cuda.empty_cache()",
        )


def _taken(pool: list[T]) -> T | None:
    """The last of a pool, or None; safe where several threads take."""
    try:
        return pool.pop()
    except IndexError:
        return None


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, contiguous, aligned, without lazy conjugation or negation; ``tensor`` itself where it is so."""
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return tensor.clone() if tensor.data_ptr() % INPUT_ALIGNMENT else tensor


def _exact(value: Number) -> object:
    """A key that tells apart what compares equal: 0.0 and -0.0; and finds NaN again."""
    return value.hex() if isinstance(value, float) else value
