"""Random workspaces and Dockerfiles that need no daemon: the same ones for the same number."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torchx_pulumi.images.content.files import FileKind
from torchx_pulumi.images.content.tree import Entry, read_tree

NAMES = ("a.py", "b.py", "train.py", "conf.yaml", "data.txt", "run.sh", "x", "LICENSE", "m.py")
ODD_NAMES = (
    "a b.py",
    "é.py",
    "-x.py",
    "#y.py",
    "$v.py",
    "[z].py",
    "q'q.py",
    'd"d.py',
    "n\nn.py",
    "\udcff.py",
    " .py",
    "\\s.py",
)
FOLDERS = ("src", "lib", "pkg", "deep", "conf.d", "empty", "été", "a b")
LINKS = ("../x", "a.py", "src", "/etc/passwd", "../../../out", "nowhere", "/", ".", "./lib/../a.py")
PLACES = (
    *(".", "./", "/", "/app/", "/app", "/app/sub/", "/srv/data/", "/srv/new/deep/", "/var/user/", "/var/user"),
    *("/tmp/", "/var/log/", "/opt/real/", "/opt/real", "new/", "new/./other/", "../up/", "/z/./y/", "$PLACE/", "lib/"),
)
"""Destinations that are folders. `/app` and others exist in the base, with other modes and owners."""
FOLDER_PLACES = (*PLACES, "/srv/data", "/srv/new", "new", "/q/w/e")
"""Destinations of folders, which need no `/`."""
ARGUMENTS = {"SOURCE": "src", "GREETING": "hello world", "NUMBER": "7"}


@dataclass(kw_only=True)
class Case:
    """One workspace with its Dockerfile."""

    dockerfile: str | None
    """None: the default one."""
    build_args: Mapping[str, str] = field(default_factory=lambda: dict(ARGUMENTS))
    is_scratch: bool = False


def make_case(number: int, workspace: Path) -> Case:
    """Write a workspace, and return its case."""
    chance = random.Random(number)
    write_files(chance, workspace)
    if chance.random() < 0.3:
        (workspace / ".dockerignore").write_text(rules(chance))
    if chance.random() < 0.08:
        return Case(dockerfile=None)
    is_scratch = chance.random() < 0.1
    name = "Dockerfile.torchx"
    (workspace / name).write_text("")
    entries = [each for each in read_tree(str(workspace), dockerfile=name).entries if each.path != name]
    text = Writer(chance, entries, is_scratch).write()
    (workspace / name).write_text(text)
    return Case(dockerfile=name, is_scratch=is_scratch)


def write_files(chance: random.Random, workspace: Path) -> None:
    """Write files, folders and links: names of any bytes, executables, and permissions that are lost."""
    folders = [workspace]
    for _ in range(chance.randint(0, 6)):
        folder = chance.choice(folders) / chance.choice(FOLDERS)
        if not os.path.lexists(folder):
            folder.mkdir(mode=chance.choice([0o755, 0o700, 0o777]))
            folders.append(folder)
    for _ in range(chance.randint(1, 12)):
        path = chance.choice(folders) / chance.choice(ODD_NAMES if chance.random() < 0.25 else NAMES)
        if os.path.lexists(path):
            continue
        if chance.random() < 0.2:
            path.symlink_to(chance.choice(LINKS))
        else:
            path.write_bytes(chance.randbytes(chance.choice([0, 1, 10, 511, 512, 513, 70_000])))
            path.chmod(chance.choice([0o644, 0o644, 0o600, 0o755, 0o700, 0o4755, 0o666]))
            os.utime(path, (chance.randint(0, 10**9), chance.randint(0, 10**9)))


def rules(chance: random.Random) -> str:
    """Return a `.dockerignore`."""
    lines = [
        "*.txt",
        "**/x",
        "lib",
        "src/deep",
        "!src/deep/a.py",
        "Dockerfile*",
        ".dockerignore",
        "*\n!src",
        "*/*.py",
        "**/*.sh",
    ]
    return "\n".join(chance.sample(lines, chance.randint(1, 4))) + "\n"


class Writer:
    """Writes a Dockerfile whose copies do not depend on the files of the base."""

    def __init__(self, chance: random.Random, entries: list[Entry], is_scratch: bool) -> None:
        self._chance, self._is_scratch, self._made = chance, is_scratch, 0
        usual = [each for each in entries if each.path.isascii() and not set(each.path) & set(" \n\\'\"$[]#")]
        self._files = [each.path for each in usual if each.kind is FileKind.FILE]
        self._folders = [
            each.path
            for each in usual
            # What a copy of an empty folder does depends on the base.
            if each.kind is FileKind.FOLDER and any(other.path.startswith(f"{each.path}/") for other in entries)
        ]
        self._is_empty = not entries

    def write(self) -> str:
        chance = self._chance
        lines = ["# a comment", "ARG IMAGE", "ARG EARLY=early", "FROM scratch" if self._is_scratch else "FROM $IMAGE"]
        lines += ["ARG SOURCE=unused", "ARG NUMBER", "ARG EARLY", "ARG ABSENT", "ENV PLACE=/opt/place"]
        steps = [self._copy, self._copy, self._copy, self._setting, self._setting]
        lines += [chance.choice(steps)() for _ in range(chance.randint(2, 9))]
        if chance.random() < 0.5:
            lines.append(
                chance.choice(
                    ["WORKDIR /last", "WORKDIR sub/./er", "WORKDIR $PLACE", 'WORKDIR "a b"', "WORKDIR /a/../b/"]
                )
            )
        return "\n".join(lines) + chance.choice(["", "\n", "\n\n# end\n"])

    def _copy(self) -> str:
        chance = self._chance
        self._made += 1
        word = chance.choice(["COPY", "COPY", "COPY", "ADD", "copy"])
        how = chance.random()
        if how < 0.3 and not self._is_empty:
            return f"{word} {chance.choice(['. .', '. ./', './ .', '/ .', '. /srv/all', '. /app'])}"
        if how < 0.5 and self._folders:
            source = chance.choice(self._folders)
            source = chance.choice([source, f"/{source}", f"./{source}/", f"{source}/.", f"no/../{source}"])
            return f"{word} {source} {chance.choice(FOLDER_PLACES)}"
        if not self._files:
            return self._setting()
        if how < 0.6:
            first = chance.choice(self._files)
            pattern = chance.choice([f"{first[:-1]}?", f"{first[:-1]}[!-~]", f"{first}*", first.replace("a", "[^/b]")])
            return f"{word} {pattern} {chance.choice(PLACES).rstrip('/')}/"
        if how < 0.7:
            many = chance.sample(self._files, min(len(self._files), chance.randint(2, 4)))
            return f"{word} {' '.join(many)} {chance.choice(PLACES).rstrip('/')}/"
        source = chance.choice(self._files)
        if how < 0.8 and "." in source.rpartition("/")[2][1:]:
            suffix = source.rpartition(".")[2]
            return f"{word} {source} {chance.choice(['/opt/', './', '/new/deep/', ''])}made-{self._made}.{suffix}"
        if how < 0.9:
            return f'{word} ["{source}",{chance.choice(["", " "])}"{chance.choice(PLACES).rstrip("/")}/"]'
        if how < 0.95:
            return f"WORKDIR {chance.choice(['rel', '/app', '/app/sub/../two', '../three'])}\n{word} {source} ./"
        return f"WORKDIR /owned/{self._made}\n{word} --chown={chance.choice(['7', '7:8', '$NUMBER'])} {source} ./"

    def _setting(self) -> str:
        chance = self._chance
        self._made += 1
        return chance.choice(
            [
                f"ENV one_{self._made} two  three",
                'ENV A="x y" B=z\\ w C=$A D=${ABSENT:-none} E=${A:+set} MODE=changed',
                "ENV PATH=$PATH:/more F='$A' G=\"$EARLY-${NUMBER}\" H=\\$A",
                "LABEL a=b 'c d'=\"e $NUMBER\" of=here",
                "LABEL single value with words",
                "USER 1000:$NUMBER",
                "USER nobody",
                "EXPOSE 80 443/udp $NUMBER",
                "EXPOSE 8000-8002/tcp",
                'ENTRYPOINT ["python", "-m", "$A"]',
                "ENTRYPOINT exec run $A  'b'",
                "ENTRYPOINT []",
                'CMD ["a", "b"]',
                "CMD run it [now]",
                'CMD ["not json',
                "ARG LATER=${NUMBER:-1}\nENV LATE=$LATER",
                "ENV X=$$ Y=$1 Z=${A}b",
                "# nothing\n\nENV \\\n  # inside\n  J=1 \\\n\n  K=2",
            ]
        )
