#!/usr/bin/env bash
# TorchX reads `.dockerignore` by other rules than Docker: common lines leave nothing out, or leave out other files.
#
# Versions: torchx 0.7.0, github.com/moby/patternmatcher 0.6.1, which is what Docker itself uses.
# Guess: TorchX's workspace follows the rules of `.dockerignore`, as the docstring of `walk_workspace` says.
# Behavior: it uses Python's fnmatch on the text of the line. A slash at the start or the end matches nothing; `*` passes
#   slashes; `**/*.log` misses the top folder; `#` ends a line anywhere; `!src/train.py` after `*` brings nothing back.
# Matters: `data/` sends the data set with every build, and a build without TorchX has other files.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat > "$work/stated" <<'END'
data/: docker leaves out data/set.bin; torchx leaves out nothing
/build: docker leaves out build/out.o; torchx leaves out nothing
*.log: docker leaves out a.log; torchx leaves out a.log logs/b.log
**/*.log: docker leaves out a.log logs/b.log; torchx leaves out logs/b.log
notes#1.txt: docker leaves out notes#1.txt; torchx leaves out notes
*\n!src/train.py: docker leaves out all but src/train.py; torchx leaves out all
END

mkdir "$work/site" "$work/docker" && cd "$work"
for file in a.log build/out.o data/set.bin logs/b.log notes 'notes#1.txt' src/train.py; do
    mkdir -p "site/$(dirname "$file")" && touch "site/$file" && echo "$file" >> files
done

cat > docker/go.mod <<'END'
module findings/docker

go 1.24.0

require github.com/moby/patternmatcher v0.6.1
END
cat > docker/main.go <<'END'
// Prints the names of standard input that the .dockerignore of the first argument leaves out.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

func main() {
	patterns, err := ignorefile.ReadAll(strings.NewReader(os.Args[1]))
	if err != nil {
		panic(err)
	}
	matcher, err := patternmatcher.New(patterns)
	if err != nil {
		panic(err)
	}
	for files := bufio.NewScanner(os.Stdin); files.Scan(); {
		if out, err := matcher.MatchesOrParentMatches(files.Text()); err != nil {
			panic(err)
		} else if out {
			fmt.Println(files.Text())
		}
	}
}
END
(cd docker && GOFLAGS=-mod=mod go build -o matcher .)

python3 -m venv --without-pip venv
python3 -m pip --python venv/bin/python install --quiet --no-compile torchx==0.7.0
cat > compare.py <<'END'
import posixpath
import subprocess
from pathlib import Path

import fsspec
from torchx.workspace.api import walk_workspace

ALL = Path("files").read_text().split()


def torchx_leaves_out(ignore):
    Path("site/.dockerignore").write_text(ignore)
    kept = set()
    for folder, _, files in walk_workspace(fsspec.filesystem("file"), "site", ".dockerignore"):
        kept |= {posixpath.normpath(posixpath.join(posixpath.relpath(folder, "site"), name)) for name in files}
    return [file for file in ALL if file not in kept]


def docker_leaves_out(ignore):
    run = subprocess.run(["docker/matcher", ignore], input="\n".join(ALL), capture_output=True, text=True, check=True)
    return run.stdout.split()


def told(files):
    kept = [file for file in ALL if file not in files]
    return " ".join(files if len(kept) > 1 else ["all but", *kept] if kept else ["all"]) or "nothing"


for text in ("data/", "/build", "*.log", "**/*.log", "notes#1.txt", "*\n!src/train.py"):
    docker, torchx = docker_leaves_out(text), torchx_leaves_out(text)
    print(f"{text}: docker leaves out {told(docker)}; torchx leaves out {told(torchx)}".replace("\n", r"\n"))
END
venv/bin/python -W ignore compare.py | tee seen
diff --unified --label stated --label seen stated seen
echo "as stated"
