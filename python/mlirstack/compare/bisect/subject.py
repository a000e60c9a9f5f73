"""What is executed again and again: the program's signature, its parameters, the inputs, and the answer that is right.

It is written to a file once, for the process that executes the stages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from mlirstack.compare.accuracy import Accuracy, Answer, Reference, call, compare_answers, moved
from mlirstack.errors import UsageError
from mlirstack.frontend.program import ArgumentSpec, Program, Signature
from mlirstack.targets.base import Executable
from mlirstack.targets.callable import CompiledFunction

FREE_SIZE = 4  # of dynamic dimensions, where no example says more


@dataclass(frozen=True)
class Subject:
    """A program, what it is called with, and eager's answer in higher precision."""

    signature: Signature
    parameters: dict[str, torch.Tensor]
    inputs: tuple[Any, ...]
    expected: Reference
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def answer(self, executable: Executable) -> Answer:
        """Call an executable, on its device; what it writes into parameters is undone."""
        kept = {name: tensor.clone() for name, tensor in self.parameters.items() if name in self._written}
        function = CompiledFunction(executable, self.signature, self.parameters)
        try:
            return call(self._positional(function), moved(self.inputs, executable.device))
        finally:
            for name, tensor in kept.items():
                self.parameters[name].copy_(tensor)

    def judge(self, answer: Answer, *, tf32: bool = False) -> Accuracy:
        """The verdict on an answer; ``tf32``: of an executable that multiplies f32 as TF32."""
        return compare_answers(answer, self.expected, tf32=tf32)

    def leaves(self) -> list[Any]:
        """The inputs as :meth:`Executable.run` takes them: one value per argument of kind "input"."""
        leaves = pytree.tree_leaves((self.inputs, dict(self.kwargs)))
        return [leaves[spec.leaf] for spec in self.signature.arguments if spec.leaf is not None]

    @property
    def _written(self) -> set[str]:
        return {mutation.name for mutation in self.signature.mutations if mutation.name is not None}

    def _positional(self, function: CompiledFunction) -> Callable[..., Any]:
        kwargs = moved(dict(self.kwargs), function.executable.device)
        return lambda *inputs: function(*inputs, **kwargs)

    def save(self, file: Path) -> None:
        """Write everything to ``file``."""
        fields = (self.signature, self.parameters, self.inputs, self.expected, dict(self.kwargs))
        torch.save(fields, file)

    @staticmethod
    def load(file: Path) -> Subject:
        """Inverse of :meth:`save`; the file is our own, or a reproducer that the user vouches for."""
        try:
            signature, parameters, inputs, expected, kwargs = torch.load(file, weights_only=False)
        except (OSError, ValueError, RuntimeError) as error:
            raise UsageError(f"{file} does not hold the arguments of a call: {error}") from error
        return Subject(signature, parameters, inputs, expected, kwargs)


def subject_of_module(program: Program, run: Callable[[Subject], Answer], *, seed: int = 0) -> Subject:
    """A program that was read from a file: inputs are drawn, and its own answer before any stage is the right one.

    ``run`` executes the program as it is.
    """
    inputs = drawn_inputs(program.signature, seed)
    nothing = Answer({}, "")
    subject = Subject(program.signature, program.parameters, inputs, Reference(nothing, nothing, "as is"))
    answer = run(subject)
    note = "the module's own answer before the first stage, by the plain path"
    return Subject(program.signature, program.parameters, inputs, Reference(answer, answer, "as is", note))


def drawn_inputs(signature: Signature, seed: int) -> tuple[Any, ...]:
    """One value per input: normally distributed floats, small integers; dynamic dimensions have one small size."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(_drawn(spec, generator) for spec in signature.arguments if spec.kind == "input")


def _drawn(spec: ArgumentSpec, generator: torch.Generator) -> Any:
    dtype = getattr(torch, spec.dtype)
    shape = [FREE_SIZE if isinstance(size, str) else size for size in spec.shape or ()]
    if dtype.is_floating_point or dtype.is_complex:
        wide = torch.complex128 if dtype.is_complex else torch.float64
        value = torch.randn(shape, generator=generator, dtype=wide).to(dtype)
    else:
        value = torch.randint(0, 2, shape, generator=generator).to(dtype)
    return value if spec.shape is not None else value.item()
