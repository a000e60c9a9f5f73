"""From a Torch model, a .pt2, .mlir or model reference to a :class:`mlirstack.frontend.program.Program`."""

from mlirstack.pipeline.registry import register_step

register_step("mlirstack-import-fx", "mlirstack.frontend.import_fx:ImportFx")
register_step("mlirstack-narrow-constants", "mlirstack.frontend.narrow:NarrowConstants")
