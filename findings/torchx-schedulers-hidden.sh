#!/usr/bin/env bash
# A package that adds one scheduler to TorchX 0.7.0 takes all built-in ones away, and its own first one is not the default.
#
# Versions: torchx 0.7.0, hatchling 1.33.0, setuptools 80.9.0.
# Guess: schedulers of installed packages stand beside the built-in ones; the first in pyproject.toml is the default.
# Behavior: with one entry point in the group torchx.schedulers, local_cwd, local_docker, slurm and the others are gone.
#   TorchX takes the first entry point for the default, but hatchling and setuptools sort entry points by their names.
# Matters: `torchx run -s local_cwd` fails after the installation of a plugin; without -s a job goes elsewhere than meant.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

cat > stated <<'END'
without a plugin: 10 schedulers, default local_docker
hatchling: alpha zeta, default alpha
setuptools: alpha zeta, default alpha
END

cat > show.py <<'END'
from torchx.schedulers import get_default_scheduler_name, get_scheduler_factories

names = list(get_scheduler_factories())
told = " ".join(names) if len(names) < 5 else f"{len(names)} schedulers"
print(f"{told}, default {get_default_scheduler_name()}")
END

python3 -m venv --without-pip venv
pip=(python3 -m pip --python venv/bin/python)
"${pip[@]}" install --quiet --no-compile torchx==0.7.0
{
    echo "without a plugin: $(venv/bin/python -W ignore show.py)"
    for backend in "hatchling==1.33.0 hatchling.build" "setuptools==80.9.0 setuptools.build_meta"; do
        mkdir -p plugin
        echo "def create(session_name, **options): ..." > plugin/findings_plugin.py
        cat > plugin/pyproject.toml <<END
[build-system]
requires = ["${backend% *}"]
build-backend = "${backend#* }"

[project]
name = "findings-plugin"
version = "1"

[project.entry-points."torchx.schedulers"]
zeta = "findings_plugin:create"
alpha = "findings_plugin:create"
END
        "${pip[@]}" install --quiet --no-compile --no-deps ./plugin
        echo "${backend%%==*}: $(venv/bin/python -W ignore show.py)"
        "${pip[@]}" uninstall --quiet --yes findings-plugin
        rm -r plugin
    done
} | tee seen
diff --unified --label stated --label seen stated seen
echo "as stated"
