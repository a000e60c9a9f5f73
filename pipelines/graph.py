"""What the tables of ``cpu`` and ``cuda`` share: the stages on tensors after linalg, and the steps from tensors to memrefs.

Each is written once, with places for what only one target wants.
"""

from __future__ import annotations

from mlirstack.passes.buffers import OwnTmTensorBuffers, ResultsToArguments
from mlirstack.passes.cut_unread import CutUnread
from mlirstack.passes.entry import NumberArguments, ProtectArguments
from mlirstack.passes.generalize import GeneralizeNamed
from mlirstack.passes.hoist_parameters import HoistParameters
from mlirstack.passes.index_checks import ChecksOutOfKernels
from mlirstack.passes.pin import PinBroadcasts, PinReshapes
from mlirstack.passes.restore_locations import RestoreLocations
from mlirstack.passes.simplify import SimplifyLinalg
from mlirstack.pipeline.stage import Stage
from mlirstack.pipeline.step import Pass, Step

FUNCTION = "func.func"


def prepared(*before_hoisting: Step, keep_narrow: bool = False) -> Stage:
    """The stage ``prepared``; ``before_hoisting`` are steps that see parameters where they are used.  ``keep_narrow``: see
    :class:`HoistParameters`."""
    return Stage(
        "prepared",
        "linalg",
        (
            NumberArguments(),
            # Shape arithmetic that dynamic dimensions left behind.
            Pass("convert-shape-to-std"),
            # arith and math ops on whole tensors, in files written by hand.
            Pass("convert-elementwise-to-linalg", on=FUNCTION),
            SimplifyLinalg(),
            # An index that data decide is checked before the op that reads there, which then cannot leave the tensor.
            ChecksOutOfKernels(),
            *before_hoisting,
            # Before fusion, which would mix what is the same in every call with what is not.
            HoistParameters(keep_narrow),
            Pass("canonicalize"),
            Pass("cse"),
            RestoreLocations(),
        ),
        "what depends on parameters alone stands in @prepare, which runs once at load",
        verify_each=False,
    )


def fused(*on_windows: Step, computed_apart: bool = False) -> Stage:
    """The stage ``fused``; ``on_windows`` are steps that see contractions and convolutions before they lose their names.
    ``computed_apart``: see ``computed`` of :class:`PinReshapes`."""
    return Stage(
        "fused",
        "linalg",
        (
            # Transposes, broadcasts and reductions take part in fusion.  Contractions, convolutions and poolings do not:
            # with an elementwise chain fused into an operand, it would be computed once per output element.
            GeneralizeNamed(),
            PinBroadcasts(),
            PinReshapes(computed_apart),
            Pass("linalg-fuse-elementwise-ops", on=FUNCTION),
            PinBroadcasts(remove=True),
            Pass("canonicalize"),
            Pass("cse"),
            *on_windows,
            # Now that nothing fuses into them any more: a batch of one is no batch, a 1x1 convolution is a contraction.
            GeneralizeNamed(windows=True),
            CutUnread(),
            Pass("linalg-fold-unit-extent-dims"),
            Pass("canonicalize"),
            SimplifyLinalg(),
            Pass("cse"),
            RestoreLocations(),
        ),
        "elementwise chains are one op each, unit dimensions are gone",
        verify_each=False,
    )


# Padding and concatenation as fills and slices, which can be written by one kernel.
SLICES: tuple[Step, ...] = (
    Pass("refback-generalize-tensor-pad", on=FUNCTION),
    Pass("refback-generalize-tensor-concat", on=FUNCTION),
    Pass("cse"),
)


def to_buffers(*before_analysis: Step) -> tuple[Step, ...]:
    """From tensors to memrefs; results whose shape is known become arguments.

    ``before_analysis`` stands right before the analysis of what may be written in place.
    """
    return (
        Pass("tm-tensor-bufferize", on=FUNCTION),
        Pass("canonicalize"),
        Pass("cse"),
        ProtectArguments(),
        # What speaks to the analysis: CSE would undo it.
        OwnTmTensorBuffers(),
        *before_analysis,
        Pass(
            "one-shot-bufferize",
            {
                "bufferize-function-boundaries": True,
                "function-boundary-type-conversion": "identity-layout-map",
                "unknown-type-conversion": "identity-layout-map",
                # A loop whose state is a new buffer in each round: while_loop with a body that computes it.
                "allow-return-allocs-from-loops": True,
            },
        ),
        Pass("refback-mlprogram-bufferize"),
        Pass("canonicalize"),
        Pass("cse"),
        # Kernels write through their arguments: what they return is the buffer they were given.
        Pass("drop-equivalent-buffer-results"),
        ResultsToArguments(),
    )
