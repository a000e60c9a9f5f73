"""Which stage, which pass and which op of a lowering make a right answer wrong.

The module as it stands after every stage is executed by the plain path of :mod:`mlirstack.pipelines.reference` in a process
of its own, and compared with eager in higher precision.
"""
