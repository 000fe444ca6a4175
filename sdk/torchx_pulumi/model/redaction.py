"""Removal of secrets from texts: passwords in URLs, and values that are known to be secret.

All code that prints, logs, raises or stores the URL of a backend uses `without_password`. The first rule remains: a
message contains no value that can be secret.
"""

from __future__ import annotations

import base64
import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote, quote_plus, unquote

from torchx_pulumi.model.object_schemes import SCHEMES

MARK = "***"
"""Replacement of a password."""

HIDDEN = "[secret]"
"""Replacement of a secret value, as in Pulumi's output."""

SHORTEST = 4
"""Characters of the shortest secret that is replaced. `1` or `no` would match too many texts."""

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>[^\s<>`]*)")
_PAIR = re.compile(r"(?P<start>[?&;#])(?P<name>[^=&;?#\s]+)=(?P<value>[^&\s]*)")
_QUERY = re.compile(
    r"\?(ssl\w*|user|pass\w*|host\w*|port|dbname|options|service|application_name|connect_timeout|search_path|"
    r"target_session_attrs|pool_\w+|region|endpoint|token)=[^?]*$",
    re.IGNORECASE,
)
"""Query of a URL whose password may contain a `?`: it begins with a parameter of databases."""

_SETTING = re.compile(
    r"\b(?P<name>(?:ssl)?password|passwd|pwd|pgpassword)=(?P<value>'[^']*'|\"[^\"]*\"|[^\s&]+)", re.IGNORECASE
)
_PORT = re.compile(r'invalid port \\?"[^"\\]*\\?"')
"""Go's error about a password with a `/`: it parses the part before the `/` as a port."""

_END = re.compile(r"[\"',;:.)\]}\\]*$")
"""Punctuation after a URL in a sentence."""

_SECRET_NAME = re.compile(
    r"pass(word|wd|phrase|wort)?$|pwd$|secret|token|credential|signature|^(?:sig|sas)$|^auth|api[_-]?key|"
    r"(access|account|private|shared|signing|encryption|storage)[_-]?key",
    re.IGNORECASE,
)
"""Names of parameters and variables with secret values. `sslkey` and `passfile` are paths."""

_HEADER = re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9+/=_.~-]{8,}")
_TOKEN = re.compile(r"\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?|\bk8s-aws-v1\.[\w-]+")
"""JSON Web Tokens and tokens of EKS."""

_KEY = re.compile(r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?(?:-----END \1-----|\Z)", re.DOTALL)
_ASSIGNED = re.compile(
    r"(?P<name>[\w-]*(?:passw(?:or)?d|passphrase|secret|token|key[_-]?data|credentials?|api[_-]?key)[\w-]*)"
    r"(?P<sign>[\"']?\s*[:=]\s*|\s+(?=[\"']))(?P<value>\"[^\"]*\"|'[^']*'|[^\s,;]+)",
    re.IGNORECASE,
)
"""A name that suggests a secret, and its value."""

_NO_USER = frozenset({"file", "unix"})
"""Schemes whose URLs have no user. An `@` is part of the path."""

_NO_PASSWORD = frozenset({*SCHEMES, "http", "https", "awskms", "gcpkms", "azurekeyvault", "hashivault"})
"""Schemes whose paths may contain an `@`. Only an `@` before the path ends the user."""


def without_password(text: str) -> str:
    """Return a text with the credentials of its URLs replaced by `***`.

    A second call changes nothing. A URL without its password is also the name of a backend.

    >>> without_password("postgres://me:secret@db/x refused")
    'postgres://me:***@db/x refused'
    >>> without_password("postgres://me:p/w@x@db/x?sslmode=off&sslpassword=abc")
    'postgres://me:***@db/x?sslmode=off&sslpassword=***'
    >>> without_password("s3://bucket/a@b?region=eu-1"), without_password("file:///mnt/a@b")
    ('s3://bucket/a@b?region=eu-1', 'file:///mnt/a@b')
    """
    if "://" in text:
        text = _URL.sub(_clean_url, text)
    text = _PORT.sub(f'invalid port "{MARK}"', text)
    return _SETTING.sub(lambda match: f"{match['name']}={_hidden_value(match['value'])}", text)


def passwords_of(url: str) -> tuple[str, ...]:
    """Return the credentials in a URL, as they are written and decoded.

    >>> passwords_of("postgres://me:p%2Fw@db/x?sslpassword=abc")
    ('abc', 'p%2Fw', 'p/w')
    """
    match = _URL.match(url)
    if match is None:
        return ()
    user, rest = _split_user(match["scheme"].lower(), match["rest"])
    found = [pair["value"] for pair in _PAIR.finditer(rest) if _is_secret(pair["name"], pair["value"])]
    name, colon, password = user.partition(":")
    if user and (colon or not _is_postgres(match["scheme"])):
        found.append(password if colon else name)
    # Errors of URL parsers repeat a password up to an unexpected character.
    parts = [text for value in found for text in (value, unquote(value), *re.split(r"[/?#@:]", value))]
    return tuple(dict.fromkeys(text for text in parts if text and text != MARK))


def is_redacted(url: str) -> bool:
    """Return whether `without_password` replaced credentials in a URL."""
    match = _URL.match(url)
    if match is None or without_password(url) != url:
        return False
    user, rest = _split_user(match["scheme"].lower(), match["rest"])
    return user.endswith(MARK) or any(pair["value"] == MARK for pair in _PAIR.finditer(rest))


def hide(text: str, secrets: Iterable[str]) -> str:
    """Return a text with secret values replaced by `[secret]`, also in quoted and encoded forms.

    Secrets of less than four characters are replaced only in quotes.

    >>> hide("found 'hunter22' and aHVudGVyMjI=, no 'no'", ["hunter22", "no"])
    "found '[secret]' and [secret], no '[secret]'"
    """
    given = [secret for secret in secrets if secret]
    forms = {form for secret in given if len(secret) >= SHORTEST for form in _forms(secret)}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, HIDDEN)
    for short in (secret for secret in given if len(secret) < SHORTEST):
        text = text.replace(f"'{short}'", f"'{HIDDEN}'").replace(f'"{short}"', f'"{HIDDEN}"')
    return text


def without_credentials(text: str, secrets: Iterable[str] = ()) -> str:
    """Return the output of a program without texts that look like credentials and without known secrets.

    >>> without_credentials("Bearer abcdefgh.ijk refused; password=hunter22, user=me")
    'Bearer [secret] refused; password=[secret], user=me'
    """
    text = _KEY.sub(HIDDEN, hide(without_password(text), secrets))
    text = _TOKEN.sub(HIDDEN, _HEADER.sub(rf"\1 {HIDDEN}", text))
    return _ASSIGNED.sub(lambda match: f"{match['name']}{match['sign']}{HIDDEN}", text)


def secret_variables(environment: Mapping[str, str]) -> list[str]:
    """Return the values of variables whose names suggest a secret.

    >>> secret_variables({"AWS_SECRET_ACCESS_KEY": "abc", "AWS_PROFILE": "lab"})
    ['abc']
    """
    return [value for name, value in environment.items() if value and _SECRET_NAME.search(name)]


def path_shown(text: str) -> str:
    r"""Return a path or a URI for a message. Other texts are not repeated: they may be the contents of the file.

    >>> path_shown("a/b.yaml"), path_shown("users: [{token: abc}]")
    ("'a/b.yaml'", '(21 characters that are not a path)')
    """
    if len(text) > 250 or re.search(r"[\n\0{\[]|: ", text):
        return f"({len(text)} characters that are not a path)"
    return repr(without_password(text))


def yaml_problem(error: Exception) -> str:
    """Return the problem of a YAML text without any part of the text."""
    said = str(getattr(error, "problem", None) or getattr(error, "context", None) or "it cannot be read")
    if re.search(r"alias|anchor|tag|duplicate", said):
        # In these messages, the quotes contain a word of the text; in others, what YAML expected.
        said = re.sub(r"'[^']*'|\"[^\"]*\"", "...", said)
    return said


@functools.lru_cache(maxsize=256)
def _forms(secret: str) -> frozenset[str]:
    """Return the encodings of a secret. It is searched for in hundreds of texts of an observation."""
    return frozenset(encodings(secret))


def encodings(secret: str) -> Iterator[str]:
    """Yield the forms in which a text may occur: plain, escaped, quoted for URLs, base64, hexadecimal."""
    raw = secret.encode("utf-8", "surrogatepass")
    yield secret
    yield repr(secret)[1:-1]
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield json.dumps(json.dumps(secret)[1:-1])[1:-1]
    yield quote(raw, safe="")
    yield quote(raw)
    yield quote_plus(raw)
    yield raw.hex()
    for alphabet in (base64.b64encode, base64.urlsafe_b64encode):
        whole = alphabet(raw).decode()
        yield whole
        yield whole.rstrip("=")
    if len(raw) >= 2 * SHORTEST:
        # In the base64 of a longer text it begins at one of three offsets. The bits of its neighbours are omitted.
        for offset in range(3):
            text = base64.b64encode(bytes(offset) + raw).decode().rstrip("=")
            first, last = (0, 2, 3)[offset], len(text) - (1 if (offset + len(raw)) % 3 else 0)
            yield text[first:last]
    lines = [line.strip() for line in secret.splitlines()]
    if len(lines) > 1:
        yield from (line for line in lines if len(line) >= 2 * SHORTEST)


def texts_in(value: object) -> Iterator[str]:
    """Yield every text in plain data without the keys of mappings. Numbers are converted to texts."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from texts_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from texts_in(item)
    elif isinstance(value, str):
        yield value
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield str(value)


def _clean_url(match: re.Match[str]) -> str:
    scheme, whole = match["scheme"], match["rest"]
    end = _END.search(whole)
    tail = end[0] if end is not None else ""
    user, rest = _split_user(scheme.lower(), whole[: len(whole) - len(tail)])
    if user:
        name, colon, _ = user.partition(":")
        user = f"{name}:{MARK}@" if colon else f"{name}@" if _is_postgres(scheme) else f"{MARK}@"
    return f"{scheme}://{user}{_PAIR.sub(_clean_pair, rest)}{tail}"


def _split_user(scheme: str, rest: str) -> tuple[str, str]:
    """Split the text after `://` into the user with the password, and the rest.

    Users often paste a password with unquoted `/`, `@`, `?` and `#`.
    """
    if scheme in _NO_USER or "@" not in rest:
        return "", rest
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    _, colon, port = authority.rpartition(":")
    malformed = bool(colon) and not port.isdigit() and "@" not in authority
    if "@" not in authority and not malformed and (scheme in _NO_PASSWORD or not colon):
        return "", rest
    query = _QUERY.search(rest)
    before = rest if malformed or query is None or "@" not in rest[: query.start()] else rest[: query.start()]
    if "@" in authority and scheme in _NO_PASSWORD:
        before = authority
    user = before.rpartition("@")[0]
    return user, rest[len(user) + 1 :]


def _is_postgres(scheme: str) -> bool:
    return scheme.lower() in ("postgres", "postgresql")


def _clean_pair(match: re.Match[str]) -> str:
    value = MARK if _is_secret(match["name"], match["value"]) else match["value"]
    return f"{match['start']}{match['name']}={value}"


def _is_secret(name: str, value: str) -> bool:
    if not value:
        return False
    plain = unquote(value)
    return bool(_SECRET_NAME.search(unquote(name))) or ("://" in plain and without_password(plain) != plain)


def _hidden_value(value: str) -> str:
    quoted = value[0] if value[0] in "'\"" else ""
    tail = "" if quoted else (_END.search(value) or [""])[0]
    return f"{quoted}{MARK}{quoted}{tail}"
