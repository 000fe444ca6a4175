"""Who may ask: hosts, origins, tokens and cookies."""

from __future__ import annotations

from pathlib import Path

import pytest
from torchx_pulumi_fleet.web.access import Asked, PageAccess
from torchx_pulumi_fleet.web.tokens import COOKIE_S, FileToken, GeneratedToken, make_cookie

TOKEN = "0123456789abcdef0123"


class FixedToken:
    """A token that a test changes."""

    def __init__(self, text: str = TOKEN) -> None:
        self.text = text

    def current(self) -> bytes:
        return self.text.encode()


def access(**more: object) -> PageAccess:
    rules = {"token": FixedToken(), "port": 8080, "hosts": frozenset({"torchx.example"}), "now": lambda: 1000.0, **more}
    return PageAccess(**rules)  # type: ignore[arg-type]


def asked(path: str = "/api/v1/apps", method: str = "GET", *, address: str = "127.0.0.1", **headers: str) -> Asked:
    named = {"host": "localhost:8080", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return Asked(method=method, path=path, headers=named, address=address)


@pytest.mark.parametrize(
    ("host", "address", "status"),
    [
        ("localhost:8080", "127.0.0.1", None),
        ("LOCALHOST.", "127.0.0.1", None),
        ("127.0.0.1:8080", "127.0.0.1", None),
        ("[::1]:8080", "::1", None),
        ("torchx.example", "10.1.2.3", None),
        ("10.1.2.3:8080", "10.1.2.3", None),
        ("10.1.2.3:8080", "::ffff:10.1.2.3", None),
        ("10.1.2.4:8080", "10.1.2.3", 421),
        ("rebound.example:8080", "127.0.0.1", 421),
        ("torchx.example.evil.example", "10.1.2.3", 421),
        ("localhost.evil.example", "127.0.0.1", 421),
        ("", "127.0.0.1", 400),
        ("localhost@evil", "127.0.0.1", 400),
        ("localhost:8080, evil", "127.0.0.1", 400),
    ],
)
def test_the_name_of_the_server_is_checked(host: str, address: str, status: int | None) -> None:
    refusal = access().refusal(asked(host=host, address=address))
    assert (None if refusal is None else refusal.status) == status


def test_probes_may_use_any_name() -> None:
    assert access().refusal(asked("/healthz", host="10.9.9.9:8080")) is None
    assert access().may(asked("/readyz"))


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({}, False),
        ({"origin": "http://localhost:8080"}, False),
        ({"origin": "https://torchx.example", "host": "torchx.example"}, False),
        ({"origin": "https://torchx.example", "host": "torchx.example:443"}, False),
        ({"origin": "http://localhost:9090"}, True),
        ({"origin": "https://evil.example"}, True),
        ({"origin": "null"}, True),
        ({"origin": "http://[broken"}, True),
        ({"sec_fetch_site": "same-origin", "sec_fetch_mode": "cors", "sec_fetch_dest": "empty"}, False),
        ({"sec_fetch_site": "cross-site", "sec_fetch_mode": "no-cors", "sec_fetch_dest": "image"}, True),
        ({"sec_fetch_site": "same-site", "sec_fetch_mode": "cors", "sec_fetch_dest": "empty"}, True),
        ({"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}, False),
        ({"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "iframe"}, True),
    ],
)
def test_pages_of_other_origins_are_refused(headers: dict[str, str], refused: bool) -> None:
    refusal = access().refusal(asked(**headers))
    assert (refusal is not None and refusal.status == 403) is refused


def test_a_form_of_another_site_is_refused() -> None:
    form = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    assert access().refusal(asked("/login", "POST", **form)) is not None


@pytest.mark.parametrize(
    ("header", "valid"),
    [
        (f"Bearer {TOKEN}", True),
        (f"bearer  {TOKEN} ", True),
        ("Bearer ", False),
        (f"Bearer {TOKEN}x", False),
        (f"Bearer {TOKEN[:-1]}", False),
        (f"Basic {TOKEN}", False),
        (TOKEN, False),
        ("Bearer \xff\u2603", False),
    ],
)
def test_a_bearer_needs_the_token(header: str, valid: bool) -> None:
    assert access().may(asked(authorization=header)) is valid


def test_a_cookie_is_valid_for_its_token_and_time() -> None:
    rules = access()
    header = rules.cookie(secure=False)
    assert header.endswith("; Path=/; Max-Age=604800; HttpOnly; SameSite=Strict")
    assert TOKEN not in header
    assert rules.cookie(secure=True).endswith("; SameSite=Strict; Secure")
    cookie = header.partition(";")[0]
    others = "a=1; =; torchx-pulumi-8081=x; [broken"
    assert rules.may(asked(cookie=cookie))
    assert rules.may(asked(cookie=f'{others}; {cookie}; b="{{'))
    assert access(now=lambda: 1000.0 + COOKIE_S - 1).may(asked(cookie=cookie))
    assert not access(now=lambda: 1000.0 + COOKIE_S).may(asked(cookie=cookie))
    assert not access(token=FixedToken("another-token-0123")).may(asked(cookie=cookie))
    assert not access(port=8081).may(asked(cookie=cookie))


@pytest.mark.parametrize("value", ["", ".", "9999999999.", "9999999999." + "0" * 64, "\u0664.x", f"9{'9' * 20}.x"])
def test_a_made_up_cookie_is_refused(value: str) -> None:
    assert not access().may(asked(cookie=f"torchx-pulumi-8080={value}"))


def test_a_cookie_cannot_be_prolonged() -> None:
    genuine = make_cookie(TOKEN.encode(), 1000.0)
    later = f"{10**11}.{genuine.partition('.')[2]}"
    assert not access().may(asked(cookie=f"torchx-pulumi-8080={later}"))


def test_a_generated_token_is_long_and_different_each_time() -> None:
    tokens = {GeneratedToken().text for _ in range(10)}
    assert len(tokens) == 10
    assert all(len(token) >= 43 for token in tokens)


def test_a_token_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path, said = tmp_path / "token", []
    path.write_text(f"  {TOKEN}\n")
    path.chmod(0o600)
    token = FileToken(path, said.append)
    assert token.current() == TOKEN.encode()
    path.write_text("another-token-0123")
    assert token.current() == b"another-token-0123"
    path.write_text("short")
    assert token.current() == b"another-token-0123"
    assert len(said) == 1
    assert "short" not in said[0].replace("short)", "")
    path.unlink()
    assert token.current() == b"another-token-0123"
    path.write_text(TOKEN)
    path.chmod(0o600)
    assert token.current() == TOKEN.encode()


def test_a_token_file_whose_mode_was_wrong_is_read_when_the_mode_is_right(tmp_path: Path) -> None:
    path, said = tmp_path / "token", []
    path.write_text(TOKEN)
    path.chmod(0o600)
    token = FileToken(path, said.append)
    path.write_text("another-token-0123")
    path.chmod(0o644)
    assert token.current() == TOKEN.encode()
    assert "chmod 600" in said[0]
    path.chmod(0o600)
    assert token.current() == b"another-token-0123"


@pytest.mark.parametrize(
    ("content", "mode", "part"),
    [
        (b"", 0o600, "is empty, allowed are 16 to 1024"),
        (b"hunter2", 0o600, "has a token of 7 characters"),
        (b"hunter2 hunter2 hunter2", 0o600, "blanks or other characters"),
        (b"hunter2-" * 200, 0o600, "has a longer token"),
        (b"hunter2-hunter2-hunter2", 0o640, "chmod 600"),
        (b"hunter2-hunter2-hunter2", 0o604, "chmod 600"),
    ],
)
def test_a_token_file_that_is_not_safe_is_refused(tmp_path: Path, content: bytes, mode: int, part: str) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    path.chmod(mode)
    with pytest.raises(ValueError, match=part) as refused:
        FileToken(path)
    assert "hunter2" not in str(refused.value)
    assert str(path) in str(refused.value)


def test_an_absent_token_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(ValueError, match="is not a file"):
            FileToken(path)


def test_a_secret_that_the_kubelet_mounts_is_taken_with_its_mode(tmp_path: Path) -> None:
    present = tmp_path / "..2026_03_04"
    present.mkdir()
    (present / "token").write_text(TOKEN)
    (present / "token").chmod(0o644)
    (tmp_path / "..data").symlink_to(present.name)
    (tmp_path / "token").symlink_to("..data/token")
    token = FileToken(tmp_path / "token")
    assert token.current() == TOKEN.encode()
    # The kubelet changes all files at once, by another link.
    later = tmp_path / "..2026_03_05"
    later.mkdir()
    (later / "token").write_text("another-token-0123")
    (tmp_path / "..data_tmp").symlink_to(later.name)
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    assert token.current() == b"another-token-0123"
