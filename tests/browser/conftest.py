"""A real headless Chromium, and the pages of composed reports.

Chromium and its driver are Debian's packages; `make browser` installs them.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import ansible.module_utils
import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

PROJECT = Path(__file__).resolve().parents[2]
ansible.module_utils.__path__.append(str(PROJECT / "module_utils"))
sys.path[:0] = [str(PROJECT / "tests" / folder) for folder in ("fixtures/reports", "unit/job")]

# A page of 1,024 nodes on a busy machine; one that does not get ready fails by its assertion, not by this.
PATIENCE_S = 120


def found(program: str) -> str:
    path = shutil.which(program)
    assert path, f"{program} is not installed; expected: the Debian packages that `make browser-packages` installs"
    return path


class Browser:
    """A page in Chromium, and what one may ask of it."""

    def __init__(self, driver: webdriver.Chrome, folder: Path) -> None:
        self.driver, self._folder = driver, folder

    def open(self, content: str, *, width: int = 1200, dark: bool = False) -> Path:
        """Open a page from a file, as a user does, with no way to any network; returns the file."""
        path = self._folder / "report.html"
        path.write_text(content, encoding="utf-8")
        self.visit(path.as_uri(), width=width, dark=dark)
        return path

    def visit(self, address: str, *, width: int = 1200, dark: bool = False) -> None:
        """Open a page by its address."""
        self.turn(dark=dark)
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.get_log("browser")
        self.driver.get(address)

    def turn(self, *, dark: bool) -> None:
        """Let the system be dark or light."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def until(self, script: str) -> None:
        WebDriverWait(self.driver, PATIENCE_S, 0.05).until(lambda driver: driver.execute_script(script))

    def run(self, script: str):
        return self.driver.execute_script(script)

    def one(self, selector: str):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def press(self, *keys: str) -> None:
        self.driver.switch_to.active_element.send_keys(*keys)

    def complaints(self) -> list[str]:
        """Return the errors and warnings of the console, blocked addresses among them."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = found("chromium")
    profile = tmp_path_factory.mktemp("profile")
    # Its sandbox does not run as root, nor its shared memory in small containers; names lead nowhere.
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        f"--user-data-dir={profile}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(found("chromedriver")))
    yield driver
    driver.quit()


@pytest.fixture
def browser(chromium, tmp_path):
    return Browser(chromium, tmp_path)
