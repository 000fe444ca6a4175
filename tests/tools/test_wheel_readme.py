from __future__ import annotations

from tools.wheel.readme import with_addresses


def test_links_of_the_readme_lead_to_the_repository_at_the_tag() -> None:
    page = "See [`a`](docs/a.md#b), ![a view](docs/x.png), [there](https://example.com) and [below](#below); f(x)."
    assert with_addresses(page, "https://example.org/us", "v1.2.0") == (
        "See [`a`](https://example.org/us/blob/v1.2.0/docs/a.md#b), "
        "![a view](https://example.org/us/raw/v1.2.0/docs/x.png), "
        "[there](https://example.com) and [below](#below); f(x)."
    )
