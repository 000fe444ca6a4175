#!/usr/bin/env bash
# With pytest 9.2, pytest-xdist 3.8 ignores its own groups: tests that must share a worker are spread over all.
#
# Versions: pytest 9.1.1 and 9.2.0, pytest-xdist 3.8.0.
# Guess: `--dist loadgroup` sends all tests of @pytest.mark.xdist_group("one") to one worker, or pip refuses the pair.
# Behavior: with pytest 9.1 one worker has them all; with 9.2 each of three workers has some. No message says so.
# Matters: tests that share a port, a database or a cluster run at the same time, and fail now and then.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export TMPDIR=$work

cat > stated <<'END'
pytest 9.1.1: 6 tests of one group on one worker
pytest 9.2.0: 6 tests of one group on several workers
END

cat > test_group.py <<'END'
import os
import pathlib
import time

import pytest


@pytest.mark.xdist_group("one")
@pytest.mark.parametrize("number", range(6))
def test_of_the_group(number):
    time.sleep(0.5)
    pathlib.Path(os.environ["WORKERS"], os.environ["PYTEST_XDIST_WORKER"]).touch()
END

python3 -m venv --without-pip venv
for release in 9.1.1 9.2.0; do
    python3 -m pip --python venv/bin/python install --quiet --no-compile "pytest==$release" pytest-xdist==3.8.0
    mkdir "workers-$release"
    WORKERS=$work/workers-$release venv/bin/python -m pytest -q -p no:cacheprovider -n 3 --dist loadgroup test_group.py >&2
    workers=$(find "workers-$release" -type f | wc -l)
    echo "pytest $release: 6 tests of one group on $([ "$workers" = 1 ] && echo one worker || echo several workers)"
done | tee seen
diff --unified --label stated --label seen stated seen
echo "as stated"
