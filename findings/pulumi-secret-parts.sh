#!/usr/bin/env bash
# Pulumi's Python SDK goes through a value that is marked secret and makes Outputs of all mappings in it.
#
# Versions: Python package pulumi 3.272.0.
# Guess: a mark is set on the whole, so that `Output.secret(value)` takes as long for a large value as for a small one.
# Behavior: `Output.secret(value)` of a mapping with 200 mappings of 20 texts runs 604 tasks and takes 0.3 to 0.9 s. With
#   `Output.secret("")` and an `apply` that returns the value it is 2 tasks and 3 to 7 ms, with the same value and mark.
# Matters: a program with the manifest of 1,000 pods in one secret waited for 16 s in each preview and `up`.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

cat > stated <<'END'
Output.secret(value): 604 tasks; secret True, the same value True
Output.secret("") and apply: 2 tasks; secret True, the same value True
END

cat > marks.py <<'END'
import asyncio
import sys
import time

from pulumi import Output

VALUE = {f"pod-{number}": {f"field-{part}": "text" for part in range(20)} for number in range(200)}
count = 0


def counted(loop, coroutine, **options):
    global count
    count += 1
    return asyncio.Task(coroutine, loop=loop, **options)


async def take(name, make):
    global count
    count, started = 0, time.perf_counter()
    made = make()
    value, secret = await made.future(), await made.is_secret()
    print(f"{name}: {time.perf_counter() - started:.3f} s", file=sys.stderr)
    print(f"{name}: {count} tasks; secret {secret}, the same value {value == VALUE}")


async def main():
    asyncio.get_running_loop().set_task_factory(counted)
    await take("Output.secret(value)", lambda: Output.secret(VALUE))
    await take('Output.secret("") and apply', lambda: Output.secret("").apply(lambda _: VALUE))


asyncio.run(main())
END

python3 -m venv --without-pip venv
python3 -m pip --python venv/bin/python install --quiet --no-compile pulumi==3.272.0
venv/bin/python marks.py | tee seen
diff --unified --label stated --label seen stated seen
echo "as stated"
