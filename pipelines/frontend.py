"""The stages that all targets share: exported graph → torch dialect → TOSA or linalg.

Two routes lead to linalg on tensors.  "tosa" goes through TOSA, where a graph is a handful of well-specified tensor
operations; "linalg" leaves TOSA out, for graphs that TOSA cannot say or says wrong (see :mod:`mlirstack.frontend.routes`).
The passes are those of torch-mlir's named back-end pipelines, spelled out so that a failure names one of them.
"""

from __future__ import annotations

from mlirstack.errors import UsageError
from mlirstack.frontend.bitcasts import LowerBitcasts
from mlirstack.frontend.import_fx import ImportFx
from mlirstack.frontend.long_sums import LowerLongSums
from mlirstack.frontend.narrow import NarrowConstants
from mlirstack.frontend.onnx.importer import FinishOnnx
from mlirstack.frontend.onnx.views import NameReshapes
from mlirstack.frontend.quotients import LowerQuotients, MarkDivisors
from mlirstack.frontend.reshapes import LowerReshapes
from mlirstack.frontend.roots import LowerRoots
from mlirstack.frontend.unsigned_constants import FillUnsignedConstants
from mlirstack.ir.level import LEVELS
from mlirstack.passes.restore_locations import RestoreLocations
from mlirstack.passes.settle_selects import SettleSelects
from mlirstack.passes.simplify import SimplifyLinalg
from mlirstack.pipeline.stage import Pipeline, Stage
from mlirstack.pipeline.step import Pass

FUNCTION = "func.func"

FX = Stage(
    "fx", "fx", (), "the graph that torch.export captured, decomposed; nothing is changed here, it is there to be read"
)

# The way to linalg wants these whole, TOSA needs them decomposed: the pooling takes any output size there, and decomposed
# into views, merged and split dynamic dimensions would be guessed from the sizes, wrongly.
LINALG_LEGAL_OPS = ("aten.adaptive_max_pool2d", "aten.flatten.using_ints", "aten.unflatten.int")


def _torch_stage(legal_ops: tuple[str, ...] = (), *, for_tosa: bool = False) -> Stage:
    return Stage(
        "torch",
        "torch",
        (
            ImportFx(for_tosa),
            # Quantized custom ops become ATen ops that the next passes know.
            Pass("torch-match-quantized-custom-ops", on=FUNCTION),
            # Bodies of control flow arrive as functions.
            Pass("inline"),
            # In-place and view variants become their functional forms, which the patterns below expect.
            Pass("torch-reduce-op-variants", on=FUNCTION),
            Pass("canonicalize", on=FUNCTION),
            # Everything that back ends have no pattern for, in terms of what they have.
            Pass("torch-decompose-complex-ops", {"legal-ops": legal_ops} if legal_ops else {}, on=FUNCTION),
            # After decomposing: finds the few patterns that lower better as one op.
            Pass("torch-recompose-complex-ops", on=FUNCTION),
            Pass("canonicalize", on=FUNCTION),
            RestoreLocations(),
        ),
        "torch dialect, reduced to the ops that back ends lower",
    )


TORCH_TO_TOSA = Stage(
    "tosa",
    "tosa",
    (
        LowerLongSums(),
        Pass("torch-fuse-quantized-ops", on=FUNCTION),
        # The whole graph or nothing: parts of it cannot be mixed with the linalg route.
        Pass("convert-torch-to-tosa", {"require-full-tosa-conversion": True}, on=FUNCTION),
        Pass("tosa-layerwise-constant-fold", on=FUNCTION),
        Pass("tosa-reduce-transposes", on=FUNCTION),
        # TOSA's own implicit broadcast stretches dimensions, not ranks.
        Pass("tosa-make-broadcastable", on=FUNCTION),
        # Before equal reciprocals, of divisions and of the model's own, become one.
        MarkDivisors(),
        Pass("canonicalize", on=FUNCTION),
        Pass("cse", on=FUNCTION),
        # From !torch.vtensor to tensor: signatures first, then the casts that this leaves inside.
        Pass("torch-func-backend-type-conversion"),
        Pass("canonicalize", on=FUNCTION),
        Pass("torch-finalizing-backend-type-conversion", on=FUNCTION),
        Pass("torch-verify-tosa-backend-contract"),
        RestoreLocations(),
    ),
    "TOSA: the whole graph must legalize",
)

TOSA_TO_LINALG = Stage(
    "linalg",
    "linalg",
    (
        Pass("tosa-optional-decompositions", on=FUNCTION),
        # Square roots arrive as powers, which are others at minus infinity.
        LowerRoots(),
        # Quotients arrive as products with a reciprocal, which overflows where the divisor is subnormal.
        LowerQuotients(),
        Pass("convert-elementwise-to-linalg", on=FUNCTION),
        Pass("canonicalize"),
        Pass("tosa-infer-shapes", on=FUNCTION),
        # Linalg has no implicit broadcast of ranks.
        Pass("tosa-make-broadcastable", on=FUNCTION),
        # Before tosa-to-linalg, which has no pattern for tosa.scatter and would fail on it.
        Pass("tosa-to-scf", on=FUNCTION),
        # Matmul, convolution and pooling first, as named ops that schedules recognise; the rest becomes generic below.
        Pass("tosa-to-linalg-named", on=FUNCTION),
        Pass("canonicalize"),
        Pass("tosa-layerwise-constant-fold", on=FUNCTION),
        # Folding and named lowering leave new operands of lower rank.
        Pass("tosa-make-broadcastable", on=FUNCTION),
        Pass("tosa-to-linalg", on=FUNCTION),
        Pass("tosa-to-arith", {"include-apply-rescale": True}, on=FUNCTION),
        Pass("tosa-to-tensor", on=FUNCTION),
        Pass("tosa-to-scf", on=FUNCTION),
        Pass("canonicalize"),
        # TOSA's relu clamps infinity to the largest number, and its reductions start from the lowest.
        SimplifyLinalg(),
        Pass("canonicalize"),
        Pass("cse"),
        RestoreLocations(),
    ),
    "linalg on tensors, by way of TOSA",
)

TORCH_TO_LINALG = Stage(
    "linalg",
    "linalg",
    (
        LowerReshapes(),
        LowerBitcasts(),
        FillUnsignedConstants(),
        Pass("torch-restructure-non-constant-axes", on=FUNCTION),
        Pass("torch-fuse-quantized-ops", on=FUNCTION),
        # Sort, scan, scatter and attention, which linalg has no op for; the general conversion would refuse them.
        Pass("convert-torch-to-tmtensor", {"allow-non-finites": True}, on=FUNCTION),
        Pass("canonicalize", on=FUNCTION),
        Pass("convert-torch-to-linalg", {"allow-non-finites": True}, on=FUNCTION),
        Pass("canonicalize", on=FUNCTION),
        # What is no tensor computation: loops and branches, scalars, views.
        Pass("convert-torch-to-scf", on=FUNCTION),
        Pass("convert-torch-to-arith", on=FUNCTION),
        Pass("convert-torch-to-tensor", on=FUNCTION),
        Pass("convert-torch-conversion-to-mlprogram"),
        Pass("memref-expand", on=FUNCTION),
        Pass("canonicalize", on=FUNCTION),
        Pass("resolve-shaped-type-result-dims", on=FUNCTION),
        Pass("cse", on=FUNCTION),
        # From !torch.vtensor to tensor: signatures first, then the casts that this leaves inside.
        Pass("torch-func-backend-type-conversion"),
        Pass("canonicalize", on=FUNCTION),
        Pass("torch-finalizing-backend-type-conversion", on=FUNCTION),
        # Branches that compute nothing were folded to it; neither the contract nor a launch plan has it.
        SettleSelects(),
        Pass("torch-verify-linalg-on-tensors-backend-contract"),
        # Numbers of the model arrive as float64 constants that are rounded in loop bodies.
        NarrowConstants(),
        RestoreLocations(),
    ),
    "linalg on tensors, straight from the torch dialect",
)

ONNX = Stage("onnx", "onnx", (), "the graph of an ONNX file; nothing is changed here, it is there to be read")

# Types as the operators below have them: conversions leave dynamic sizes where a shape was computed from constants.
_REFINE_SHAPES = Pass("torch-shape-refinement-pipeline", {"extra-library": ""})

ONNX_TO_TORCH = Stage(
    "torch",
    "torch",
    (
        Pass("convert-torch-onnx-to-torch", on=FUNCTION),
        FinishOnnx(),
        Pass("canonicalize", on=FUNCTION),
        _REFINE_SHAPES,
        # Shapes that ONNX computes with tensors become numbers, after which more of them are known.
        Pass("torch-scalarize-shapes", on=FUNCTION),
        _REFINE_SHAPES,
        Pass("torch-refine-public-return"),
        Pass("torch-decompose-complex-ops", on=FUNCTION),
        Pass("torch-recompose-complex-ops", on=FUNCTION),
        Pass("canonicalize", on=FUNCTION),
        # Merged and split dynamic dimensions would be guessed from the sizes, wrongly.
        NameReshapes(),
        Pass("canonicalize", on=FUNCTION),
        RestoreLocations(),
    ),
    "torch dialect: ONNX operators in terms of ATen's, reduced to what back ends lower",
)

TORCH_TO_STABLEHLO = Stage(
    "stablehlo",
    "stablehlo",
    # One name: some of its passes (chlo-legalize-to-stablehlo) are not registered by themselves.
    (Pass("torch-backend-to-stablehlo-backend-pipeline"),),
    "StableHLO, to be read or handed to other compilers",
)

_ROUTES = {
    "tosa": (FX, _torch_stage(for_tosa=True), TORCH_TO_TOSA, TOSA_TO_LINALG),
    "linalg": (FX, _torch_stage(LINALG_LEGAL_OPS), TORCH_TO_LINALG),
}


def frontend_stages(route: str, level: str) -> tuple[Stage, ...]:
    """The stages that bring a program at ``level`` to linalg on tensors by ``route`` ("tosa" or "linalg").

    A program that stands at linalg or below needs none; raises :class:`UsageError` where the route cannot start there.
    """
    if route not in _ROUTES:
        raise UsageError(f"unknown route '{route}'", hint=f"routes: {', '.join(_ROUTES)}")
    stages = _ROUTES[route]
    if level == "fx":
        return stages
    if level == "onnx":
        return (ONNX, ONNX_TO_TORCH, *stages[2:])
    names = [stage.level_name for stage in stages]
    if level in names:
        return stages[names.index(level) + 1 :]
    order = list(LEVELS)
    if level in order and order.index(level) > order.index("linalg"):
        return ()
    raise UsageError(
        f"route '{route}' does not pass level '{level}'",
        hint=f"it starts from one of: {', '.join(names)}, or from what lies below linalg",
    )


def stablehlo_pipeline() -> Pipeline:
    """Exported graph → torch dialect → StableHLO."""
    return Pipeline(
        "stablehlo", (FX, _torch_stage(), TORCH_TO_STABLEHLO), "StableHLO, for reading side by side and for export"
    )
