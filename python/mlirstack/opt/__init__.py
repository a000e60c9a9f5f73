"""mlirstack-opt and mlirstack-translate: mlir-opt and mlir-translate over the pip-installed bindings.

A lit suite starts these tools hundreds of times, so their modules import little, and only when it is needed: no argparse,
no dataclasses, no NumPy.  Records are therefore named tuples here, and frozen dataclasses everywhere else.
"""
