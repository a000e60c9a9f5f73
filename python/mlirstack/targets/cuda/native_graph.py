"""CUDA graphs of explicit nodes through cuda-bindings; a node of ours holds the driver's node and its parameters."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

from mlirstack.targets.cuda.driver import Graph, Handle, KernelCall
from mlirstack.targets.cuda.native import checked, event_handle

_EARLY_STARTS = (12, 3)  # the first CUDA version whose graphs have edges that a kernel may pass before another is done


@dataclass(frozen=True)
class _Node:
    handle: Any
    parameters: Any  # of the kind that its update takes
    is_kernel: bool = False


class CudaGraph(Graph):
    """A graph of the context of one device."""

    def __init__(self, cuda: Any, context: Any, version: tuple[int, int]) -> None:
        self._cuda, self._context, self._version = cuda, context, version
        self._graph = checked(cuda, "cuGraphCreate", cuda.cuGraphCreate(0))
        self._executable: Any = None
        weakref.finalize(self, cuda.cuGraphDestroy, self._graph).atexit = False

    def add_kernel(self, after: Handle | None, call: KernelCall) -> Handle:
        node = self._cuda.CUDA_KERNEL_NODE_PARAMS()
        node.func = call.function
        node.gridDimX, node.gridDimY, node.gridDimZ = call.grid
        node.blockDimX, node.blockDimY, node.blockDimZ = call.block
        node.sharedMemBytes = call.shared
        node.kernelParams = call.parameters
        is_early = call.overlaps and isinstance(after, _Node) and after.is_kernel and self._version >= _EARLY_STARTS
        result = self._cuda.cuGraphAddKernelNode(self._graph, *_dependencies(None if is_early else after), node)
        added = _Node(checked(self._cuda, "cuGraphAddKernelNode", result), node, is_kernel=True)
        if is_early:
            self._let_start_early(after, added)
        return added

    def _let_start_early(self, before: Handle | None, node: _Node) -> None:
        """An edge that lets a kernel start once all blocks of the kernel ``before`` have said so, or are done."""
        assert isinstance(before, _Node)
        cuda, edge = self._cuda, self._cuda.CUgraphEdgeData()
        edge.from_port = cuda.CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC
        edge.type = int(cuda.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)
        result = cuda.cuGraphAddDependencies(self._graph, [before.handle], [node.handle], [edge], 1)
        checked(cuda, "cuGraphAddDependencies", result)

    def add_copy(self, after: Handle | None, destination: int, source: int, size: int, *, to_host: bool = False) -> Handle:
        kinds = self._cuda.CUmemorytype
        node = self._cuda.CUDA_MEMCPY3D()
        node.srcMemoryType = kinds.CU_MEMORYTYPE_DEVICE
        node.srcDevice = source
        node.dstMemoryType = kinds.CU_MEMORYTYPE_HOST if to_host else kinds.CU_MEMORYTYPE_DEVICE
        self._set_destination(node, destination)
        node.WidthInBytes, node.Height, node.Depth = size, 1, 1
        result = self._cuda.cuGraphAddMemcpyNode(self._graph, *_dependencies(after), node, self._context)
        return _Node(checked(self._cuda, "cuGraphAddMemcpyNode", result), node)

    def add_fill(self, after: Handle | None, destination: int, value: int, width: int, count: int) -> Handle:
        node = self._cuda.CUDA_MEMSET_NODE_PARAMS()
        node.dst = destination
        node.value, node.elementSize, node.width, node.height = value, width, count, 1
        result = self._cuda.cuGraphAddMemsetNode(self._graph, *_dependencies(after), node, self._context)
        return _Node(checked(self._cuda, "cuGraphAddMemsetNode", result), node)

    def add_record(self, after: Handle | None, event: Handle) -> Handle:
        result = self._cuda.cuGraphAddEventRecordNode(self._graph, *_dependencies(after), event_handle(event))
        return _Node(checked(self._cuda, "cuGraphAddEventRecordNode", result), event)

    def instantiate(self) -> None:
        result = self._cuda.cuGraphInstantiate(self._graph, 0)
        self._executable = checked(self._cuda, "cuGraphInstantiate", result)
        weakref.finalize(self, self._cuda.cuGraphExecDestroy, self._executable).atexit = False

    def update_kernel(self, node: Handle) -> None:
        assert isinstance(node, _Node)
        result = self._cuda.cuGraphExecKernelNodeSetParams(self._executable, node.handle, node.parameters)
        checked(self._cuda, "cuGraphExecKernelNodeSetParams", result)

    def update_copy(self, node: Handle, destination: int, source: int) -> None:
        assert isinstance(node, _Node)
        node.parameters.srcDevice = source
        self._set_destination(node.parameters, destination)
        result = self._cuda.cuGraphExecMemcpyNodeSetParams(self._executable, node.handle, node.parameters, self._context)
        checked(self._cuda, "cuGraphExecMemcpyNodeSetParams", result)

    def update_fill(self, node: Handle, destination: int) -> None:
        assert isinstance(node, _Node)
        node.parameters.dst = destination
        result = self._cuda.cuGraphExecMemsetNodeSetParams(self._executable, node.handle, node.parameters, self._context)
        checked(self._cuda, "cuGraphExecMemsetNodeSetParams", result)

    def launch(self, stream: int) -> None:
        result = self._cuda.cuGraphLaunch(self._executable, stream)
        if result[0]:
            checked(self._cuda, "cuGraphLaunch", result)

    def _set_destination(self, node: Any, destination: int) -> None:
        if node.dstMemoryType == self._cuda.CUmemorytype.CU_MEMORYTYPE_HOST:
            node.dstHost = destination
        else:
            node.dstDevice = destination


def _dependencies(after: Handle | None) -> tuple[list[Any], int]:
    if after is None:
        return [], 0
    assert isinstance(after, _Node)
    return [after.handle], 1
