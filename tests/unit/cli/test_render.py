from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from torchx_pulumi import render
from torchx_pulumi.cli.main import main
from torchx_pulumi.inputs.appfile import read_app_file

from tests.doc_blocks import ROOT, commands

APP = "name: app\nroles:\n- {name: trainer, image: img:1, entrypoint: main, args: [1e-4], num_replicas: 2}\n"


@pytest.fixture
def app(tmp_path: Path) -> Path:
    path = tmp_path / "app.yaml"
    path.write_text(APP)
    return path


def render_words(file: Path | str, *words: str) -> list[str]:
    return ["render", "--scheduler", "volcano", "--app-id", "app-x1", *words, str(file)]


def test_render_prints_the_manifest_as_yaml(app: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(render_words(app, "--option", "queue=test", "--option", "gang=job")) == 0
    printed = capsys.readouterr()
    assert yaml.safe_load(printed.out) == render(read_app_file(app), "volcano", {"queue": "test"}, app_id="app-x1")
    assert printed.err == ""


def test_the_command_of_the_page_renders(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    (line,) = commands("docs/stack-program.md", "render")
    assert main(shlex.split(line)[1:]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["metadata"]["name"] == "hello-1"


def test_gang_of_pods_prints_a_list(app: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(render_words(app, "--option", "queue=test", "--option", "gang=pods")) == 0
    kinds = [item["kind"] for item in yaml.safe_load(capsys.readouterr().out)["items"]]
    assert kinds == ["PodGroup", "Service", "Pod", "Pod"]


def test_warnings_go_to_stderr(app: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app.write_text(APP.replace("num_replicas: 2", "max_retries: 1"))
    assert main(render_words(app, "--option", "queue=test")) == 0
    assert "warning: max_retries 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "options.queue: is not set"),
        (["--option", "queue"], "--option: is 'queue', must be KEY=VALUE"),
        (["--option", "queue=a", "--option", "queue=b"], "gives queue twice"),
        (["--option", "queue=a", "--option", "qeue=b"], "options.qeue: is unknown"),
        (["--option", "queue=a", "--app-id", "Not Valid"], "app_id: is 'Not Valid'"),
        (["--option", "queue=a", "--scheduler", "slurm"], "scheduler: is 'slurm', must be volcano, mcad"),
        (["--unknown"], "unrecognized arguments: --unknown"),
    ],
)
def test_mistake_gives_one_message_and_exit_code_2(
    app: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(render_words(app, *words)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert "Traceback" not in printed.err


@pytest.mark.parametrize("text", ["name: [", "name: a", "- 1", "name: a\nroles: x", "name: a\nroles:\n- 5"])
def test_bad_file_gives_exit_code_2(app: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    app.write_text(text)
    assert main(render_words(app, "--option", "queue=test")) == 2
    assert capsys.readouterr().err.startswith("torchx-pulumi: job ")


def test_missing_file_gives_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(render_words(tmp_path / "none.yaml", "--option", "queue=test")) == 2
    assert "No such file" in capsys.readouterr().err


def test_without_command_the_usage_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage: torchx-pulumi" in capsys.readouterr().err


def test_reader_that_stops_early_sees_no_traceback(app: Path) -> None:
    app.write_text(APP.replace("num_replicas: 2", "num_replicas: 2000"))
    command = [sys.executable, "-c", "import sys; from torchx_pulumi.cli.main import main; sys.exit(main())"]
    with subprocess.Popen(
        [*command, *render_words(app, "--option", "queue=test", "--option", "layout=role")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PYTHONPATH": ":".join(sys.path)},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


@pytest.mark.parametrize(("words", "code"), [("--version", 0), ("--nope", 2)])
def test_a_closed_output_takes_nothing_and_changes_no_code(words: str, code: int) -> None:
    script = f"{sys.executable} -c 'import sys; from torchx_pulumi.cli.main import main; sys.exit(main())' {words} >&-"
    env = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(["sh", "-c", script], env=env, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == code
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
@pytest.mark.parametrize("words", [["--version"], ["fleet", "--help"], ["fleet"], []], ids=" ".join)
def test_a_full_device_is_one_message(app: Path, tmp_path: Path, words: list[str]) -> None:
    command = [sys.executable, "-c", "import sys; from torchx_pulumi.cli.main import main; sys.exit(main())"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*command, *(words or render_words(app, "--option", "queue=test"))],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={"PYTHONPATH": ":".join(sys.path), "HOME": str(tmp_path), "PULUMI_BACKEND_URL": f"file://{tmp_path}"},
        )
    assert done.stderr == "torchx-pulumi: no space is left on the device that is written to; free some\n"
    assert done.returncode == 2
