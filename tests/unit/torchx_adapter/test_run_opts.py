from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torchx.specs import InvalidRunConfigException
from torchx_pulumi.model.options import rows_of
from torchx_pulumi.planning.typed_reader import camel_case
from torchx_pulumi.schedulers.appwrapper.options import MCADOptions
from torchx_pulumi.schedulers.volcano.options import VolcanoOptions
from torchx_pulumi.torchx_adapter.run_opts import (
    LAUNCH_NAMES,
    scheduler_options,
    workspace_options,
)

from .conftest import CONFIG, World, app, role
from .run_options import run_options

SEED = {
    "volcano": {
        "namespace": "default",
        "queue": None,
        "service_account": None,
        "priority_class": None,
        "image_repo": None,
        "quiet": False,
        "validate_spec": True,
        "reserved_millicpu": 100,
        "reserved_memmb": 1024,
        "efa_device_count": None,
    },
    "mcad": {
        "namespace": "default",
        "image_repo": None,
        "service_account": None,
        "priority": None,
        "priority_class_name": None,
        "image_secret": None,
        "coscheduler_name": None,
        "network": None,
        "quiet": False,
    },
}


def test_the_seeds_options_are_there_with_their_defaults(kind: str) -> None:
    options = dict(run_options(kind))
    assert {name: options[name].default for name in SEED[kind]} == SEED[kind]
    assert [name for name, option in options.items() if option.is_required] == (["queue"] if kind == "volcano" else [])


def test_every_option_of_the_manifest_is_an_option_of_the_run(world: World, kind: str) -> None:
    options = dict(run_options(kind))
    fields = {row.torchx_name for row in rows_of(VolcanoOptions if kind == "volcano" else MCADOptions)}
    assert fields | LAUNCH_NAMES == set(options)
    # TorchX adds what the mix-in for workspaces declares: nothing is declared twice.
    assert not set(dict(scheduler_options(kind))) & set(dict(workspace_options()))
    assert set(dict(world.scheduler(kind).run_opts())) == set(options)
    assert all(option.help for option in options.values())
    assert repr(run_options(kind))


def test_unknown_and_ill_typed_options_are_refused_by_name_all_at_once(kind: str) -> None:
    with pytest.raises(InvalidRunConfigException) as caught:
        run_options(kind).resolve({**CONFIG[kind], "nmespace": "a", "reserved_memmb": "many", "wait_for": "ever"})
    assert caught.value.cfg_key == "nmespace"
    for name in ("nmespace", "reserved_memmb", "wait_for"):
        assert name in str(caught.value)


@pytest.mark.parametrize(("given", "said"), [({}, "queue"), ({"queue": None}, "queue"), ({"queue": 5}, "queue")])
def test_a_queue_is_required(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRunConfigException, match=said):
        run_options("volcano").resolve(given)
    # TorchX's own scheduler raises TypeError.
    with pytest.raises(TypeError, match="queue"):
        run_options("volcano").resolve(given)


def test_true_is_no_number(kind: str) -> None:
    with pytest.raises(InvalidRunConfigException, match="reserved_memmb"):
        run_options(kind).resolve({**CONFIG[kind], "reserved_memmb": True})


def test_camel_case_is_the_same_option(kind: str) -> None:
    options = run_options(kind)
    assert options.resolve({**CONFIG[kind], "serviceAccount": "sa"})["service_account"] == "sa"
    assert options.cfg_from_str("imageRepo=a/b") == {"image_repo": "a/b"}
    assert options.get("reservedMemmb") is options.get("reserved_memmb")
    with pytest.raises(InvalidRunConfigException, match="give it once"):
        options.resolve({**CONFIG[kind], "serviceAccount": "a", "service_account": "b"})


def test_words_of_the_command_line_get_their_types() -> None:
    options = run_options("volcano")
    words = "queue=q,efa_device_count=0,labels=a:1;b:2,image_secrets=x;y,validate_spec=no"
    assert options.cfg_from_str(words) == {
        "queue": "q",
        "efa_device_count": 0,
        "labels": {"a": "1", "b": "2"},
        "image_secrets": ["x", "y"],
        "validate_spec": False,
    }
    for pairs in ("a=1;b=2", "a:1;b=2", "a=1;b:2", "a=1;b=2;"):
        assert options.cfg_from_str(f"wait_for=created;labels={pairs},queue=q") == {
            "wait_for": "created",
            "labels": {"a": "1", "b": "2"},
            "queue": "q",
        }
    assert options.cfg_from_str("labels=a=1;queue=q") == {"labels": {"a": "1"}, "queue": "q"}
    assert options.cfg_from_str("queue=q,buildArgs=A=x:y") == {"queue": "q", "build_args": {"A": "x:y"}}
    assert options.cfg_from_str("") == {}
    for wrong in ("queue", "=a", "a;b", ",queue"):
        with pytest.raises(InvalidRunConfigException, match="write name=value"):
            options.cfg_from_str(wrong)
    for wrong in ("qeue=a", "labels=a=1,qeue=2", "efa_device_count=some", "quiet=perhaps", "labels=a"):
        with pytest.raises(InvalidRunConfigException, match=wrong.split(",")[-1].partition("=")[0]):
            options.cfg_from_str(wrong)


LINK = "https://g.example.com/d?app={name}&from=now"
PLUGINS = '{"svc":["--publish-not-ready-addresses=true"],"env":[]}'


@pytest.mark.parametrize(
    ("words", "read"),
    [
        ("{first},ui_url={link}", LINK),
        ("ui_url={link},{first}", LINK),
        ("ui_url='https://g/d?a=1,namespace=2',{first}", "https://g/d?a=1,namespace=2"),
        ('ui_url="https://g/d?a=1,b",{first}', "https://g/d?a=1,b"),
        ("ui_url=https://g/d?a=1,{first},", "https://g/d?a=1"),
        ("ui_url='',{first}", ""),
        ("ui_url={plugins},{first}", PLUGINS),
    ],
)
def test_a_value_may_have_equals_signs(kind: str, words: str, read: str) -> None:
    first = "queue=default" if kind == "volcano" else "network=net"
    name, _, value = first.partition("=")
    words = words.format(first=first, link=LINK, plugins=PLUGINS)
    assert run_options(kind).cfg_from_str(words) == {name: value, "ui_url": read}


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("{name}=", ["run option `{name}` has no value", '{name}=""']),
        ("{name}=,", ["run option `{name}` has no value"]),
        ("{name}=,kube_context=prod", ["run option `{name}` has no value"]),
        ("kube_context=prod,{name}=", ["run option `{name}` has no value"]),
        (
            "kube_context=prod,{name}",
            ["run option `kube_context` has the name of another one, `{name}`", "{name}=VALUE"],
        ),
        ("kube_context=prod,{name},quiet", ["`kube_context`", "`{name}`, `quiet`"]),
        ("kube_context=prod,{name},quiet=true", ["`kube_context`", "`{name}`"]),
        ("kube_context=prod {name}=x", ["`kube_context`", "`{name}`", "after a comma"]),
    ],
)
def test_an_option_without_a_value_changes_no_other_option(kind: str, words: str, parts: list[str]) -> None:
    options = run_options(kind)
    for name in sorted(dict(options).keys() - {"kube_context", "quiet"}):
        for spelling in (name, camel_case(name)):
            with pytest.raises(InvalidRunConfigException) as caught:
                options.cfg_from_str(words.format(name=spelling))
            for part in parts:
                assert part.format(name=spelling) in str(caught.value)


def test_an_unknown_name_after_a_link_says_that_quotes_keep_it_in_the_value(kind: str) -> None:
    with pytest.raises(InvalidRunConfigException, match="belongs to the value of `ui_url`, put that value in quotes"):
        run_options(kind).cfg_from_str("ui_url=https://g/d?a=1,b=2")


def test_resolved_options_resolve_to_themselves(kind: str) -> None:
    options = run_options(kind)
    once = options.resolve({**CONFIG[kind], "labels": {"a": "b"}})
    assert options.resolve(once) == once


def test_options_of_mcad_reach_the_manifest(world: World) -> None:
    given = {
        "namespace": "team",
        "service_account": "sa",
        "priority": 7,
        "priority_class_name": "high",
        "image_secret": "pull",
        "coscheduler_name": "cosched",
        "network": "net",
    }
    wrapper = world.scheduler("mcad").submit_dryrun(app(role()), given).request.resource
    assert wrapper["spec"]["priority"] == 7
    text = str(wrapper)
    for value in ("team", "'sa'", "high", "pull", "cosched", "net"):
        assert value in text


def test_a_dry_run_loads_no_engine_no_client_and_little_of_ours(tmp_path: Path) -> None:
    """Each module takes half a millisecond of every command."""
    code = (
        "import sys; from torchx.specs import AppDef, Role; "
        "from torchx_pulumi_stacks.entrypoints import create_volcano; "
        "scheduler = create_volcano('s', extra='1'); options = scheduler.run_opts().resolve({'queue': 'q'}); "
        "scheduler.submit_dryrun(AppDef('a', roles=[Role('r', image='i', entrypoint='e')]), options); "
        "print([m for m in ('pulumi', 'kubernetes', 'docker', 'grpc', 'rich', 'torch') if m in sys.modules]); "
        "ours = [m for m in sys.modules if m.startswith('torchx_pulumi')]; print(len(ours) <= 120 or ours)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path,
        env={"PYTHONPATH": ":".join(sys.path), "HOME": str(tmp_path)},
    )  # fmt: skip
    assert said.stdout.splitlines() == ["[]", "True"]


@pytest.mark.parametrize(
    "wrong", [{"quue": "a"}, {"reserved_memmb": "postgres://u:hunter2@h/db"}, {"labels": {"a": 1}}]
)
def test_a_refusal_repeats_no_secret(kind: str, wrong: dict[str, Any]) -> None:
    options = run_options(kind)
    given = {"pulumi_backend": "postgres://u:hunter2@h/db", "build_args": {"T": "hunter2"}, **wrong}
    with pytest.raises(InvalidRunConfigException) as caught:
        options.resolve({**CONFIG[kind], **given})
    assert "hunter2" not in str(caught.value)
    assert "postgres://u:***@h/db" in str(caught.value)
    with pytest.raises(InvalidRunConfigException) as caught:
        options.cfg_from_str("pulumi_backend=postgres://u:hunter2@h/db,build_args=T:hunter2,quue=1")
    assert "hunter2" not in str(caught.value)
