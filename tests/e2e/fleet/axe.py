"""axe-core, which finds what keeps people from using a page; fetched once by npm, checked, and kept by its version."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from tools.bootstrap.cache import default_cache

VERSION = "4.14.1"
SHA512 = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="


def axe_script() -> str:
    """Return the script, from the cache or from npm's registry as it is configured."""
    kept = default_cache() / "npm" / f"axe-core-{VERSION}.js"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
            subprocess.run(["npm", "pack", "--silent", f"axe-core@{VERSION}"], cwd=folder, check=True, timeout=120)
            (package,) = Path(folder).glob("*.tgz")
            found = base64.b64encode(hashlib.sha512(package.read_bytes()).digest()).decode()
            assert found == SHA512, f"axe-core {VERSION} has the SHA-512 {found}; expected is {SHA512}"
            with tarfile.open(package) as files:
                script = files.extractfile("package/axe.min.js")
                assert script is not None
                made = Path(folder) / "axe.js"
                made.write_bytes(script.read())
            made.replace(kept)
    return kept.read_text()


def violations(page: Page) -> list[dict[str, Any]]:
    """Return the violations that axe-core finds in a page as it is shown: the rule, its impact, and the elements.

    Colors that are still changing from one style to the next are waited for: between the two no contrast holds.
    """
    page.wait_for_function("document.getAnimations().every(one => !(one instanceof CSSTransition))")
    if page.evaluate("typeof window.axe") == "undefined":
        page.evaluate(f"() => {{ {axe_script()} }}")
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    return [
        {
            "rule": one["id"],
            "impact": one["impact"],
            "help": one["help"],
            "elements": [node["html"][:200] for node in one["nodes"]][:5],
        }
        for one in found["violations"]
    ]
