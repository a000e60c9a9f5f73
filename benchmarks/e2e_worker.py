"""The process that judges programs of torch-mlir's end-to-end suite, one at a time: whatever kills it costs one program.

It imports the suite from a work tree of llvm/torch-mlir and uses its programs, its recorded calls and its comparison as they
are.  The question is a program's name, or null for the names of all; ``benchmarks/e2e_suite.py`` asks.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import multiprocessing
import re
import resource
import statistics
import sys
import types
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import suite_adapter
import torch
from torch.utils import _pytree as pytree

from mlirstack.errors import MlirstackError, UnsupportedError
from mlirstack.frontend.half import HALF
from mlirstack.frontend.random_numbers import SEED
from mlirstack.supervised import Tell, serve

SUITE = Path("projects/pt1/python")
_RUNS = 16  # of eager and of ours, where answers are statistics of random numbers
_DEVIATIONS = 4.0  # between the two means, in standard errors: one fair generator in 16,000 lies beyond


@dataclass(frozen=True)
class Verdict:
    """What became of a program.

    ``verdict``: pass; chance (the answer is a statistic of random numbers that eager itself does not repeat to the suite's
    tolerance, and ours lies where eager's lie); finer (eager's half precision is further from its float32 than ours); wrong;
    refused (by name, before anything ran); error; cannot (eager or torch.export fails).  ``route`` is the one taken, ``why``
    the reason if it is not TOSA.
    """

    verdict: str
    reason: str = ""
    route: str | None = None
    why: str | None = None


# ------------------------------------------------------------------------------------------------------------- the suite


def load_suite(checkout: Path) -> dict[str, Any]:
    """The suite's programs by name."""
    root = checkout / SUITE
    warnings.filterwarnings("ignore")
    _stand_in_for_missing_packages(root)
    _load("torch_mlir_e2e_test", root / "torch_mlir_e2e_test" / "__init__.py", package=True)
    _suite("test_suite").register_all_tests()
    return {test.unique_name: test for test in _suite("registry").GLOBAL_TEST_REGISTRY}


def _suite(module: str) -> Any:
    """A module of the suite's package."""
    return importlib.import_module(f"torch_mlir_e2e_test.{module}")


def _load(name: str, path: Path, *, package: bool = False) -> None:
    folders = [str(path.parent)] if package else None
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=folders)
    assert spec is not None and spec.loader is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])


def _stand_in_for_missing_packages(root: Path) -> None:
    """The suite's own runner needs ``multiprocess``; its few programs of torchvision then count as what eager cannot do."""
    if importlib.util.find_spec("multiprocess") is None:
        sys.modules["multiprocess"] = multiprocessing
    _load("torch_mlir._version", root / "torch_mlir" / "_version.py")
    if importlib.util.find_spec("torchvision") is None:
        for name in ("torchvision", "torchvision.models", "torchvision.ops"):
            sys.modules[name] = types.ModuleType(name)
        sys.modules["torchvision"].models = sys.modules["torchvision.models"]  # type: ignore[attr-defined]
        sys.modules["torchvision"].ops = sys.modules["torchvision.ops"]  # type: ignore[attr-defined]


# ----------------------------------------------------------------------------------------------------------- one program


def judge(test: Any, target: str, route: str, tell: Tell) -> Verdict:
    """Eager, compile, run, compare."""
    framework = _suite("framework")
    tell("eager")
    torch.manual_seed(0)
    try:
        golden = framework.clone_trace(framework.generate_golden_trace(test))
    except Exception as error:  # whatever a program of others raises
        return Verdict("cannot", f"eager: {first_line(error)}")
    called = [item.symbol for item in golden if item.symbol not in ("", "forward")]
    if called:
        return Verdict("cannot", f"the program is called by '{called[0]}', not forward")
    torch.manual_seed(0)
    model = test.program_factory()
    trace, functions = [], []
    for item in golden:
        try:
            tell("compile")
            functions.append(suite_adapter.compile(model, _inputs(item), target=target, route=route))
            tell("run")
            trace.append(item._replace(output=functions[-1](*_inputs(item))))
        except Exception as error:  # a row of the table, not the end of the run
            tell("export")
            problem = _export_problem(test, golden)
            if problem:
                return Verdict("cannot", f"export: {problem}")
            return Verdict("refused" if isinstance(error, UnsupportedError) else "error", first_line(error))
    tell("compare")
    ways = functions[0].route, functions[0].fallback_reason and shown(functions[0].fallback_reason)
    difference = _difference(test.unique_name, trace, golden)
    if difference is None:
        return Verdict("pass", "", *ways)
    if any(SEED in function.parameters for function in functions):
        tell("chance")
        chance = _chance(test, golden, functions)
        if chance is not None:
            return Verdict("chance", chance, *ways)
    tell("finer")
    finer = _finer(test, trace, golden)
    return Verdict("wrong", difference, *ways) if finer is None else Verdict("finer", finer, *ways)


def _inputs(item: Any) -> tuple[Any, ...]:
    return tuple(_suite("framework").clone_torch_script_value(value) for value in item.inputs)


def _difference(name: str, trace: Sequence[Any], golden: Sequence[Any]) -> str | None:
    """The suite's own judgement: None, or in what the answers differ."""
    reporting = _suite("reporting")
    result = _suite("framework").TestResult(name, None, None, list(trace), list(golden))
    try:
        report = reporting.SingleTestReport(result, reporting.ErrorContext.empty())
    except Exception as error:  # the suite compares by operations that not all dtypes have
        return f"the suite cannot compare the answers: {first_line(error)}"
    if not report.failed:
        return None
    lines = report.error_str().splitlines()
    return next((line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")), lines[0])


def _export_problem(test: Any, golden: Sequence[Any]) -> str | None:
    """Why torch.export cannot capture the program, or None if it can."""
    problems = []
    for strict in (False, True):
        try:
            for item in golden:
                with torch.no_grad():
                    torch.export.export(test.program_factory(), _inputs(item), strict=strict)
            return None
        except Exception as error:  # whatever a program of others raises
            problems.append(first_line(error))
    return problems[0]


def _finer(test: Any, trace: Sequence[Any], golden: Sequence[Any]) -> str | None:
    """Whether our half precision is nearer to what eager says in float32 than eager's own: the two distances."""
    model = test.program_factory().float()
    said = None
    for ours, eager in zip(trace, golden, strict=True):
        precise = pytree.tree_leaves(model(*pytree.tree_map(_widened, _inputs(eager))))
        for got, given, wanted in zip(*map(pytree.tree_leaves, (ours.output, eager.output)), precise, strict=True):
            if not isinstance(given, torch.Tensor) or given.dtype not in HALF or got.shape != given.shape:
                return None
            distances = [float((value.float() - wanted).norm() / wanted.norm()) for value in (got, given)]
            if got.dtype != given.dtype or not distances[0] <= distances[1]:
                return None
            said = f"eager's answer is {distances[1]:.1e} from its own in float32, ours {distances[0]:.1e}"
    return said


def _widened(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype in HALF else value


def _chance(test: Any, golden: Sequence[Any], functions: Sequence[Callable[..., Any]]) -> str | None:
    """Whether answers are statistics that eager does not repeat either, and ours come from where eager's do: the reason."""
    model = test.program_factory()
    ours = [_numbers([f(*_inputs(item)) for f, item in zip(functions, golden, strict=True)]) for _ in range(_RUNS)]
    eager = [_numbers([model(*_inputs(item)) for item in golden]) for _ in range(_RUNS)]
    if len({len(numbers) for numbers in ours + eager}) != 1:
        return None
    repeats = all(
        torch.allclose(torch.tensor(left), torch.tensor(right), rtol=1e-3, atol=1e-7)
        for left, right in itertools.pairwise(eager)
    )
    if repeats:
        return None
    worst = max(_deviation(a, b) for a, b in zip(zip(*ours, strict=True), zip(*eager, strict=True), strict=True))
    return f"{_RUNS} runs of each agree to {worst:.1f} standard errors" if worst < _DEVIATIONS else None


def _numbers(answer: Any) -> list[float]:
    """What a few statistics are, as numbers; of whole tensors their mean and deviation."""
    found: list[float] = []
    for leaf in pytree.tree_leaves(answer):
        value = torch.as_tensor(leaf).to(torch.float64)
        found += value.flatten().tolist() if value.numel() <= 16 else [float(value.mean()), float(value.std())]
    return found


def _deviation(ours: Sequence[float], eager: Sequence[float]) -> float:
    """The distance of the means in standard errors."""
    distance = abs(statistics.fmean(ours) - statistics.fmean(eager))
    error = ((statistics.variance(ours) + statistics.variance(eager)) / len(ours)) ** 0.5
    return distance / error if error else float("inf") if distance else 0.0


# --------------------------------------------------------------------------------------------------------------- reasons

_PLACE = re.compile(r"(?: at |\()?(?:loc\()?\"?[\w./-]*\.py\"?:\d+(?::\d+)?\)?")


def first_line(error: Exception) -> str:
    """An error in one line: what it says, and the first operation that it is about."""
    if isinstance(error, UnsupportedError) and error.ops:
        return shown(f"{error.ops[0].op}: {error.ops[0].reason}")
    lines = [line for line in str(error).splitlines() if line.strip()] or [""]
    return shown(lines[0] if isinstance(error, MlirstackError) else f"{type(error).__name__}: {lines[0]}")


def shown(text: str) -> str:
    """A reason without places in files, which differ between checkouts, in one line."""
    return " ".join(_PLACE.sub("", text).split())[:240]


def main() -> None:
    """``e2e_worker.py CHECKOUT TARGET ROUTE GIGABYTES``."""
    checkout, target, route, gigabytes = sys.argv[1:]
    limit = int(float(gigabytes) * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    torch.set_num_threads(1)
    torch.autograd.set_grad_enabled(False)  # as the suite's own runner does
    tests = load_suite(Path(checkout))

    def answer(question: str | None, tell: Tell) -> Any:
        return sorted(tests) if question is None else vars(judge(tests[question], target, route, tell))

    serve(answer)


if __name__ == "__main__":
    main()
