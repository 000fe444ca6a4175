"""Passwords in URLs and values known to be secret do not stay in a text, however they are written there."""

import base64
import json
import random
import string
from urllib.parse import quote

import pytest
from torchx_pulumi.model.redaction import HIDDEN, encodings, hide, is_redacted, passwords_of, texts_in, without_password

PLAIN_URLS = (
    "file:///home/u:x@y/state?x=1",
    "s3://bucket/a@b?region=eu-1&endpoint=http://127.0.0.1:99&s3ForcePathStyle=true&disableSSL=true",
    "gs://bucket/x@y",
    "azblob://container?storage_account=x",
    "https://api.pulumi.com",
    "postgres://me@db/x?sslmode=verify-full&sslkey=/a/key&passfile=/a/b",
    "awskms://alias/torchx?region=eu-1",
    "http://127.0.0.1:5000/v2/x@sha256:abc",
)


@pytest.mark.parametrize("url", PLAIN_URLS)
def test_a_url_without_credentials_stays_as_it_is(url: str) -> None:
    assert without_password(url) == url
    assert without_password(f"cannot open {url!r}.") == f"cannot open {url!r}."
    assert not is_redacted(url)
    assert passwords_of(url) == ()


@pytest.mark.parametrize(
    ("url", "stored"),
    [
        ("postgres://me:hunter22@db/x", "postgres://me:***@db/x"),
        ("postgres://me:hun/ter@22@db:5432/x?sslmode=off", "postgres://me:***@db:5432/x?sslmode=off"),
        ("postgres://me:hun?ter#22@db/x", "postgres://me:***@db/x"),
        ("postgres://me:12/34567@db/x", "postgres://me:***@db/x"),
        ("postgres://db/x?user=me&password=hunter22", "postgres://db/x?user=me&password=***"),
        ("postgres://me@db/x?sslpassword=hunter22&sslmode=on", "postgres://me@db/x?sslpassword=***&sslmode=on"),
        ("postgres://me@db/x?p%61ssword=hunter22", "postgres://me@db/x?p%61ssword=***"),
        ("s3://AKIAKEY:hunter22@bucket/x", "s3://AKIAKEY:***@bucket/x"),
        ("s3://b?aws_secret_access_key=hunter22&region=x", "s3://b?aws_secret_access_key=***&region=x"),
        ("s3://b?endpoint=http%3A%2F%2Fme%3Ahunter22%40h", "s3://b?endpoint=***"),
        ("azblob://c?sas_token=hunter22&sig=hunter22", "azblob://c?sas_token=***&sig=***"),
        ("https://hunter22@host/x", "https://***@host/x"),
    ],
)
def test_credentials_of_a_url_are_taken_out_once(url: str, stored: str) -> None:
    assert without_password(url) == stored
    assert without_password(stored) == stored
    assert is_redacted(stored)
    assert passwords_of(url)
    for text in (f'parse "{url}": refused', f"({url})", f"{url}: no\n{url}"):
        assert not any(secret in without_password(text) for secret in passwords_of(url) if len(secret) > 4)


def test_random_passwords_never_stay() -> None:
    rng = random.Random(11)
    letters = string.ascii_letters + string.digits + "/@?#:&=%$!*()[]{},;'\"\\~^|+-._"
    for _ in range(2000):
        password = "".join(rng.choices(letters, k=rng.randint(12, 24))) + rng.choice(string.ascii_letters)
        core = password[3:-3]
        for url in (f"postgres://me:{password}@db/x", f"postgres://me:{quote(password, safe='')}@db:1/x?sslmode=off"):
            cleaned = without_password(f'cannot open "{url}"')
            assert core not in cleaned, url
            assert quote(core, safe="") not in cleaned, url
            assert "me:***@db" in cleaned, url


def test_what_go_says_of_a_password_with_a_slash_is_hidden() -> None:
    said = 'parse "postgres://me:hunter/22@db/x": invalid port ":hunter" after host'
    assert "hunter" not in without_password(said)


def test_settings_of_a_connection_are_hidden() -> None:
    said = "cannot connect: host=db user=me password='hun ter' sslpassword=x1y2, PGPASSWORD=abc"
    assert without_password(said) == "cannot connect: host=db user=me password='***' sslpassword=***, PGPASSWORD=***"


def test_a_known_secret_is_hidden_in_every_common_form() -> None:
    secret = 'pä$$"w\\rd\n-${x}-%41+/ 12345'
    raw = secret.encode()
    for text in (
        secret,
        repr(secret),
        json.dumps({"a": secret}),
        json.dumps(json.dumps(secret)),
        quote(secret),
        quote(secret, safe=""),
        raw.hex(),
        base64.b64encode(raw).decode(),
        base64.urlsafe_b64encode(raw).decode(),
        base64.b64encode(b"user:" + raw + b":tail").decode(),
        base64.b64encode(b"u:" + raw + b":tail").decode(),
        base64.b64encode(b"a:u:" + raw).decode(),
    ):
        assert HIDDEN in hide(f"before {text} after", [secret]), text


def test_short_secrets_are_not_looked_for() -> None:
    assert hide("1 of 10, true", ["1", "tru"]) == "1 of 10, true"
    assert hide("1 of 10, true", ["1", "true"]) == f"1 of 10, {HIDDEN}"
    assert set(texts_in({"a": [1, 2.5, True, None, "x"], "b": {"c": "y"}})) == {"1", "2.5", "x", "y"}
    assert "1" in set(encodings("1"))
