#!/usr/bin/env bash
# Without a terminal, pytest gives COLUMNS=80 and LINES=24 to some programs that tests start, and to all under xdist.
#
# Versions: pytest 9.1.1, pytest-xdist 3.8.0, a CPython that is linked with GNU readline.
# Guess: a program that a test starts has what os.environ has, and a worker of xdist sees the same os.environ.
# Behavior: pytest imports readline, which sets both below os.environ. A program that is started with `env=None` has
#   them, one that is started with a copy of os.environ has not. A worker is started in the first way.
# Matters: output that wraps at the width of the terminal passes its test alone, and fails in CI.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export TMPDIR=$work
unset COLUMNS LINES

cat > stated <<'END'
alone: program with env=None 80 x 24, with a copy of os.environ None x None
under xdist: program with env=None 80 x 24, with a copy of os.environ 80 x 24
END

cat > test_environment.py <<'END'
import os
import pathlib
import subprocess
import sys

PROGRAM = "import os; print(os.environ.get('COLUMNS'), 'x', os.environ.get('LINES'), end='')"


def test_environment():
    whole, copy = (subprocess.check_output([sys.executable, "-c", PROGRAM], env=env, text=True) for env in (None, {**os.environ}))
    pathlib.Path("seen-here").write_text(f"program with env=None {whole}, with a copy of os.environ {copy}")
END

python3 -m venv --without-pip venv
python3 -m pip --python venv/bin/python install --quiet --no-compile pytest==9.1.1 pytest-xdist==3.8.0
for way in "alone" "under xdist"; do
    options=()
    [ "$way" = alone ] || options=(-n 1)
    venv/bin/python -m pytest -q -p no:cacheprovider "${options[@]}" test_environment.py < /dev/null > pytest.log 2>&1
    echo "$way: $(cat seen-here)"
done | tee seen
diff --unified --label stated --label seen stated seen
echo "as stated"
