"""``gpu.module``s to the LLVM and NVVM dialects, and what no upstream pass does for kernels on the way.

Everything runs nested in ``gpu.module``: the host functions around them, which become the launch plan, stay as they are.
:data:`NVVM_STEPS` is the whole list; the two passes of this module stand at its ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mlirstack.bindings import ir
from mlirstack.ir.ops import walk
from mlirstack.passes.cuda.boolean_bytes import BooleanBytes
from mlirstack.passes.cuda.expansions import ExpandKernelOps
from mlirstack.pipeline.step import Pass, PythonPass, Step
from mlirstack.schedules.cuda.kernel import CLUSTER, MIN_BLOCKS, TENSOR_MAP

TENSOR_MAPS = "mlirstack.tensor_maps"  # on a function: the same, one entry a parameter, unit for other parameters
MAX_REGISTERS = "mlirstack.max_registers"

_TENSOR_MAP_PARAMETER = "{llvm.byval = !llvm.array<128 x i8>, llvm.align = 64 : i64, nvvm.grid_constant}"
_LAUNCHED = "gpu.kernel"  # what gpu.launch_func asks of a kernel
_CONTRACTED = ("llvm.fadd", "llvm.fsub", "llvm.fmul")


@dataclass(frozen=True)
class PrepareKernels(PythonPass):
    """Before: ``gpu.func``s, tensor maps described on their parameters (``mlirstack.tensor_map``).  After: described on the
    functions as well (``mlirstack.tensor_maps``), because convert-gpu-to-nvvm keeps of a parameter only what LLVM knows.
    """

    name = "mlirstack-nvvm-prepare"

    def apply(self, module: Any) -> None:
        for function in _functions(module, "gpu.func"):
            described = [given.get(TENSOR_MAP) for given in parameter_attributes(function)]
            if any(described):
                function.attributes[TENSOR_MAPS] = ir.ArrayAttr.get([entry or ir.UnitAttr.get() for entry in described])


@dataclass(frozen=True)
class FinishKernels(PythonPass):
    """Before: kernels as ``llvm.func``s.  After: what NVPTX needs to know about them in NVVM's terms.

    A tensor map is a 128-byte parameter that no thread copies (``byval``, ``grid_constant``).  ``mlirstack.cluster``,
    ``mlirstack.min_blocks`` and ``mlirstack.max_registers`` become cluster size and register limits.  Functions that are
    no kernels become internal.  ``gpu.kernel``, which convert-gpu-to-nvvm writes twice, stands there once: the text would
    not parse otherwise.

    ``contract`` lets a product and the sum around it become one FMA: eager's own kernels are compiled so (nvcc's default),
    and no other liberty is taken.
    """

    name = "mlirstack-nvvm-finish"
    contract: bool = True

    def apply(self, module: Any) -> None:
        for function in _functions(module, "llvm.func"):
            if "nvvm.kernel" in function.attributes:
                while _LAUNCHED in function.attributes:
                    del function.attributes[_LAUNCHED]
                function.attributes[_LAUNCHED] = ir.UnitAttr.get()
                _finish(function)
            elif not is_declaration(function):
                function.attributes["linkage"] = ir.Attribute.parse("#llvm.linkage<internal>")
            if self.contract:
                _allow_contraction(function)


_KERNELS = "gpu.module"

NVVM_STEPS: tuple[Step, ...] = (
    PrepareKernels(),
    ExpandKernelOps(),
    Pass("canonicalize", on=_KERNELS),
    Pass("cse", on=_KERNELS),
    Pass("loop-invariant-code-motion", on=_KERNELS),
    # Vectors of several dimensions and masked transfers first: what they become are loops and memref ops.
    Pass("convert-vector-to-scf", on=_KERNELS),
    # Views become address arithmetic, which convert-gpu-to-nvvm has patterns for.
    Pass("fold-memref-alias-ops", on=_KERNELS),
    Pass("expand-strided-metadata", on=_KERNELS),
    # Complex functions in terms of real ones, which libdevice has.
    Pass("convert-complex-to-standard", on=_KERNELS),
    Pass("convert-nvgpu-to-nvvm", on=_KERNELS),
    Pass("convert-scf-to-cf", on=_KERNELS),
    Pass("lower-affine", on=_KERNELS),
    # Functions, memory, branches, thread numbers; math goes to libdevice here.  nvgpu's descriptors need 64-bit indices;
    # bare pointers because a kernel's memrefs are of static shape and the plan passes addresses.
    Pass("convert-gpu-to-nvvm", {"index-bitwidth": 64, "use-bare-ptr-memref-call-conv": True}, on=_KERNELS),
    # vector.transfer_read and _write are of aligned vectors here; vector.load and vector.store say so themselves.
    Pass("convert-vector-to-llvm", {"use-vector-alignment": True}, on=_KERNELS),
    # What libdevice lacks (fma, absolute values, bit counts) and what is left of the rest.
    Pass("convert-math-to-llvm", on=_KERNELS),
    Pass("convert-complex-to-llvm", on=_KERNELS),
    Pass("convert-arith-to-llvm", on=_KERNELS),
    Pass("convert-index-to-llvm", on=_KERNELS),
    Pass("convert-ub-to-llvm", on=_KERNELS),
    # NVVM ops without an LLVM intrinsic become inline assembly.
    Pass("convert-nvvm-to-llvm", on=_KERNELS),
    Pass("reconcile-unrealized-casts", on=_KERNELS),
    Pass("canonicalize", on=_KERNELS),
    Pass("cse", on=_KERNELS),
    BooleanBytes(),
    FinishKernels(),
)


def is_declaration(function: Any) -> bool:
    """Has this function no body?"""
    return not function.regions[0].blocks


def parameter_attributes(function: Any) -> list[dict[str, Any]]:
    """The attributes of each parameter; an empty list where no parameter has any."""
    if "arg_attrs" not in function.attributes:
        return []
    return [{named.name: named.attr for named in given} for given in function.attributes["arg_attrs"]]


def _functions(module: Any, name: str) -> Iterator[Any]:
    for op in walk(module):
        if op.name == name and op.parent.name == "gpu.module":
            yield op


def _finish(kernel: Any) -> None:
    attributes = kernel.attributes
    if TENSOR_MAPS in attributes:
        _pass_tensor_maps_by_value(kernel)
    if CLUSTER in attributes:
        size = ir.IntegerAttr(attributes[CLUSTER]).value
        attributes["nvvm.cluster_dim"] = ir.DenseI32ArrayAttr.get([size, 1, 1])
    for ours, theirs in ((MIN_BLOCKS, "nvvm.minctasm"), (MAX_REGISTERS, "nvvm.maxnreg")):
        if ours in attributes:
            value = ir.IntegerAttr(attributes[ours]).value
            attributes[theirs] = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), value)


def _pass_tensor_maps_by_value(kernel: Any) -> None:
    by_value = {named.name: named.attr for named in ir.Attribute.parse(_TENSOR_MAP_PARAMETER)}
    described = list(kernel.attributes[TENSOR_MAPS])
    given = parameter_attributes(kernel) or [{} for _ in described]
    merged = [
        {**attributes, **by_value, TENSOR_MAP: entry} if isinstance(entry, ir.DictAttr) else attributes
        for attributes, entry in zip(given, described, strict=True)
    ]
    kernel.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(entry) for entry in merged])
    del kernel.attributes[TENSOR_MAPS]


def _allow_contraction(function: Any) -> None:
    flags = ir.Attribute.parse("#llvm.fastmath<contract>")
    plain = ir.Attribute.parse("#llvm.fastmath<none>")
    for op in walk(function):
        if op.name in _CONTRACTED and op.attributes["fastmathFlags"] == plain:
            op.attributes["fastmathFlags"] = flags
