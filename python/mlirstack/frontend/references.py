"""Model references of the command line to models: zoo names, Python files and modules, .pt2 archives, ONNX and MLIR files.

What is loaded is the user's own code: whatever it raises comes back as one :class:`UsageError` that names file and line.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import logging
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.export import Dim, ExportedProgram
from torch.utils import _pytree as pytree

from mlirstack.errors import UsageError
from mlirstack.frontend.containers import register_containers
from mlirstack.frontend.dynamic_option import DynamicRanges, parse_dynamic
from mlirstack.frontend.export import Inputs, export, given_inputs
from mlirstack.frontend.onnx.source import OnnxModule, load_onnx
from mlirstack.frontend.program import Program
from mlirstack.pipeline.registry import nearest

_FORMS = "zoo:NAME, file.py:ATTR, package.module:ATTR, file.py (KernelBench), model.pt2, model.onnx, x.mlir, x.mlirbc"
_DTYPES = {
    "f16": torch.float16, "f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16,
    "float16": torch.float16, "float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16,
    "half": torch.float16, "float": torch.float32, "double": torch.float64,
}  # fmt: skip


Model = nn.Module | ExportedProgram | Program | str | Path
"""What stands for a model in Python: a module, a program, or a model reference."""


@dataclass(frozen=True)
class ModelSource:
    """A model ready to be called and exported: ``model(*inputs, **kwargs)``; ``dynamic_shapes`` is torch.export's."""

    name: str
    model: nn.Module | ExportedProgram
    inputs: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    dynamic_shapes: Any = None

    def __post_init__(self) -> None:
        if isinstance(self.model, nn.Module):
            register_containers(self.model)  # before eager's first answer is taken apart

    @property
    def eager(self) -> Callable[..., Any]:
        """The model as eager PyTorch runs it."""
        return self.model.module() if isinstance(self.model, ExportedProgram) else self.model

    def program(self, *, allow_random: bool = False) -> Program:
        """Export the model (see :func:`~mlirstack.frontend.export.export`); one of an ONNX file is imported."""
        if isinstance(self.model, OnnxModule):
            return self.model.program()
        return export(
            self.model,
            self.inputs,
            self.kwargs,
            dynamic_shapes=self.dynamic_shapes,
            name=self.name,
            allow_random=allow_random,
        )


def source_of(
    model: Model,
    inputs: Inputs = (),
    *,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    name: str | None = None,
) -> ModelSource | Program:
    """``model`` with the inputs of a call; where it is a reference, and no inputs are given, with the inputs it brings."""
    if isinstance(model, Program):
        return model
    given = given_inputs(inputs)
    if not isinstance(model, (str, Path)):
        return ModelSource(name or type(model).__name__, model, given, dict(kwargs or {}), dynamic_shapes)
    found = load(str(model))
    if isinstance(found, Program):
        return found
    if given or kwargs:
        found = replace(found, inputs=given, kwargs=dict(kwargs or {}), dynamic_shapes=None)
    return replace(found, name=name or found.name, dynamic_shapes=dynamic_shapes or found.dynamic_shapes)


def load_program(
    reference: str, *, seed: int = 0, dtype: str | None = None, dynamic: Mapping[str, str] | None = None
) -> Program:
    """The program that ``reference`` stands for, exported if it is a torch model."""
    source = load(reference, seed=seed, dtype=dtype, dynamic=dynamic)
    return source if isinstance(source, Program) else source.program()


def load(
    reference: str, *, seed: int = 0, dtype: str | None = None, dynamic: Mapping[str, str] | None = None
) -> ModelSource | Program:
    """The model (or for MLIR files the program) that ``reference`` stands for.

    ``seed`` sets weights and inputs of models that are built here.  ``dtype`` ("f16", "bfloat16", …) converts floating-point
    weights and inputs.  ``dynamic`` holds the ``--dynamic`` options: ``{"x:0": "1..64"}``.  Raises :class:`UsageError`.
    """
    ranges = parse_dynamic(dynamic or {})
    wanted = _dtype(dtype)
    if reference.endswith((".pt2", ".onnx", ".mlir", ".mlirbc")):
        if wanted is not None or ranges:
            option = "--dtype" if wanted is not None else "--dynamic"
            raise UsageError(f"{option} does not apply to {reference}: shapes and dtypes are fixed in the file")
        path = _existing(reference)
        if path.suffix == ".pt2":
            return _load_pt2(path)
        if path.suffix == ".onnx":
            return ModelSource(path.stem, *load_onnx(path, seed))
        from mlirstack.frontend.mlir_source import load_mlir  # needs MLIR; torch models can be loaded without

        return load_mlir(path)
    source = _load_python(reference, seed)
    if wanted is not None:
        source = _converted(source, wanted)
    return replace(source, dynamic_shapes=_dynamic_shapes(source, ranges)) if ranges else source


def rebuilt_parameters(reference: str, source: ModelSource | Program) -> dict[str, torch.Tensor]:
    """Parameters and buffers by the names that a signature gives them, where loading ``reference`` anywhere gives the same.

    That is so for models of the zoo; for all others the result is empty.
    """
    if not reference.startswith("zoo:") or not isinstance(source, ModelSource) or not isinstance(source.model, nn.Module):
        return {}
    found = dict(source.model.named_parameters(remove_duplicate=False))
    return found | dict(source.model.named_buffers(remove_duplicate=False))


def _load_python(reference: str, seed: int) -> ModelSource:
    head, separator, attribute = reference.rpartition(":")
    if head == "zoo":
        return _load_zoo(attribute, seed)
    if not separator:
        if not reference.endswith(".py"):
            raise UsageError(f"'{reference}' is no model reference", hint=f"forms: {_FORMS}")
        path = _existing(reference)
        with _seeded(seed):
            module = _import_file(path)
        return _load_kernelbench(path, module, seed)
    with _seeded(seed):  # for models that are built when the file is imported
        module = _import_file(_existing(head)) if head.endswith(".py") else _import_module(head)
    return _load_attribute(reference, module, attribute, seed)


def _existing(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        siblings = [p.name for p in path.parent.iterdir() if p.suffix == path.suffix] if path.parent.is_dir() else []
        raise UsageError(f"no file {path}{nearest(path.name, siblings)}", hint=f"forms of a model reference: {_FORMS}")
    return path


def _dtype(name: str | None) -> torch.dtype | None:
    if name is None:
        return None
    if name not in _DTYPES:
        raise UsageError(f"unknown dtype '{name}'{nearest(name, [*_DTYPES])}", hint="one of f64, f32, f16, bf16")
    return _DTYPES[name]


# ------------------------------------------------------------------------------------------------------- kinds of models


def _load_zoo(name: str, seed: int) -> ModelSource:
    zoo = importlib.import_module("mlirstack.zoo")
    if name not in zoo.names():
        raise UsageError(f"the zoo has no model '{name}'{nearest(name, zoo.names())}")
    model = zoo.get(name, seed)
    return ModelSource(name, model.module, tuple(model.inputs), dynamic_shapes=model.dynamic_shapes)


def _load_pt2(path: Path) -> ModelSource:
    log = logging.getLogger("torch.export")
    disabled, log.disabled = log.disabled, True  # it logs a traceback before it raises
    try:
        program = torch.export.load(path)
    except Exception as error:  # torch.export.load raises many kinds for a damaged archive
        raise UsageError(f"{path} is not a torch.export archive: {_first_line(error)}") from error
    finally:
        log.disabled = disabled
    args, kwargs = program.example_inputs or ((), {})
    return ModelSource(path.stem, program, tuple(args), dict(kwargs))


def _load_attribute(reference: str, module: ModuleType, attribute: str, seed: int) -> ModelSource:
    if not hasattr(module, attribute):
        public = [name for name in vars(module) if not name.startswith("_")]
        where = reference.rpartition(":")[0]
        raise UsageError(f"{where} has no '{attribute}'{nearest(attribute, public)}", hint=f"forms: {_FORMS}")
    found = getattr(module, attribute)
    if isinstance(found, type) and issubclass(found, nn.Module):
        if not hasattr(found, "example_inputs"):
            raise UsageError(
                f"the class '{attribute}' has no example_inputs()",
                hint="add a method that returns a tuple of tensors, or refer to a function that returns (module, inputs)",
            )
        model = _call(reference, found, seed).eval()  # the caller had no occasion to
        return _source(reference, attribute, model, _call(reference, model.example_inputs, seed))
    own_inputs = getattr(found, "example_inputs", None)
    if isinstance(found, nn.Module) and callable(own_inputs):
        return _source(reference, attribute, found, _call(reference, own_inputs, seed))
    if isinstance(found, nn.Module) or not callable(found):
        raise UsageError(
            f"'{reference}' is a {type(found).__name__}",
            hint="it must be a function that returns (module, inputs), or an nn.Module (class) with example_inputs()",
        )
    returned = _call(reference, found, seed)
    if not (isinstance(returned, tuple) and len(returned) in (2, 3) and isinstance(returned[0], nn.Module)):
        raise UsageError(
            f"'{reference}' returned {_shape_of(returned)}",
            hint="it must return (module, inputs), or (module, inputs, dynamic_shapes)",
        )
    source = _source(reference, attribute, returned[0], returned[1])
    return replace(source, dynamic_shapes=returned[2]) if len(returned) == 3 else source


def _load_kernelbench(path: Path, module: ModuleType, seed: int) -> ModelSource:
    missing = [name for name in ("Model", "get_inputs", "get_init_inputs") if not hasattr(module, name)]
    if missing:
        raise UsageError(
            f"{path} has no {', '.join(missing)}",
            hint=f"without an attribute the file must follow KernelBench's convention; else write {path}:ATTR",
        )
    arguments = _call(str(path), module.get_init_inputs, seed)
    # KernelBench gives either positional arguments or [args, kwargs].
    keywords: dict[str, Any] = {}
    if len(arguments) == 2 and isinstance(arguments[0], (list, tuple)) and isinstance(arguments[1], dict):
        arguments, keywords = arguments
    model = _call(str(path), lambda: module.Model(*arguments, **keywords), seed)
    return _source(str(path), path.stem, model, _call(str(path), module.get_inputs, seed))


def _source(reference: str, name: str, model: nn.Module, inputs: Any) -> ModelSource:
    if isinstance(inputs, torch.Tensor):
        return ModelSource(name, model, (inputs,))
    if isinstance(inputs, dict):
        return ModelSource(name, model, (), dict(inputs))
    if isinstance(inputs, (tuple, list)):
        return ModelSource(name, model, tuple(inputs))
    raise UsageError(
        f"'{reference}' gives a {type(inputs).__name__} as example inputs", hint="it must be a tuple of tensors"
    )


def _shape_of(value: object) -> str:
    if isinstance(value, tuple):
        return "a tuple of (" + ", ".join(type(v).__name__ for v in value) + ")"
    return f"a {type(value).__name__}"


# ------------------------------------------------------------------------------------------------------- the user's code


def _import_file(path: Path) -> ModuleType:
    path = path.resolve()
    name = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # classes in it can be pickled and inspected
    sys.path.insert(0, str(path.parent))  # files beside it can be imported
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _raised(str(path), error) from error
    finally:
        sys.path.remove(str(path.parent))
    return module


def _import_module(name: str) -> ModuleType:
    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` has it
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise UsageError(f"there is no module '{name}'", hint=f"forms of a model reference: {_FORMS}") from None
        raise _raised(name, error) from error
    except (Exception, SystemExit) as error:
        raise _raised(name, error) from error


def _call(reference: str, function: Callable[[], Any], seed: int) -> Any:
    """Call the user's function with a fixed seed."""
    try:
        with _seeded(seed):
            return function()
    except Exception as error:
        raise _raised(reference, error) from error


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Random numbers of ``seed``; the global random state is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def _raised(reference: str, error: BaseException) -> UsageError:
    own = Path(__file__).name
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).name != own and "<" not in f.filename]
    place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    if isinstance(error, SyntaxError) and error.filename:
        place = f" at {error.filename}:{error.lineno}"
    return UsageError(f"'{reference}' raised {_first_line(error)}{place}")


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


# ---------------------------------------------------------------------------------------------------------- the options


def _converted(source: ModelSource, dtype: torch.dtype) -> ModelSource:
    def convert(leaf: Any) -> Any:
        return leaf.to(dtype) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf

    assert isinstance(source.model, nn.Module)
    inputs, kwargs = pytree.tree_map(convert, (source.inputs, source.kwargs))
    return replace(source, model=source.model.to(dtype), inputs=inputs, kwargs=kwargs)


def _dynamic_shapes(source: ModelSource, ranges: DynamicRanges) -> dict[str, Any]:
    """torch.export's ``dynamic_shapes`` for ``--dynamic`` options; dimensions that must agree are found to agree."""
    assert isinstance(source.model, nn.Module)
    bound = inspect.signature(source.model.forward).bind(*source.inputs, **source.kwargs).arguments
    shapes: dict[str, Any] = dict.fromkeys(bound)
    for name, axes in ranges.items():
        if name not in bound:
            raise UsageError(f"--dynamic: the model has no input '{name}'{nearest(name, [*bound])}", hint=_names(bound))
        tensor = bound[name]
        if not isinstance(tensor, torch.Tensor):
            raise UsageError(f"--dynamic: input '{name}' is a {type(tensor).__name__}, not a tensor")
        for axis, (low, high) in axes.items():
            if axis >= tensor.dim():
                raise UsageError(f"--dynamic: input '{name}' has {tensor.dim()} dimensions, so no dimension {axis}")
            shapes[name] = {**(shapes[name] or {}), axis: Dim.DYNAMIC(min=low, max=high)}
    return shapes


def _names(bound: Mapping[str, Any]) -> str:
    return "its inputs: " + ", ".join(bound)
