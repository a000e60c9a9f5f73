"""``verify``: may this bundle run on this machine, and does it give the answers that it gave when it was built?

Manifest, files, versions and architecture are checked before any native loader sees a byte of the bundle; then the golden
inputs are run.  What fails says which file, number or version it is, and what would satisfy it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mlirstack.bundle import golden as golden_answers
from mlirstack.bundle.files import file_problems
from mlirstack.bundle.golden import Comparison, Golden
from mlirstack.bundle.load import LoadedModel, load_entry
from mlirstack.bundle.manifest import GOLDEN, Manifest, read_manifest
from mlirstack.bundle.select import Candidate, candidates, matches, reasons
from mlirstack.bundle.store import stored_golden
from mlirstack.bundle.trees import parse, unflatten
from mlirstack.errors import BundleError, MlirstackError, UsageError
from mlirstack.targets.requirements import is_installed

Status = Literal["ok", "failed", "skipped"]


@dataclass(frozen=True)
class Check:
    """One line of the report: ``step`` is manifest, files, versions, arch or golden; ``remedy`` is for what failed."""

    step: str
    subject: str
    status: Status
    detail: str
    remedy: str | None = None


@dataclass(frozen=True)
class VerifyReport:
    """All checks in order.

    ``ok`` where none failed and golden answers were compared for one artifact at least.
    """

    checks: tuple[Check, ...]
    comparisons: tuple[tuple[str, Comparison], ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the bundle may be used here."""
        ran = any(check.step == "golden" and check.status == "ok" for check in self.checks)
        return ran and all(check.status != "failed" for check in self.checks)


def verify(
    path: Path, *, device: str | None = None, threads: int = 1, progress: Callable[[str], None] = lambda doing: None
) -> VerifyReport:
    """Check the bundle at ``path``, and run every artifact that this machine can run (with ``device``: those it names).

    What cannot run here fails where ``device`` is its very name, or names nothing that runs; else it is skipped.
    """
    progress("manifest")
    try:
        manifest = read_manifest(path)
    except BundleError as error:
        return VerifyReport((Check("manifest", str(path), "failed", error.message, error.hint),))
    checks = [Check("manifest", path.name, "ok", _summary(manifest))]
    progress("files")
    problems = file_problems(path, manifest, afresh=True)
    if problems:
        remedy = "copy or build the bundle again"
        return VerifyReport((*checks, *(Check("files", p.name, "failed", p.reason, remedy) for p in problems)))
    size = sum(entry.size for entry in manifest.files.values())
    checks.append(Check("files", f"{len(manifest.files)} files", "ok", f"{size} bytes, checksums right"))
    wanted = [c for c in candidates(manifest) if device is None or matches(c.entry, device)]
    if not wanted:
        names = ", ".join(entry.spec for entry in manifest.artifacts)
        raise UsageError(f"the bundle holds nothing for '{device}'", hint=f"it holds: {names}")
    runnable = [candidate for candidate in wanted if not candidate.lacks]
    for candidate in wanted:
        is_meant = device == candidate.entry.spec or (device is not None and not runnable)
        checks += _machine_checks(candidate, asked_for=is_meant)
    if not runnable and device is None:
        text = f"nothing of the bundle runs here: {reasons(wanted)}"
        checks.append(Check("arch", "this machine", "failed", text, wanted[0].lacks[0].remedy))
    comparisons: list[tuple[str, Comparison]] = []
    if runnable:
        more, comparisons = _golden_checks(path, manifest, runnable, threads, progress)
        checks += more
    return VerifyReport(tuple(checks), tuple(comparisons))


def _summary(manifest: Manifest) -> str:
    targets = ", ".join(entry.spec for entry in manifest.artifacts)
    return f"{manifest.model} for {targets}, built {manifest.built}"


def _machine_checks(candidate: Candidate, *, asked_for: bool) -> list[Check]:
    spec = candidate.entry.spec
    if not candidate.lacks:
        wanted = candidate.entry.requirements
        versions = [f"{name}{specifier}" for name, specifier in wanted.packages.items()]
        versions += [f"VM bytecode {wanted.bytecode[0]}.{wanted.bytecode[1]}"] if wanted.bytecode else []
        versions += [f"a driver for CUDA {wanted.cuda[0]}.{wanted.cuda[1]}"] if wanted.cuda else []
        place = wanted.arch or (f"{wanted.machine}, {len(wanted.features)} features" if wanted.machine else wanted.device)
        return [Check("versions", spec, "ok", ", ".join(versions) or "nothing needed"), Check("arch", spec, "ok", place)]
    status: Status = "failed" if asked_for else "skipped"
    return [Check(lack.kind, spec, status, lack.reason, lack.remedy) for lack in candidate.lacks]


def _golden_checks(
    path: Path, manifest: Manifest, runnable: Sequence[Candidate], threads: int, progress: Callable[[str], None]
) -> tuple[list[Check], list[tuple[str, Comparison]]]:
    if manifest.rebuilt:
        return [Check("golden", GOLDEN, "failed", "the bundle holds no parameters", "build it with 'mlirstack build'")], []
    try:
        golden = stored_golden(path, manifest)
    except BundleError as error:
        return [Check("golden", GOLDEN, "failed", error.message, error.hint)], []
    checks: list[Check] = []
    found: list[tuple[str, Comparison]] = []
    for candidate in runnable:
        spec = candidate.entry.spec
        for number, case in enumerate(golden.cases):
            progress(f"{spec}: {case.name}")
            try:
                # A model that updates its buffers starts each case as it was built.
                model = load_entry(path, manifest, candidate.entry, "to verify", threads=threads)
                comparisons = run_case(model, golden, number)
            except MlirstackError as error:
                checks.append(Check("golden", f"{spec}, {case.name}", "failed", error.message, error.hint))
                continue
            found += [(spec, comparison) for comparison in comparisons]
            checks.append(_verdict(f"{spec}, {case.name}", comparisons, golden.precision))
    return checks, found


def run_case(model: LoadedModel, golden: Golden, number: int) -> list[Comparison]:
    """Call ``model`` with a golden case's inputs and compare every output."""
    case = golden.cases[number]
    leaves = golden.inputs(number)
    if is_installed("torch"):
        from mlirstack.bundle.torch_arrays import array_of, tensor_of

        place: Callable[[Any], Any] = lambda leaf: tensor_of(leaf).to(model.device)  # noqa: E731
        take: Callable[[Any], Any] = lambda leaf: array_of(leaf) if hasattr(leaf, "detach") else leaf  # noqa: E731
    else:
        place, take = (lambda leaf: leaf), (lambda leaf: leaf)
    given = [place(leaf) if isinstance(leaf, np.ndarray) else leaf for leaf in leaves]
    args, kwargs = structure_inputs(model.manifest, given)
    outputs = flatten_outputs(model.manifest, model.function(*args, **kwargs))
    compared = []
    for position, output in enumerate(case.outputs):
        got = take(given[output.position] if output.after_call else outputs[output.position])
        compared.append(golden_answers.compare(golden, number, position, got, tf32=model.tf32))
    return compared


def structure_inputs(manifest: Manifest, leaves: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Flat inputs as positional and keyword arguments of the model."""
    if not is_installed("torch"):
        args, kwargs = unflatten(parse(manifest.signature.in_spec), iter(leaves))
        return args, kwargs
    from torch.utils import _pytree as pytree

    from mlirstack.frontend import trees

    args, kwargs = pytree.tree_unflatten(list(leaves), trees.loads(manifest.signature.in_spec))
    return args, kwargs


def flatten_outputs(manifest: Manifest, output: Any) -> list[Any]:
    """The leaves of what the model returned."""
    if not is_installed("torch"):
        from mlirstack.bundle.trees import flatten

        return flatten(parse(manifest.signature.out_spec), output)
    from torch.utils import _pytree as pytree

    return pytree.tree_leaves(output)


def _verdict(subject: str, comparisons: Sequence[Comparison], precision: str) -> Check:
    wrong = [f"{c.name}: {c.reason}" for c in comparisons if c.reason]
    if wrong:
        remedy = "the code computes something else here than where it was built: build it on this machine, and report it"
        return Check("golden", subject, "failed", "; ".join(wrong[:3]), remedy)
    worst = max(comparisons, key=lambda c: c.rel_l2 / (c.tolerance or 1.0), default=None)
    detail = f"relative L2 error {worst.rel_l2:.1e} of {worst.tolerance:.1e} allowed" if worst else "returns nothing"
    against = f", against {precision}" if precision == golden_answers.OF_CPU else ""
    return Check("golden", subject, "ok", detail + against)
