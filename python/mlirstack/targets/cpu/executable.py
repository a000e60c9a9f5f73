"""A loaded CPU program: parameters are bound to frames, user inputs go in without a copy, results come out as tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from mlirstack.errors import BundleError, RuntimeCheckError
from mlirstack.frontend.program import ResultSpec, Signature
from mlirstack.passes import abi
from mlirstack.targets.base import Artifact, Executable
from mlirstack.targets.cpu.loader import LLVMIR_FILE, OBJECT_FILE, EntryPoint, LoadedObject
from mlirstack.targets.cpu.memref import Frame, Layout, Returned, dtype_of, plain, point, static_shape
from mlirstack.targets.cpu.prepare import prepared

_empty_like = torch.empty_like


class CpuExecutable(Executable):
    """``@main`` of an object.  Frames are pooled, so that calls from several threads at once are safe.

    ``copies`` counts the inputs that were not contiguous and had to be copied.
    """

    def __init__(
        self,
        artifact: Artifact,
        signature: Signature,
        parameters: Mapping[str, torch.Tensor],
        code: LoadedObject | None = None,
    ) -> None:
        self._artifact, self._signature = artifact, signature
        self._code = code or LoadedObject(artifact.files[OBJECT_FILE])
        main = self._code.abi.function(abi.MAIN)
        if main is None:
            raise BundleError("the object has no entry point 'main'")
        self._layout = Layout.of(main)
        self._error, self._returned = self._layout.error, self._layout.returned
        self._call: EntryPoint = self._code.entry(abi.MAIN)
        self._results = _result_dtypes(main, signature.results)
        self._prepared = prepared(self._code, signature, parameters, artifact.packed)
        self.copies = 0
        self._pool: list[Frame] = []
        self._bind(main, signature, parameters)

    def rebound(self, parameters: Mapping[str, torch.Tensor]) -> CpuExecutable:
        """See :meth:`Executable.rebound`; the loaded object is shared."""
        return CpuExecutable(self._artifact, self._signature, parameters, self._code)

    def _bind(self, main: abi.FunctionAbi, signature: Signature, parameters: Mapping[str, torch.Tensor]) -> None:
        """Sort the inputs of @main by where they come from: fixed at load, the user's tensors, the user's scalars."""
        user = [i for i, spec in enumerate(signature.arguments) if spec.kind == "input"]
        written = {mutation.name for mutation in signature.mutations if mutation.name is not None}
        self._fixed: list[tuple[int, torch.Tensor]] = []
        self._live: list[tuple[int, torch.Tensor]] = []  # parameters that the program writes to, and that may move
        # Plain tuples, read in every call: position among the inputs, word of the descriptor, is the shape known?
        self._tensors: list[tuple[int, int, bool]] = []
        self._scalars: list[tuple[int, int, abi.ValueAbi]] = []
        for word, value in zip(self._layout.inputs, main.inputs, strict=True):
            assert value.index is not None
            if value.source == "prepared":
                self._fixed.append((word, self._prepared[value.index]))
                continue
            spec = signature.arguments[value.index]
            if spec.kind == "parameter":
                tensor = parameters[spec.name]
                if spec.name in written:
                    self._live.append((word, tensor))
                else:
                    self._fixed.append((word, plain(tensor)))
            elif value.shape is None:
                self._scalars.append((user.index(value.index), word, value))
            else:
                self._tensors.append((user.index(value.index), word, value.is_static))
        # Word of the descriptor, and a tensor of one element of memory that has the result's shape and dtype.
        self._outs = [
            (word, torch.empty((), dtype=dtype).expand(static_shape(value)))
            for word, value, dtype in zip(self._layout.outs, main.outs, self._results, strict=False)
        ]

    def _new_frame(self) -> Frame:
        frame = Frame(self._layout)
        for word, tensor in self._fixed:
            point(frame, word, tensor)
            frame.set_shape(word, tensor.shape)
        return frame

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """See :meth:`Executable.run`; :class:`RuntimeCheckError` where a check inside the program fails."""
        frame = self._pool.pop() if self._pool else self._new_frame()
        words = frame.words
        kept: list[torch.Tensor] = []  # copies that must live until the call is over
        for position, word, is_static in self._tensors:
            tensor = inputs[position]
            if not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
                tensor = plain(tensor)
                kept.append(tensor)
                self.copies += 1
            words[word] = words[word + 1] = tensor.data_ptr()
            if not is_static:
                frame.set_shape(word, tensor.shape)
        if self._scalars or self._live:
            self._set_rare(frame, inputs, kept)
        results = []
        for word, like in self._outs:
            result = _empty_like(like)  # quicker than torch.empty with a shape and a dtype
            results.append(result)
            words[word] = words[word + 1] = result.data_ptr()
        self._call(frame.address)
        if self._error is not None and words[self._error]:
            self._raise(frame)
        if self._returned:
            results = self._with_returned(frame, results)
        self._pool.append(frame)
        return results

    def source(self, stage: str) -> str:
        """``llvmir`` or ``asm``."""
        if stage == "llvmir" and LLVMIR_FILE in self._artifact.files:
            return self._artifact.files[LLVMIR_FILE].decode()
        if stage == "asm":
            from mlirstack.passes.native_code import assembly_text

            return assembly_text(self._artifact.files[OBJECT_FILE])
        raise KeyError(stage)

    def _set_rare(self, frame: Frame, inputs: Sequence[Any], kept: list[torch.Tensor]) -> None:
        for position, word, value in self._scalars:
            frame.set_scalar(word, value, inputs[position])
        for word, tensor in self._live:
            kept.append(plain(tensor))
            point(frame, word, kept[-1])
            frame.set_shape(word, tensor.shape)

    def _with_returned(self, frame: Frame, outs: list[torch.Tensor]) -> list[Any]:
        function = self._layout.function
        values: list[Any] = list(outs)
        returned = Returned(frame.words)
        for word, value in zip(self._returned, function.returned, strict=True):
            if value.shape is None:
                values.append(frame.scalar(word, value))
            else:
                values.append(returned.adopt(word, value, self._results[len(values)]))
        returned.close()
        return [values[i] for i in function.order]

    def _raise(self, frame: Frame) -> None:
        assert self._error is not None
        number = frame.words[self._error]
        frame.words[self._error] = 0
        self._pool.append(frame)
        raise RuntimeCheckError(
            f"a check of the model failed at run time: {self._code.abi.asserts[number - 1]}",
            hint="the values of the inputs (an index, a size) are outside of what the model allows",
        )


def _result_dtypes(main: abi.FunctionAbi, results: Sequence[ResultSpec]) -> list[torch.dtype]:
    """The torch dtype of each value that @main leaves, out-parameters first; unsigned integers share bits with signed ones.

    :class:`BundleError` where the object and the signature disagree.
    """
    values = [*main.outs, *main.returned]
    if len(results) != len(values):
        raise BundleError(f"the object has {len(values)} results, the signature {len(results)}")
    dtypes: list[torch.dtype] = [torch.float32] * len(values)
    for spec, position in zip(results, main.order, strict=True):
        value = values[position]
        if (spec.shape is None) != (value.shape is None):
            raise BundleError(f"result {position}: the object has {value.text()}, the signature {spec}")
        if value.shape is None:
            continue
        wanted, found = getattr(torch, spec.dtype), dtype_of(value)
        same_bits = wanted.itemsize == found.itemsize and not wanted.is_signed and not found.is_floating_point
        if wanted != found and not same_bits:
            raise BundleError(f"result {position}: the object has {value.text()}, the signature {spec.dtype}")
        dtypes[position] = wanted
    return dtypes
