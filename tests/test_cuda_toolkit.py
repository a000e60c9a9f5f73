"""Where NVIDIA's programs are found: pip's wheels, a toolkit that is named, on PATH, or in its usual place."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlirstack.errors import MissingDependencyError
from mlirstack.passes.cuda import toolkit

pytestmark = pytest.mark.portable


@pytest.fixture
def no_wheels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without NVIDIA's wheels and without a toolkit; a folder for one."""
    monkeypatch.setattr(toolkit, "_wheels", tuple)
    monkeypatch.setattr(toolkit, "_USUAL_PLACES", (str(tmp_path / "usual"),))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


def _install_toolkit(folder: Path) -> None:
    (folder / "bin").mkdir(parents=True)
    for name in toolkit.PACKAGES:
        (folder / "bin" / name).write_text("")
        (folder / "bin" / name).chmod(0o755)
    (folder / toolkit.LIBDEVICE).parent.mkdir(parents=True)
    (folder / toolkit.LIBDEVICE).write_text("")


@pytest.mark.parametrize("how", ["CUDA_HOME", "CUDA_PATH", "PATH", "usual"])
def test_an_installed_toolkit_serves_as_well(no_wheels: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    assert toolkit.find_program("ptxas") is None and toolkit.find_libdevice() is None
    folder = no_wheels / how
    _install_toolkit(folder)
    if how != "usual":
        monkeypatch.setenv(how, str(folder / "bin" if how == "PATH" else folder))
    for name in toolkit.PACKAGES:
        assert toolkit.find_program(name) == folder / "bin" / name
    assert toolkit.find_libdevice() == folder / toolkit.LIBDEVICE


def test_without_wheel_and_toolkit_the_message_names_both(no_wheels: Path) -> None:
    for needed in (lambda: toolkit.program("nvdisasm"), toolkit.libdevice):
        with pytest.raises(MissingDependencyError, match="CUDA_HOME"):
            needed()
