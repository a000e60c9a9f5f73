"""Matrix products as kernel functions over memrefs, with inputs and the answer in float64: what tests of emitters run on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from mlirstack.bindings import ir
from mlirstack.ir.ops import functions
from mlirstack.schedules.cuda.device import Device
from mlirstack.schedules.cuda.emitter import Emitter, Parameters
from mlirstack.schedules.cuda.graph import KernelGraph

NUMPY = {
    "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "i8": np.int8, "i32": np.int32,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
}  # fmt: skip
TOLERANCE = {"f32": 1e-6, "f16": 1e-3, "bf16": 8e-3, "i32": 0.0}  # relative L2: one rounding of the result, and a margin
TF32_TOLERANCE = 4e-4  # factors rounded to ten bits: about 3e-4; cut off, they would give 8e-4


@dataclass(frozen=True)
class Product:
    """``act(A · B + bias) + residual``; ``a`` and ``b`` spell the order of the factors' dimensions, outermost first.

    ``batch``: sizes of batch axes; ``shared``: B is the same for all of them.  Everything after the product is computed in
    f32 and rounded once.  ``tf32``: factors of type f32 may be rounded to TF32.  ``wide``: integers are summed in i64, and
    the low half is kept.
    """

    m: int
    n: int
    k: int
    element: str = "bf16"
    result: str = "bf16"
    a: str = "mk"
    b: str = "nk"
    batch: tuple[int, ...] = ()
    shared: bool = False
    bias: bool = False
    activation: str = ""  # "relu", "silu", "gelu"
    residual: bool = False
    tf32: bool = False
    wide: bool = False

    @property
    def sums(self) -> str:
        """Type of the accumulators."""
        return "i64" if self.wide else "i32" if self.element == "i8" else "f32"

    def shape(self, dimensions: str, *, batched: bool = True) -> tuple[int, ...]:
        """Sizes of a tensor with these dimensions."""
        sizes = {"m": self.m, "n": self.n, "k": self.k}
        return (*(self.batch if batched else ()), *(sizes[d] for d in dimensions))

    def inputs(self, seed: int = 0) -> list[np.ndarray[Any, Any]]:
        """A, B, and bias and residual where they are wanted."""
        random = np.random.default_rng(seed)

        def array(shape: tuple[int, ...], element: str) -> np.ndarray[Any, Any]:
            if element in ("i8", "i32"):
                return random.integers(-100, 100, shape).astype(NUMPY[element])
            return random.standard_normal(shape).astype(NUMPY[element])

        arrays = [array(self.shape(self.a), self.element), array(self.shape(self.b, batched=not self.shared), self.element)]
        arrays += [array((self.n,), self.result)] if self.bias else []
        arrays += [array(self.shape("mn"), self.result)] if self.residual else []
        return arrays

    def expected(self, arrays: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
        """The answer in float64."""
        a, b, *rest = (array.astype(np.float64) for array in arrays)
        a = a if self.a == "mk" else a.swapaxes(-1, -2)
        b = b if self.b == "kn" else b.swapaxes(-1, -2)
        x = a @ b
        if self.bias:
            x = x + rest.pop(0)
        if self.activation == "relu":
            x = np.maximum(x, 0)
        elif self.activation == "silu":
            x = x / (1 + np.exp(-x))
        elif self.activation == "gelu":
            x = 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
        return x + rest.pop(0) if self.residual else x

    def error(self, got: np.ndarray[Any, Any], arrays: list[np.ndarray[Any, Any]]) -> float:
        """Relative L2 error of an answer; infinite where something is NaN."""
        wanted = self.expected(arrays)
        difference = np.linalg.norm((got.astype(np.float64) - wanted).ravel()) / np.linalg.norm(wanted.ravel())
        return float(difference) if np.isfinite(difference) else math.inf

    def text(self) -> str:
        """The module: ``@main`` makes the result and computes it with structured ops."""
        axes = "".join(f"b{i}, " for i in range(len(self.batch)))
        parallel = ", ".join(['"parallel"'] * (len(self.batch) + 2))

        def factor_map(dimensions: str, *, shared: bool = False) -> str:
            return f"affine_map<({axes}m, n, k) -> ({'' if shared else axes}{', '.join(dimensions)})>"

        def result_map(dimensions: str) -> str:
            return f"affine_map<({axes}m, n) -> ({axes if dimensions != 'n' else ''}{', '.join(dimensions)})>"

        a, b = (
            self._type(self.shape(self.a), self.element),
            self._type(self.shape(self.b, batched=not self.shared), self.element),
        )
        sums, result = self._type(self.shape("mn"), self.sums), self._type(self.shape("mn"), self.result)
        extra = {"%bias": (self.bias, self._type((self.n,), self.result), result_map("n"))}
        extra["%residual"] = (self.residual, result, result_map("mn"))
        used = {name: (kind, affine) for name, (wanted, kind, affine) in extra.items() if wanted}
        arguments = ", ".join([f"%a: {a}", f"%b: {b}", *(f"{name}: {kind}" for name, (kind, _) in used.items())])
        reads = ", ".join(["%sums", *used])
        kinds = ", ".join([sums, *(kind for kind, _ in used.values())])
        maps = ", ".join([result_map("mn"), *(affine for _, affine in used.values()), result_map("mn")])
        block = ", ".join([f"%x: {self.sums}", *(f"{name}_1: {self.result}" for name in used), f"%old: {self.result}"])
        body, value = self._epilogue()
        zero = "0" if self.element == "i8" else "0.0"
        return f"""module {{ func.func @main({arguments}) -> {result} {{
          %zero = arith.constant {zero} : {self.sums}
          %one = arith.constant 1.0 : f32
          %half = arith.constant 0.5 : f32
          %root = arith.constant 0.70710678118654752 : f32
          %sums = memref.alloc() : {sums}
          %c = memref.alloc() : {result}
          linalg.fill ins(%zero : {self.sums}) outs(%sums : {sums})
          linalg.generic {{
            indexing_maps = [{factor_map(self.a)}, {factor_map(self.b, shared=self.shared)}, {factor_map("mn")}],
            iterator_types = [{parallel}, "reduction"]
          }} ins(%a, %b : {a}, {b}) outs(%sums : {sums}) {{
          ^bb0(%x: {self.element}, %y: {self.element}, %old: {self.sums}):
            {self._multiply()}
            linalg.yield %sum : {self.sums}
          }}
          linalg.generic {{indexing_maps = [{maps}], iterator_types = [{parallel}]}}
            ins({reads} : {kinds}) outs(%c : {result}) {{
          ^bb0({block}):
            {body}
            linalg.yield {value} : {self.result}
          }}
          return %c : {result} }} }}"""

    def _type(self, shape: tuple[int, ...], element: str) -> str:
        return f"memref<{'x'.join(map(str, shape))}x{element}>"

    def _multiply(self) -> str:
        if self.element == "i8":
            lines = [f"%u = arith.extsi %x : i8 to {self.sums}", f"%v = arith.extsi %y : i8 to {self.sums}"]
            return "\n".join([*lines, f"%p = arith.muli %u, %v : {self.sums}", f"%sum = arith.addi %old, %p : {self.sums}"])
        if self.element == "f32":
            mark = " {mlirstack.tf32}" if self.tf32 else ""
            return f"%p = arith.mulf %x, %y{mark} : f32\n%sum = arith.addf %old, %p : f32"
        lines = [f"%u = arith.extf %x : {self.element} to f32", f"%v = arith.extf %y : {self.element} to f32"]
        return "\n".join([*lines, "%p = arith.mulf %u, %v : f32", "%sum = arith.addf %old, %p : f32"])

    def _epilogue(self) -> tuple[str, str]:
        """Lines of the second op's body, and the value that it yields."""
        lines, value = [], "%x"

        def widened(name: str) -> str:
            if self.result == "f32":
                return f"{name}_1"
            lines.append(f"{name}_2 = arith.extf {name}_1 : {self.result} to f32")
            return f"{name}_2"

        if self.bias:
            other = widened("%bias")
            lines.append(f"%biased = arith.addf {value}, {other} : f32")
            value = "%biased"
        steps = {
            "relu": ["%active = arith.maximumf {x}, %zero : f32"],
            "silu": [
                "%n = arith.negf {x} : f32", "%e = math.exp %n : f32", "%d = arith.addf %e, %one : f32",
                "%s = arith.divf %one, %d : f32", "%active = arith.mulf {x}, %s : f32",
            ],
            "gelu": [
                "%r = arith.mulf {x}, %root : f32", "%e = math.erf %r : f32", "%d = arith.addf %e, %one : f32",
                "%h = arith.mulf %d, %half : f32", "%active = arith.mulf {x}, %h : f32",
            ],
        }.get(self.activation)  # fmt: skip
        if steps:
            lines += [step.format(x=value) for step in steps]
            value = "%active"
        if self.residual:
            other = widened("%residual")
            lines.append(f"%added = arith.addf {value}, {other} : f32")
            value = "%added"
        if self.wide:
            lines.append(f"%cut = arith.trunci {value} : i64 to i32")
            value = "%cut"
        if self.sums == "f32" and self.result != "f32":
            lines.append(f"%rounded = arith.truncf {value} : f32 to {self.result}")
            value = "%rounded"
        return "\n".join(lines), value


def graph_of(module: Any) -> KernelGraph:
    """The graph of ``@main``."""
    return KernelGraph.of(next(iter(functions(module))))


def emitted(product: Product, emitter: Emitter, device: Device, parameters: Parameters | None = None) -> Any:
    """A module in which ``emitter`` wrote the product's kernels; with the parameters that it chooses unless some are given.

    Needs a current context.
    """
    module = ir.Module.parse(product.text())
    function = next(iter(functions(module)))
    graph = KernelGraph.of(function)
    chosen = emitter.choose(graph, device) if parameters is None else parameters
    assert chosen is not None, "the emitter does not take this product"
    emitter.emit(function, graph, chosen, device)
    for node in reversed(graph.nodes):
        node.op.erase()
    for op in list(function.regions[0].blocks[0].operations):
        if op.operation.name == "linalg.fill":
            op.operation.erase()
    module.operation.verify()
    return module
