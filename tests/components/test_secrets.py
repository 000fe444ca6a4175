"""What is secret among the arguments is secret wherever it ends up, or refused where it shows.

The fields of one form are secret one by one, those of the others in groups, and each is wrong in one of the ways of
`WRONG`. `TORCHX_PULUMI_CASES=all`: every field of every form by itself, wrong in every way, and 2,500 random programs.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pulumi
import pytest
from google.protobuf import json_format
from pulumi.runtime.mocks import MockMonitor
from torchx_pulumi.testing import FakeCluster, cluster_for_tests
from torchx_pulumi_components import MCADTrainingJob, VolcanoTrainingJob
from torchx_pulumi_components.exports import stack_outputs
from torchx_pulumi_components.input_resolution import path_of

from tests.components import test_unknown as unknown

SIGNATURE = "4dabf18193072939515e22adb298388d"
SECRET = "1b47061264138c4ac30d75fd1eb44270"

Place = tuple[Any, ...]


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was registered, as it goes to the engine: secrets are marked one by one there."""
    found: list[Any] = []

    def keep(method: str, field: str) -> None:
        original = getattr(MockMonitor, method)

        def wrapped(self: Any, request: Any) -> Any:
            what = (request.type, request.name) if hasattr(request, "name") else request.urn.split("::")[-2:]
            found.append((field, *what, json_format.MessageToDict(getattr(request, field))))
            return original(self, request)

        monkeypatch.setattr(MockMonitor, method, wrapped)

    keep("RegisterResource", "object")
    keep("RegisterResourceOutputs", "outputs")
    return found


def is_secret(value: Any) -> bool:
    return isinstance(value, Mapping) and value.get(SIGNATURE) == SECRET


def leaves_of(value: Any, place: Place = (), *, secret: bool = False) -> Iterator[tuple[Place, Any, bool]]:
    """Yield place, value and whether it is secret, of every leaf."""
    if is_secret(value):
        yield from leaves_of(value["value"], place, secret=True)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves_of(item, (*place, key), secret=secret)
        if not value:
            yield place, {}, secret
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves_of(item, (*place, index), secret=secret)
        if not value:
            yield place, [], secret
    else:
        yield place, value, secret


def table(registered: list[Any]) -> dict[Place, tuple[Any, bool]]:
    return {
        (field, kind, name, *place): (value, secret)
        for field, kind, name, values in registered
        for place, value, secret in leaves_of(values)
        if not {"launched_at", "observed_at"} & set(place) and kind != "pulumi:pulumi:Stack"
    }


def volcano(**changes: Any) -> Any:
    role = {
        "name": "trainer",
        "image": "registry.example.com/app:1",
        "entrypoint": "python",
        "args": ["-m", "train", "arg-one"],
        "env": {"PLAIN": "a", "TOKEN": "token-one"},
        "secret_env": {"KEY": {"name": "store", "key": "password", "optional": True}},
        "num_replicas": 2,
        "max_retries": 2,
        "resource": {"cpu": 4, "gpu": 1, "memory_mb": 8000, "devices": {"vpc.amazonaws.com/efa": 1}},
        "port_map": {"c10d": 29500},
        "mounts": [
            {"kind": "bind", "src": "/data", "dst": "/mnt/data", "read_only": True},
            {"kind": "secret", "src": "keys", "dst": "/mnt/keys"},
        ],
        "metadata": {"note": "note-one"},
        "node_selector": {"pool": "gold"},
        "tolerations": [{"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}],
        "pod_overlay": {
            "metadata": {"annotations": {"example.com/a": "overlay-one"}},
            "spec": {"hostNetwork": True, "priority": 7},
        },
    }
    return {
        "queue": "default",
        "namespace": "ml",
        "service_account": "runner",
        "priority_class": "high",
        "image_secrets": ["pull-one"],
        "labels": {"team": "vision"},
        "annotations": {"example.com/b": "annotation-one"},
        "ttl_seconds_after_finished": 600,
        "reserved_millicpu": 200,
        "job_name": "train-fixed",
        "roles": [role],
        **changes,
    }


def mcad(**changes: Any) -> Any:
    given = volcano(**changes)
    for name in ("queue", "image_secrets", "ttl_seconds_after_finished"):
        given.pop(name)
    return {**given, "image_secret": "pull-one", "network": "fast", "priority": 5, "coscheduler_name": "gangs"}


def places_of(value: Any, place: Place = ()) -> Iterator[Place]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from places_of(item, (*place, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places_of(item, (*place, index))
    else:
        yield place


def put(given: Any, place: Place, change: Callable[[Any], Any]) -> Any:
    if not place:
        return change(given)
    first, *rest = place
    if isinstance(given, list):
        return [put(item, tuple(rest), change) if index == first else item for index, item in enumerate(given)]
    return {key: put(item, tuple(rest), change) if key == first else item for key, item in given.items()}


IN_SPEC = ("entrypoint", "args", "env", "secret_env", "mounts", "metadata", "pod_overlay")
"""Fields of a role whose values are in `spec` only, so that they may be secret."""

COMPONENTS: dict[str, tuple[Any, Callable[..., Any], dict[str, Any]]] = {
    "volcano": (VolcanoTrainingJob, volcano, {}),
    "role": (VolcanoTrainingJob, volcano, {"layout": "role"}),
    "pods": (VolcanoTrainingJob, lambda **more: without_retries(volcano(**more)), {"gang": "pods"}),
    "mcad": (MCADTrainingJob, mcad, {}),
    "v1beta2": (MCADTrainingJob, mcad, {"api_version": "v1beta2"}),
}


def without_retries(given: Any) -> Any:
    given.pop("ttl_seconds_after_finished")
    given["roles"][0].pop("max_retries")
    return given


def arguments(kind: str) -> Any:
    _, make, more = COMPONENTS[kind]
    given = make(**more)
    if kind == "v1beta2":
        given.pop("priority")
    return given


WHOLE = os.environ.get("TORCHX_PULUMI_CASES") == "all"
PLACES = {kind: [*places_of(arguments(kind))] for kind in COMPONENTS}
HIDDEN = {
    kind: [place for place in places if len(place) > 2 and place[2] in IN_SPEC and place[3:4] != ("metadata",)]
    for kind, places in PLACES.items()
}
"""Places that may be secret, also the name and key of a Secret, which are no secrets."""
SHOWN = {kind: [place for place in places if place not in HIDDEN[kind]] for kind, places in PLACES.items()}
"""All other places: of names, numbers, labels, annotations, choices and of what is in outputs."""
GROUPS = [
    (kind, places[first::step])
    for kind, hidden in HIDDEN.items()
    # Another kind of mount has other fields.
    for places in [[place for place in hidden if place[-1] != "kind"]]
    for step in [len(places) if WHOLE or kind == "volcano" else 6]
    for first in range(step)
]
"""Form, and the places that are secret in one program."""

HOSTILE = (
    "pa$$word-0123456789",
    "tok-${app_id}-0123456789",
    "[FIELD_PATH]metadata.name",
    "12345.0",
    "123456789012345678",
    "True",
    "true",
    "pässwörd-\u2603-0123456789",
    "line one 12345\nline two 67890\n",
    '{"user": "me", "password": "abc\\"def"}',
    "it's \"quoted\" 'twice' 0123",
    "100%25 of %s %(x)s 012345",
    "aGVsbG8gd29ybGQgMTIzNDU2Nzg5MA==",
    "$(cat /etc/passwd); `id` | tee",
    "-",
    "7",
)


def made_of(engine: Any, registered: list[Any], kind: str, given: Any) -> dict[Place, tuple[Any, bool]]:
    """Return the registration of a component, leaf by leaf."""
    registered.clear()
    engine.run(lambda: COMPONENTS[kind][0]("train", given))
    return table(registered)


PLAIN: dict[str, dict[Place, Any]] = {}
"""Form to what it registers without secrets."""


@pytest.mark.parametrize(("kind", "places"), GROUPS, ids=lambda value: value if isinstance(value, str) else "")
def test_every_leaf_is_marked_by_its_place(engine: Any, registered: list[Any], kind: str, places: list[Place]) -> None:
    """The oracle: with the value in plain, everything is the same but for marks; with another value, only what is
    marked differs."""
    hidden, changed = arguments(kind), arguments(kind)
    if kind not in PLAIN:
        PLAIN[kind] = without_observed(made_of(engine, registered, kind, hidden))
    for place in places:
        hidden, changed = put(hidden, place, pulumi.Output.secret), put(changed, place, another)
    marked = made_of(engine, registered, kind, hidden)
    assert without_observed(marked) == PLAIN[kind]
    assert unmarked(marked, made_of(engine, registered, kind, changed)) == set()
    assert {key[3] for key, (_, secret) in marked.items() if secret} <= {"spec"}
    assert any(secret for _, secret in marked.values()) or places == [("roles", 0, "metadata", "note")]


def unmarked(marked: dict[Place, tuple[Any, bool]], other: dict[Place, tuple[Any, bool]]) -> set[Place]:
    """Return the leaves that differ with another value, and are not marked as secret. The record has a mark itself."""
    return {
        key
        for key, (value, secret) in marked.items()
        if not secret and not is_digest(key) and "quotes_secrets" not in key and other.get(key, (None,))[0] != value
    }


def another(value: Any) -> Any:
    """Another value than the component itself compares with."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 2
    return f"{value}-other" if not value.startswith("/") else f"{value}/other"


def without_observed(found: dict[Place, tuple[Any, bool]]) -> dict[Place, Any]:
    """Leave out marks, also that of the record, and messages about what was seen, in which secrets are replaced."""
    return {key: value for key, (value, _) in found.items() if not {"observed", "quotes_secrets"} & {*key}}


def is_digest(key: Place) -> bool:
    """The hash and the digests of a run differ with a secret value, by design (docs/decisions/0005).

    In what was observed, secrets are replaced.
    """
    words = {str(part) for part in key}
    return bool(words & {"digests", "hash", "torchx-pulumi/run", "spec_hash", "observed"})


@pytest.mark.parametrize("kind", COMPONENTS)
def test_no_hostile_value_stands_in_plain(engine: Any, registered: list[Any], kind: str) -> None:
    def made_with(leaf: Any) -> dict[Place, tuple[Any, bool]]:
        given = arguments(kind)
        role = given["roles"][0]
        role["env"]["TOKEN"] = role["args"][2] = role["metadata"]["note"] = leaf
        role["pod_overlay"]["spec"]["nodeSelector"] = {"example.com/a": leaf}
        return made_of(engine, registered, kind, given)

    other = made_with("quite-another-value")
    first = list(COMPONENTS).index(kind)
    for value in HOSTILE if WHOLE or kind == "volcano" else HOSTILE[first::4]:
        marked = made_with(pulumi.Output.secret(value))
        assert unmarked(marked, other) == set(), value
        assert len([key for key, (_, secret) in marked.items() if secret]) > 4, value


@pytest.mark.parametrize("kind", COMPONENTS)
def test_a_secret_that_shows_is_refused_at_all_its_places(engine: Any, registered: list[Any], kind: str) -> None:
    given = arguments(kind) | {"wait_for": "created", "on_running_change": "fail", "timeout_s": 60}
    hidden, plain = given, given
    shown = [*SHOWN[kind], ("wait_for",), ("on_running_change",), ("timeout_s",)]
    # The value of this one is a word of the message.
    shown = [place for place in shown if place != ("layout",)]
    for place in shown:
        hidden = put(hidden, place, pulumi.Output.secret)
        plain = put(plain, place, lambda value: pulumi.Output.unsecret(pulumi.Output.secret(value)))
    with pytest.raises(pulumi.RunError, match=f"has {len(shown)} problems") as caught:
        engine.run(lambda: COMPONENTS[kind][0]("train", hidden))
    assert not registered
    for place in shown:
        assert f"{path_of(place)}: cannot be secret" in str(caught.value)
    assert str(caught.value).count("pulumi.Output.unsecret(value)") == len(shown)
    made = made_of(engine, registered, kind, plain)
    assert made
    assert not any(secret for _, secret in made.values())


@pytest.mark.parametrize(
    ("field", "advice"), [("image", "go into image_secrets"), ("max_retries", "a Kubernetes Secret that secret_env")]
)
def test_a_refused_secret_names_what_to_use_instead(engine: Any, field: str, advice: str) -> None:
    given = put(volcano(), ("roles", 0, field), pulumi.Output.secret)
    with pytest.raises(pulumi.RunError, match=rf"roles\[0\]\.{field}: cannot be secret: .*{advice}"):
        engine.run(lambda: VolcanoTrainingJob("train", given))


def test_secrets_are_marked_where_a_run_is_kept(engine: Any, registered: list[Any]) -> None:
    given = volcano()
    given["roles"][0]["env"]["TOKEN"] = pulumi.Output.secret("pa$$word-0123456789")
    del given["job_name"]
    names = ("default", "ml")
    objects = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names]
    queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "default"},
             "status": {"state": "Open"}}  # fmt: skip
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}}
    with cluster_for_tests(FakeCluster([*objects, queue, high])):
        engine.run(lambda: VolcanoTrainingJob("train", given))
    assert not [value for value, secret in table(registered).values() if not secret and "pa$word" in str(value)]
    assert [value for value, secret in table(registered).values() if secret and "pa$word" in str(value)]


def test_all_objects_of_a_gang_have_a_secret_spec(engine: Any, registered: list[Any]) -> None:
    given = put(arguments("pods"), ("roles", 0, "env", "TOKEN"), pulumi.Output.secret)
    made = made_of(engine, registered, "pods", given)
    specs = {key[1]: secret for key, (_, secret) in made.items() if key[3:4] == ("spec",)}
    assert {kind.rpartition(":")[2] for kind in specs} == {"PodGroup", "Service", "Pod"}
    assert all(specs.values())


@pytest.mark.parametrize(
    ("place", "args", "quoted"),
    [
        (("env", "TOKEN"), ["--epochs", "5"], False),
        (("env", "TOKEN"), ["--token", "$(TOKEN)"], True),
        (("args", 0), ["--epochs", "5"], True),
        (("entrypoint",), [], True),
    ],
)
def test_the_record_says_where_messages_of_the_cluster_may_quote_a_secret(
    engine: Any, place: Place, args: list[str], quoted: bool
) -> None:
    given = volcano()
    given["roles"][0] |= {"env": {"TOKEN": "token-one"}, "args": args}
    given = put(given, ("roles", 0, *place), pulumi.Output.secret)
    engine.run(lambda: VolcanoTrainingJob("train", given))
    assert engine.record("train").get("quotes_secrets", False) is quoted


@pytest.mark.parametrize("kind", COMPONENTS)
def test_a_run_whose_state_has_secret_texts_in_its_spec_is_kept(engine: Any, registered: list[Any], kind: str) -> None:
    """As builds before the first release marked them; the real engine says in `tests/e2e` that nothing changes."""

    def leaf_by_leaf(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: leaf_by_leaf(item) for key, item in value.items()}
        if isinstance(value, list):
            return [leaf_by_leaf(item) for item in value]
        return {SIGNATURE: SECRET, "value": value} if value == "token-one" else value

    given = put(arguments(kind), ("roles", 0, "env", "TOKEN"), pulumi.Output.secret)
    launched = made_of(engine, registered, kind, given)
    remember(engine, kind)
    for outputs in engine.mocks.state.values():
        if "spec" in outputs:
            outputs["spec"] = leaf_by_leaf(outputs["spec"].get("value", outputs["spec"]))
    assert SECRET in repr(engine.mocks.state)
    kept = made_of(engine, registered, kind, given)
    assert without_observed(kept) == without_observed(launched)
    assert {key for key, (_, secret) in kept.items() if secret} == {
        key for key, (_, secret) in launched.items() if secret
    }


@pytest.mark.parametrize("change", [pulumi.Output.secret, str])
@pytest.mark.parametrize("form", ["volcano-job", "volcano-pods"])
def test_a_run_that_ignores_another_secret_does_not_show_its_own(
    engine: Any, registered: list[Any], form: str, change: Any
) -> None:
    def args(token: Any) -> Any:
        given = unknown.args_of(form, ("roles", 0, "env"), {"TOKEN": token})
        return {**given, "on_running_change": "ignore"}

    unknown.run(engine, form, lambda: args(pulumi.Output.secret("hunter-22")))
    outputs = dict(engine.mocks.outputs)
    live = unknown.remember(engine, form)
    engine.mocks.state |= outputs
    waiting = {"reason": "CreateContainerError", "message": "exec: hunter-22: not found"}
    for found in live:
        if found["kind"] == "Job":
            found["status"] = {"state": {"phase": "Running", "message": "hunter-22 refused"}}
        elif found["kind"] == "Pod":
            found["status"] = {"phase": "Pending", "containerStatuses": [{"name": "a", "state": {"waiting": waiting}}]}
    registered.clear()
    said = message_of(lambda: unknown.run(engine, form, lambda: args(change("the-next-token")), *live))
    made = table(registered)
    plain = {key: value for key, (value, secret) in made.items() if not secret and key[0] == "outputs"}
    assert "hunter-22" not in f"{said}{plain}"
    assert "[secret]" in str(plain)
    names = [value for key, value in plain.items() if "replicas" in key and key[-1] == "name"]
    assert all("secret" not in name for name in names)


@pytest.mark.parametrize("name", ["job_name", "jobName"])
def test_a_secret_name_is_refused_in_any_spelling(engine: Any, name: str) -> None:
    given = volcano()
    del given["job_name"]
    with pytest.raises(pulumi.RunError, match="job_name: cannot be secret") as caught:
        engine.run(lambda: VolcanoTrainingJob("train", {**given, name: pulumi.Output.secret("train-hidden")}))
    assert "train-hidden" not in str(caught.value)


@pytest.mark.parametrize("value", [None, {}])
def test_an_argument_that_is_secret_and_unset_is_unset(engine: Any, registered: list[Any], value: Any) -> None:
    made = made_of(engine, registered, "volcano", volcano(labels=pulumi.Output.secret(value)))
    assert not any(secret for _, secret in made.values())


@pytest.mark.parametrize("value", ["SUBMITTED", "Submitted", "Admitted", "Unknown", "live"])
def test_a_secret_that_is_a_word_of_the_observation_leaves_it_readable(
    engine: Any, registered: list[Any], value: str
) -> None:
    def observed(token: Any) -> dict[Place, Any]:
        given = volcano()
        given["roles"][0]["env"]["TOKEN"] = token
        registered.clear()
        engine.run(lambda: VolcanoTrainingJob("train", given))
        return {key: found for key, (found, _) in table(registered).items() if "observed" in key}

    assert observed(pulumi.Output.secret(value)) == observed("another")


WRONG: tuple[Callable[[Any], Any], ...] = (
    lambda text: {"password": text},
    lambda text: [text],
    lambda text: [{"a": [text]}],
    lambda text: text,
    lambda text: f"{text}\n",
    lambda text: f"[FIELD_PATH]{text}",
)
"""Ways to have a secret in the place of something else."""


def message_of(action: Callable[[], Any]) -> str:
    """Return the error of an action. Empty: there was none."""
    try:
        action()
    except pulumi.RunError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", COMPONENTS)
@pytest.mark.parametrize("marked", [True, False])
def test_no_message_shows_a_secret_that_is_wrong_somewhere(engine: Any, kind: str, marked: bool) -> None:
    """Marked by the program: nowhere. Not marked: not where a secret may be, nor in what holds several values."""
    component, given = COMPONENTS[kind][0], arguments(kind)
    refused, form = 0, list(COMPONENTS).index(kind)
    for index, place in enumerate(PLACES[kind]):
        for number, wrong in enumerate(WRONG):
            if not WHOLE and number != (index + form) % len(WRONG):
                continue
            if not marked and number > 2 and not {"env", "secret_env", "args", "pod_overlay", "metadata"} & set(place):
                continue
            value = wrong("hunter22-${x}!")
            changed = put(given, place, lambda _, value=value: pulumi.Output.secret(value) if marked else value)
            said = message_of(lambda changed=changed: engine.run(lambda: component("train", changed)))
            refused += bool(said)
            assert "hunter22" not in said, (place, number)
    assert refused > 5


@pytest.mark.parametrize("value", ["x!", "7x", 70000, -3])
def test_a_short_secret_is_hidden_by_its_place(engine: Any, value: Any) -> None:
    given = volcano()
    given["roles"][0]["mounts"][0]["kind"] = pulumi.Output.secret(value)
    given["roles"][0]["secret_env"]["KEY"]["name"] = pulumi.Output.secret(f"{value}!")
    with pytest.raises(pulumi.RunError) as caught:
        engine.run(lambda: VolcanoTrainingJob("train", given))
    assert str(value) not in str(caught.value)
    assert "[secret]" in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("value", ["$(hunter22)", "a-$(hunter22)-$(hunter23)", "$$(hunter22)"])
def test_a_warning_has_no_part_of_a_secret(engine: Any, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    said: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", lambda text, *_: said.append(text))
    engine.run(lambda: VolcanoTrainingJob("train", put(volcano(), ("roles", 0, "env", "TOKEN"), lambda _: value)))
    assert "hunter22" in "".join(said)
    said.clear()
    hidden = put(volcano(), ("roles", 0, "env", "TOKEN"), lambda _: pulumi.Output.secret(value))
    engine.run(lambda: VolcanoTrainingJob("train", hidden))
    assert said
    assert "hunter" not in "".join(said)


def test_a_secret_that_a_message_cuts_is_hidden(engine: Any) -> None:
    given = volcano()
    given["roles"][0]["mounts"][0]["kind"] = pulumi.Output.secret("hunter22-" * 20)
    with pytest.raises(pulumi.RunError) as caught:
        engine.run(lambda: VolcanoTrainingJob("train", given))
    assert "hunter22" not in str(caught.value)
    assert "mounts[0].kind: must be one of bind, volume, device, secret" in str(caught.value)


SHAPES = (
    "{}",
    "pa$$word-{}$$",
    "tok-${{app_id}}-{}",
    "$({})",
    "$$({})-${{replica_id}}",
    "[FIELD_PATH]{}",
    "pässwörd-☃-{}",
    "-----BEGIN KEY-----\n{0}\n{0}\n",
    '{{"user": "me", "password": "{}", "q": "a\\"b"}}',
    "it's \"quoted\" '{}'",
    "100%25 of %s %(x)s {}",
    "`id`; $(cat /etc/passwd) | tee {}",
    "  {}\t",
    "True{}",
)


class Program:
    """A program with secrets, and in a preview unknown values, in random places."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.kind = self._random.choice([*COMPONENTS])
        self.preview = self._random.random() < 0.3
        self.cores: list[str] = []

    def given(self) -> Any:
        """Return other arguments at each call."""
        given = arguments(self.kind)
        if self._random.random() < 0.5:
            given.pop("job_name")
        places = [place for place in places_of(given) if place in HIDDEN[self.kind]]
        for place in self._random.sample(places, self._random.randint(1, 6)):
            given = put(given, place, lambda _: pulumi.Output.secret(self._secret()))
        places = [place for place in places_of(given) if place in SHOWN[self.kind] and place[-1] not in STRUCTURE]
        for place in self._random.sample(places, self._random.randint(0, 2)) if self.preview else ():
            given = put(given, place, lambda _: pulumi.Output.from_input(pulumi.output.UNKNOWN))
        if self._random.random() < 0.2:
            place = self._random.choice(SHOWN[self.kind])
            given = put(given, place, lambda _: pulumi.Output.secret(self._secret()))
        return given

    def _secret(self) -> Any:
        """Return a secret text, number or structure."""
        core = "".join(self._random.choices("123456789" if self._random.random() < 0.2 else "0123456789abcdef", k=14))
        self.cores.append(core)
        text = self._random.choice(SHAPES).format(core)
        return self._random.choice([text] * 8 + [[text], {"value": text}, int(core) if core.isdigit() else text])


STRUCTURE = ("name", "num_replicas", "job_name", "gang", "layout", "api_version", "operator")
"""What must be known in a preview."""


@pytest.mark.parametrize("part", range(4))
def test_random_programs_show_no_secret(
    engine: Any, registered: list[Any], monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    """A program runs twice, the second time with other arguments, and exports all outputs of a stack."""
    said: list[str] = []
    for level in ("debug", "info", "warn", "error"):
        monkeypatch.setattr(pulumi.log, level, lambda text, *_: said.append(text))
    refused = shown = 0
    for seed in range(part, 2500 if WHOLE else 40, 4):
        program = Program(seed)
        engine.mocks.state = {}
        for _ in range(2):
            given = program.given()
            registered.clear()

            def run(given: Any = given, program: Program = program) -> None:
                job = engine.run(lambda: COMPONENTS[program.kind][0]("train", given), preview=program.preview)
                said.append(repr([engine.value(output) for output in stack_outputs(job).values()]))

            said.append(message_of(run))
            refused += bool(said[-1])
            plain = [value for *_, values in registered for _, value, secret in leaves_of(values) if not secret]
            text = repr([*plain, *said])
            assert not [core for core in program.cores if core in text], (seed, text)
            assert "unknown-leaf" not in text, (seed, text)
            shown += sum(secret for *_, values in registered for _, _, secret in leaves_of(values))
            said.clear()
            remember(engine, program.kind)
    assert refused > 3
    assert shown > 100


def remember(engine: Any, kind: str) -> None:
    """Put what was registered into the state."""
    prefix = f"urn:pulumi:dev::proj::torchx:index:{COMPONENTS[kind][0].__name__}"
    engine.mocks.state = dict(engine.mocks.outputs)
    for item in engine.mocks.resources:
        engine.mocks.state[f"{prefix}${item.typ}::{item.name}"] = item.inputs
