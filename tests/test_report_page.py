"""The page in a real browser: headless Chromium opens it, clicks, searches, compares, and reports no error."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from report_models import FILE, dump_for, line_of

from mlirstack.compare.results import TargetResult
from mlirstack.report.dump_files import read_dump
from mlirstack.report.page import render
from mlirstack.report.provenance import provenance_of
from mlirstack.report.summary import stage_stat

pytestmark = pytest.mark.portable

CHROMIUM = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
DRIVER = shutil.which("chromedriver")
SECONDS = 20


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    dump = dump_for(folder, "cpu", passes=True)
    result = TargetResult("cpu", "ok", "tosa", 1.5e-7, 1e-6, 1e-5, 1.25, 0.002, 1.5)
    (folder / "compare.json").write_text(json.dumps({"model": "gated", "reference": "eager", "results": [asdict(result)]}))
    file = folder / "report.html"
    file.write_text(render(dump, provenance_of(dump)))
    return file


def test_the_page_needs_nothing_else_and_is_small(page_file: Path) -> None:
    text = page_file.read_text()
    assert len(text) < 1_000_000
    assert 'src="' not in text and "http://" not in text and "https://" not in text and "@import" not in text
    assert "1.50e-07" in text and "1.25 s" in text


class Page:
    """A browser with the page open; ``script`` is JavaScript that returns something."""

    def __init__(self, browser: Any, file: Path) -> None:
        self.browser = browser
        self.url = file.as_uri()

    def open(self, fragment: str = "") -> None:
        self.browser.get("about:blank")
        self.browser.get(self.url + fragment)
        self.wait(lambda: self.script("return document.documentElement.dataset.ready") == "yes")

    def script(self, text: str) -> Any:
        return self.browser.execute_script(text)

    def wait(self, condition: Callable[[], object]) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.browser, SECONDS, poll_frequency=0.05).until(lambda _: condition())

    def click(self, selector: str) -> None:
        """A click of the mouse in the middle of an element, which may be made anew at any time."""
        from selenium.webdriver.common.actions.action_builder import ActionBuilder

        box = self.script(f"return document.querySelector({selector!r}).getBoundingClientRect().toJSON()")
        x, y = round(box["left"] + min(90, box["width"] / 2)), round(box["top"] + box["height"] / 2)
        actions = ActionBuilder(self.browser)
        actions.pointer_action.move_to_location(x, y).click()
        actions.perform()

    def errors(self) -> list[str]:
        return [entry["message"] for entry in self.browser.get_log("browser") if entry["level"] == "SEVERE"]


@pytest.fixture(scope="module")
def page(page_file: Path) -> Iterator[Page]:
    selenium = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("no Chromium with its driver on this machine (Debian: chromium, chromium-driver)")
    from selenium.webdriver.chrome.service import Service

    options = selenium.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1500,900"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = selenium.Chrome(options=options, service=Service(DRIVER))
    yield Page(browser, page_file)
    browser.quit()


SOURCE = f"source:{FILE}"


def lit(page: Page, pane: int) -> list[str]:
    """The texts of the lit rows in sight of one pane."""
    return page.script(
        f"return [...document.querySelectorAll('.pane:nth-child({pane}) .row.strong, .pane:nth-child({pane}) .row.weak')]"
        ".map(row => row.textContent)"
    )


def test_a_click_on_a_line_of_the_model_lights_up_its_operations_and_its_assembly(page: Page) -> None:
    page.open(f"#v=levels&p={SOURCE},torch,asm")
    row = f'.pane:nth-child(1) .row[data-line="{line_of("gate")}"]'
    page.wait(lambda: page.script(f"return !!document.querySelector('{row}')"))
    page.click(row)
    page.wait(lambda: lit(page, 2))
    torch_ops = " ".join(lit(page, 2))
    assert "torch.aten.relu" in torch_ops and "torch.aten.sigmoid" in torch_ops and "torch.aten.mul" in torch_ops
    assert "torch.aten.mm" not in torch_ops
    page.wait(lambda: lit(page, 3))
    counted = page.script("return panes[2].hits.map(i => panes[2].text.lines[i])")
    assert any("divps" in line for line in counted) and len(counted) < page.script("return panes[2].text.lines.length")
    assert {"relu", "sigmoid", "mul"} <= set(
        page.script("return [...document.querySelectorAll('footer .chip')].map(c => c.textContent)")
    )
    assert f"l={SOURCE.replace(':', '%3A')}" in page.browser.current_url
    assert page.errors() == []


def test_a_click_on_assembly_leads_back_to_the_model(page: Page) -> None:
    page.open(f"#v=levels&p={SOURCE},asm")
    number = page.script("return panes[1].text.lines.findIndex(line => line.includes('divps'))")
    page.script(f"panes[1].rows.reveal({number})")
    page.click(f'.pane:nth-child(2) .row[data-line="{number + 1}"]')
    page.wait(lambda: lit(page, 1))
    assert any("torch.sigmoid" in line for line in lit(page, 1))


def test_an_address_opens_the_same_lines_again(page: Page) -> None:
    page.open(f"#v=levels&p=linalg,llvm&l={SOURCE}:{line_of('second')}")
    assert page.script("return panes.map(pane => pane.name)") == ["linalg", "llvm"]
    assert any(
        "linalg.batch_matmul" in line for line in page.script("return panes[0].hits.map(i => panes[0].text.lines[i])")
    )


def test_search_finds_lines_of_all_levels_and_opens_them(page: Page) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    page.open()
    page.browser.find_element(By.TAG_NAME, "body").send_keys("/")
    field = page.browser.find_element(By.ID, "find")
    field.send_keys("batch_matmul")
    page.wait(lambda: "linalg" in page.script("return document.querySelector('#results').textContent"))
    field.send_keys(Keys.ENTER)
    page.wait(lambda: page.script("return panes[active].name") == "linalg")
    assert page.script("return document.querySelectorAll('.pane mark').length") > 0
    assert page.errors() == []


def test_changes_show_stages_and_passes(page: Page) -> None:
    page.open("#v=changes")
    page.script("showStage('prepared')")
    page.wait(lambda: page.script("return document.querySelectorAll('#change .row.add').length") > 0)
    assert "func.func @prepare" in page.script("return document.querySelector('#change').textContent")
    steps = page.script("return [...document.querySelectorAll('#steps button')].map(b => b.textContent)")
    changed = [step for step in steps if "mlirstack-hoist-parameters" in step]
    assert len(changed) == 1 and "no change" not in changed[0]
    assert page.errors() == []


def test_any_two_stages_are_compared_as_in_the_terminal(page: Page, page_file: Path) -> None:
    dump = read_dump(page_file.parent)
    for a, b in (("linalg", "bufferized"), ("fused", "linalg"), ("torch", "llvmir"), ("tosa", "tosa")):
        page.open(f"#v=changes&d={a},{b}")
        page.wait(lambda: page.script("return document.querySelector('#after').value") == b)  # noqa: B023
        both = f"Promise.all([load({a!r}), load({b!r})])"
        found, lengths = page.script(
            f"return {both}.then(([x, y]) => [compareLines(x.lines, y.lines), [x.lines.length, y.lines.length]])"
        )
        assert [found[0][1], found[0][3]] == [int(dump[a].has_heading), int(dump[b].has_heading)]
        assert [found[-1][2], found[-1][4]] == lengths
        assert all((x[2], x[4]) == (y[1], y[3]) for x, y in itertools.pairwise(found))  # no line is left out
        changed = sum(run[2] - run[1] + run[4] - run[3] for run in found if run[0])
        expected = stage_stat(dump[a], dump[b])
        # Two ways to find the longest common lines; neither is the shortest difference in all cases.
        assert changed == pytest.approx(expected.removed + expected.added, rel=0.2)
    assert page.errors() == []


def test_keys_views_and_themes(page: Page) -> None:
    from selenium.webdriver.common.by import By

    page.open()
    body = page.browser.find_element(By.TAG_NAME, "body")
    body.send_keys("3")
    assert (
        page.script("return document.querySelector('section[data-view=operations] svg').getBoundingClientRect().height")
        > 100
    )
    body.send_keys("1")
    body.send_keys("]")
    body.send_keys("+")
    assert page.script("return panes.length") == 4
    for _ in range(2):
        body.send_keys("t")
    assert page.script("return document.documentElement.dataset.theme") == "dark"
    assert page.errors() == []
